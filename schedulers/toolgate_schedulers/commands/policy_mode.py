"""`toolgate policy enforce` and `toolgate policy observe`: switch the mode of a living policy, or of a file.

A pushed configuration is pushed again with the other mode, and every replica takes it up. A file keeps every
other byte. Before the switch, the command shows what it changes, by the calls in the record.
"""

import re
import socket
import stat
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.new_files import replace_file
from toolgate_bus.commands.options import (
    JsonOption,
    KeysOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
)
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.config.check import check
from toolgate_bus.config.document import Document, parse_document
from toolgate_bus.errors import ConfigError, NoServer, TransportError
from toolgate_bus.facts.observed_calls import ObservedCalls

from toolgate_schedulers.shipped.policy.scheduler import Mode, PolicyConfig, name_of

if TYPE_CHECKING:
    from toolgate_schedulers.commands.scheduler_configs import ConfigCommands, Status

MAX_PLACES: Final = 64
"""Maximum number of places in one line that are tried for the mode."""
_WORD: Final = re.compile(r"\bmode[\"']?\s*:\s*[\"']?(enforce|observe)\b")

NameArgument = Annotated[str, typer.Argument(metavar="[NAME]", help="The name that the policy runs under.")]
FileOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Change this file, not what was pushed.")
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask before the change.")]


class ModeTarget(NamedTuple):
    """Configuration whose mode is switched."""

    text: bytes
    name: str
    """Name for people: the file, or what was pushed."""
    config: PolicyConfig
    digest: str = ""
    """Digest of a pushed configuration; empty for a file."""
    spec: str = "policy"


class BusView(NamedTuple):
    """State of the policy on the bus."""

    calls: ObservedCalls
    status: "Status"


def enforce(
    name: NameArgument = "policy",
    config: FileOption = None,
    yes: YesOption = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: JsonOption = False,
) -> None:
    """Switch the rules of a policy on: from now on it denies and asks.

    \b
      toolgate policy enforce                       the living policy
      toolgate policy enforce --config rules.yaml   a file
      toolgate policy observe                       take it back

    First it shows which calls of the last hour the policy would have denied, or
    asked a person about, and asks you. Replicas take up what was pushed within
    seconds. They read a file again on SIGHUP.

    Exit codes: 0 the rules are enforced, 1 you said no or the bus is away, 2 the
    configuration is wrong, or nothing was pushed.
    """
    _switch("enforce", name, config, redis, namespace, keys, yes=yes, as_json=json_)


def observe(
    name: NameArgument = "policy",
    config: FileOption = None,
    yes: YesOption = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: JsonOption = False,
) -> None:
    """Switch the rules of a policy off: from now on it only says what it would have done.

    \b
      toolgate policy observe
      toolgate policy observe --config rules.yaml

    First it shows which calls of the last hour the policy denied, or asked a
    person about, and asks you. Such calls run from then on.

    Exit codes: 0 the policy observes, 1 you said no or the bus is away, 2 the
    configuration is wrong, or nothing was pushed.
    """
    _switch("observe", name, config, redis, namespace, keys, yes=yes, as_json=json_)


