"""`toolgate agents labels` and `unlabel`: labels that verdicts gave to sessions, and how one is taken away.

The server keeps who took what away, and when. Each running process that knows the session forgets the label,
confirms that, and one of them records the fact `agent:unlabel`.
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import anyio
import typer

from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    JsonOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
    find_user,
    join_bus,
    run_async,
)
from toolgate_bus.commands.pauses import WaitOption
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.protocol.agents import LiveAgent, name_session
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory
from toolgate_bus.transport.redis.storage.session_labels import LabelBoard
from toolgate_bus.transport.session_labels import (
    MAX_TREE,
    OVERFLOW,
    REQUIRED,
    LabelMark,
    LabelMarks,
    LabelNotice,
    is_field,
    make_field,
    show_labels,
    split_field,
)

Result = TypeVar("Result")
_LOOK_S: Final = 0.05
_SAY_AGAIN_S: Final = 1.0
_COLUMNS: Final = ("session", "label", "value", "taken away by", "when")
_ALL: Final = "*"


class Unlabelled(NamedTuple):
    """Result of a command that takes labels away."""

    taken: Mapping[str, Sequence[str]]
    """Fields that each session bore."""
    deaf: tuple[str, ...] = ()
    """Live processes that have not confirmed it."""
    full: tuple[str, ...] = ()
    """Sessions that were given too many labels: none of theirs is known."""


def labels(
    session: Annotated[
        str | None, typer.Argument(metavar="[SESSION]", help="Session, or beginning of its id.")
    ] = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show the labels that verdicts gave to sessions: toolgate agents labels 4f2a

    Labels that somebody took away are listed too, with who did it. Without SESSION it searches the whole
    database of the server for sessions with labels.

    Exit codes: 0 shown, 1 the bus is away, 2 an id matches no session or several, or no server was found.
    """

    async def read(board: LabelBoard, fleet: AgentDirectory) -> dict[str, LabelMarks]:
        if session is None:
            return await board.read(await board.list_sessions())
        return await board.read([await _find_session(board, fleet, session)])

    with join_bus(redis, namespace, None) as settings:
        found = run_async(lambda: _run(str(settings.redis), settings.namespace, read))
    rows = [
        (one, field, mark)
        for one, marks in sorted(found.items())
        for field, mark in sorted(marks.items())
        if not field.endswith(REQUIRED)
    ]
    if as_json:
        for one, field, mark in rows:
            print_json(_describe(one, field, mark))
    elif rows:
        console.print(_table(rows))
    else:
        console.print("No labels." if session is None else "This session bears no label.")