def _switch(
    mode: Mode, name: str, file: Path | None, redis: str | None, namespace: str, keys: Path | None,
    *, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    from toolgate_schedulers.commands.scheduler_configs import at_desk  # here: it needs what the bus needs

    if as_json and not yes:
        raise ConfigError("--json: nobody is asked, so give --yes as well")
    if file is not None:
        target = _read_file(file, name)
    else:
        target = at_desk(name, redis, namespace, keys, read_in_force)
    told: dict[str, Any] = {"scheduler": name, "mode": mode, "config": target.name, "changed": False}
    if target.config.mode == mode:
        words = "are enforced" if mode == "enforce" else "only observe"
        _tell(told, f"{name}: the rules of {target.name} {words} already", as_json=as_json)
        return
    text = set_mode(target.text, target.name, mode)
    view = _look(mode, name, target, redis, namespace, keys)
    if not as_json:
        _show(mode, name, view)
    if not yes:
        _ask(mode, target)
    if view is not None:
        told |= view.calls.as_json()
    told["changed"] = True
    if file is not None:
        _write_file(file, target.text, text)
        _tell(told, f"{file}: mode: {mode}. {_how_to_reload(name, file, view)}", as_json=as_json)
        return

    async def push(desk: "ConfigCommands") -> str:
        new = await desk.push(text, "", target.spec, stage=False, instead_of=target.digest)
        return new.revision.text

    told["config"] = at_desk(name, redis, namespace, keys, push)
    back = "observe" if mode == "enforce" else "enforce"
    words = f"{name}: {told['config']} is in force within seconds; `toolgate policy {back}` takes it back"
    _tell(told, words, as_json=as_json)


async def read_in_force(desk: "ConfigCommands") -> ModeTarget:
    """Return the pushed configuration in force. Raise ConfigError if there is none, or it is no policy's."""
    from toolgate_schedulers.shipped.rule_listing import CONFIGS

    record = (await desk.store.read()).record
    if record.rollout is not None:
        raise ConfigError(
            f"{desk.name}: a rollout is under way: let it end, or `toolgate scheduler rollout {desk.name} "
            "--cancel`"
        )
    stored = record.config(record.active)
    if stored is None:
        raise ConfigError(
            f"{desk.name}: nothing was pushed, so each replica rules by its own file; "
            "name that file: --config FILE"
        )
    spec = stored.spec or desk.name
    if CONFIGS.get(spec) is not PolicyConfig:
        raise ConfigError(f"{desk.name}: what was pushed is for {spec}, which is no policy")
    text, name = await desk.store.text(record.active), f"pushed {stored.revision.text}"
    return ModeTarget(text, name, _parse(parse_document(text, name)), record.active, spec)


def _read_file(file: Path, name: str) -> ModeTarget:
    from toolgate_schedulers.commands.scheduler_configs import read_checked

    checked = read_checked(file, "policy", name)
    return ModeTarget(checked.text, str(file), _parse(checked.document))


def _parse(document: Document) -> PolicyConfig:
    return check(PolicyConfig, document.mapping(), document)


# ---------------------------------------------------------------------- the text


def set_mode(text: bytes, name: str, mode: Mode) -> bytes:
    """Return a policy's text in this mode, with every other byte as it was. Raise ConfigError.

    An edit counts only if the new text reads as the old one with the other mode.
    """
    document = parse_document(text, name)
    wanted = {**document.mapping(), "mode": mode}
    for edited in _edits(text, document, mode):
        try:
            if parse_document(edited, name).value == wanted:
                return edited
        except ConfigError:
            continue
    raise ConfigError(f"{name}: the mode cannot be changed from here: write `mode: {mode}` at its top")


def _edits(text: bytes, document: Document, mode: Mode) -> Iterator[bytes]:
    """Yield texts with the mode in the places where it may stand."""
    try:
        written = text.decode("utf-8")
    except UnicodeDecodeError:
        return
    lines = written.splitlines(keepends=True)
    mark = document.root.start_mark if document.root is not None else None
    if "mode" in document.mapping():
        at = document.line_of(("mode",)) - 1
        for found in islice(_WORD.finditer(lines[at]), MAX_PLACES):
            line = f"{lines[at][: found.start(1)]}{mode}{lines[at][found.end(1) :]}"
            yield "".join([*lines[:at], line, *lines[at + 1 :]]).encode()
    elif mark is not None:
        line, column = lines[mark.line], mark.column
        if line[column : column + 1] == "{":
            line = f'{line[: column + 1]}"mode": "{mode}", {line[column + 1 :]}'
        else:
            newline = "\r\n" if line.endswith("\r\n") else "\n"
            line = f"{line[:column]}mode: {mode}{newline}{line}"
        yield "".join([*lines[: mark.line], line, *lines[mark.line + 1 :]]).encode()


def _write_file(file: Path, before: bytes, text: bytes) -> None:
    try:
        target = file.resolve()
        if target.read_bytes() != before:
            raise ConfigError(f"{file}: changed just now; nothing was written, try again")
        replace_file(target, text, stat.S_IMODE(target.stat().st_mode))
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{file}: cannot be written: {getattr(error, 'strerror', None) or error}") from None


# ---------------------------------------------------------------------- what it changes


def _look(
    mode: Mode, name: str, target: ModeTarget, redis: str | None, namespace: str, keys: Path | None
) -> BusView | None:
    """Return the calls that the switch is about, and the policy's replicas; None without a bus."""
    from toolgate_schedulers.commands.scheduler_configs import at_desk  # here: it needs what the bus needs

    rules = target.config.rules
    watching = {name_of(rule, number) for number, rule in enumerate(rules) if rule.mode == "observe"}
    calls = ObservedCalls(name, in_force=mode == "observe", ignored=frozenset(watching))

    async def read(desk: "ConfigCommands") -> BusView:
        await desk.count_calls(calls)
        return BusView(calls, await desk.status())

    try:
        return at_desk(name, redis, namespace, keys, read)
    except (NoServer, TransportError) as error:
        err_console.print(escape(f"The record cannot be read, so nothing is known of past calls: {error}"))
        return None


def _show(mode: Mode, name: str, view: BusView | None) -> None:
    from toolgate_bus.commands.report.observed import observed_table

    if view is None:
        return
    calls = view.calls
    would = "denied" if mode == "observe" else "would have denied"
    asked = "asked" if mode == "observe" else "would have asked"
    console.print(
        escape(f"In the record that the server has, {name} {would} {calls.denied} calls and {asked} about "
               f"{calls.asked}."),
        soft_wrap=True,
    )  # fmt: skip
    if calls.lines:
        console.print(observed_table(calls))


def _ask(mode: Mode, target: ModeTarget) -> None:
    if not sys.stdin.isatty():
        raise ConfigError("nobody can be asked here: give --yes")
    words = "Enforce the rules of" if mode == "enforce" else "Only observe with the rules of"
    if not typer.confirm(f"{words} {target.name}?", err=True):
        raise typer.Exit(1)


def _how_to_reload(name: str, file: Path, view: BusView | None) -> str:
    """Return what makes the living replicas take up a file."""
    if view is not None and view.status.read.record.active:
        return f"{name} rules by what was pushed: `toolgate scheduler undo {name} --to file` ends that."
    members = view.status.members if view is not None else ()
    here = sorted(one.pid for one in members if one.host == socket.gethostname() and one.pid > 0)
    if here:
        return f"Have its replicas read the file again: kill -HUP {' '.join(map(str, here))}"
    if members:
        return f"Have its {len(members)} replicas read the file again: send them SIGHUP."
    return f"It counts once the policy runs by it: toolgate scheduler run policy --config {file}"


def _tell(told: dict[str, Any], words: str, *, as_json: bool) -> None:
    print_json(told) if as_json else console.print(escape(words), soft_wrap=True)