def unlabel(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Session, or beginning of its id.")],
    label: Annotated[
        str, typer.Argument(metavar="NAME[=VALUE]", help="Label; without a value: all its values; *: all.")
    ],
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who takes it away. Default: this user.")
    ] = None,
    wait: WaitOption = 10.0,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Take a label from a session and its tree: toolgate agents unlabel 4f2a source=untrusted

    The label goes from the session, from its root and from all live sessions of its tree. A later verdict
    may give it again. Running processes record it as the fact `agent:unlabel`.

    Exit codes: 0 every process knows, 1 some have not confirmed it, the session does not bear the label, or
    the bus is away; 2 an id matches no session or several, or no server was found.
    """
    meant = _parse_label(label)
    who = (by or find_user())[:64]

    async def change(board: LabelBoard, fleet: AgentDirectory) -> Unlabelled:
        one = await _find_session(board, fleet, session)
        tree = _list_tree(one, await fleet.agents())
        taken = await board.take(tree, meant, who)
        if not taken:
            return Unlabelled({})
        deaf = await _until_known(board, fleet, tree, wait)
        left = await board.read([*taken])
        return Unlabelled(taken, deaf, tuple(one for one in taken if show_labels(left[one]) is None))

    with join_bus(redis, namespace, None) as settings:
        done = run_async(lambda: _run(str(settings.redis), settings.namespace, change))
    if as_json:
        print_json({"taken": {one: [*fields] for one, fields in done.taken.items()}, "deaf": [*done.deaf]})
    else:
        for one, fields in sorted(done.taken.items()):
            console.print(f"took {escape(' '.join(fields))} from {escape(one)}")
        if not done.taken:
            err_console.print(f"{escape(session)} bears no label {escape(label)}.")
        for one in done.full:
            err_console.print(
                f"[yellow]{escape(one)} was given more labels than are kept, so its labels stay unknown.[/] "
                "Take all: give '*' as the label."
            )
        if done.deaf:
            err_console.print(
                f"[yellow]{len(done.deaf)} processes with agents have not confirmed this.[/] They may run "
                "an earlier version, or be cut off from the server; then they follow once they are back."
            )
    if done.deaf or not done.taken:
        raise typer.Exit(1)


async def _run(
    url: str, namespace: str, do: Callable[[LabelBoard, AgentDirectory], Awaitable[Result]]
) -> Result:
    async with aclosing(RedisCommands(url, "toolgate-agents", connections=1)) as commands:
        return await do(LabelBoard(commands, namespace), AgentDirectory(commands, namespace))


def _parse_label(label: str) -> str:
    """Return what the script takes away: a field, `NAME=` for all values, or nothing for all labels."""
    if label == _ALL:
        return ""
    name, equals, value = label.partition("=")
    if not is_field(make_field(name, value if equals else "x")):
        raise ConfigError(f"{label!r} is no label: write NAME, NAME=VALUE, or '*' for all labels")
    return make_field(name, value)


async def _find_session(board: LabelBoard, fleet: AgentDirectory, id_: str) -> str:
    """Return the session with this id, or the only one that begins so. Raises ConfigError."""
    exact = name_session(id_)
    if id_ and (await board.read([exact]))[exact]:
        return exact
    living = {name for one in await fleet.agents() for name in (one.session, one.root)}
    if exact in living and id_:
        return exact
    found = sorted(one for one in {*living, *await board.list_sessions()} if one.startswith(id_))
    if len(found) != 1 or not id_:
        several = (
            f"means several: {', '.join(map(repr, found[:8]))}" if found else "is no session that has labels"
        )
        raise ConfigError(f"{id_!r} {several}; `toolgate agents labels` lists them")
    return found[0]


def _list_tree(session: str, living: Collection[LiveAgent]) -> list[str]:
    """Return a session, its root, and the live sessions of its tree."""
    roots = {session, *(one.root for one in living if one.session == session)} - {""}
    tree = dict.fromkeys((session, *sorted(roots)))
    tree.update(dict.fromkeys(one.session for one in living if one.root in roots))
    return [*tree][:MAX_TREE]


async def _until_known(
    board: LabelBoard, fleet: AgentDirectory, sessions: Sequence[str], wait_s: float
) -> tuple[str, ...]:
    """Wait until all processes know that labels were taken away. Return those that do not."""
    notice = LabelNotice(secrets.token_hex(8), tuple(sessions))
    until, said = time.monotonic() + wait_s, float("-inf")
    told: Collection[str] = ()
    while True:
        try:
            if time.monotonic() - said >= _SAY_AGAIN_S:
                told, said = await board.tell(notice), time.monotonic()
            look = await fleet.look(notice.order, told)
            deaf = tuple(sorted(set(told) - look.obeyed.keys()))
            if not deaf or time.monotonic() >= until:
                return deaf
        except TransportError:
            if time.monotonic() >= until:
                raise
        await anyio.sleep(_LOOK_S)


def _describe(session: str, field: str, mark: LabelMark) -> dict[str, Any]:
    name, value = split_field(field)
    told: dict[str, Any] = {"session": session, "label": name, "value": value, "borne": mark.is_borne}
    return told if mark.is_borne else {**told, "by": mark.by, "at_ms": mark.at_ms}


def _table(rows: Sequence[tuple[str, str, LabelMark]]) -> Table:
    table = Table(_COLUMNS, cut={"session", "taken away by"})
    for session, field, mark in rows:
        name, value = ("(too many)", "unknown") if field == OVERFLOW else split_field(field)
        when = "" if mark.is_borne else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(mark.at_ms / 1000))
        table.add_row(*map(escape, (session, name, value, mark.by, when)))
    return table
