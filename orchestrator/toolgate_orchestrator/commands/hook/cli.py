"""`toolgate hook`: makes coding agents ask before each call, by entries in their settings files."""

import os
import re
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import JsonOption, command_name, console
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError
from toolgate_bus.installation import how_to_install
from toolgate_bus.protocol.events import NAME_PATTERN

from toolgate_orchestrator.commands.hook.client_settings import ClientSettings, HookChange, HookPlace
from toolgate_orchestrator.commands.hook.entries import CLIENTS, TIMEOUT_S, HookSettings, find_handlers

OVERVIEW = """
Make coding agents ask before each tool call: Claude Code, Codex CLI, Gemini CLI,
Cursor, Copilot CLI.

\b
  toolgate scheduler run policy --config rules.yaml   start a scheduler
  toolgate hook install claude --required policy      from now on it asks
  toolgate hook status                                test the hooks
  toolgate hook uninstall claude                      undo the install

The hook asks your own sidecar (`toolgate serve`), which starts with the first
call and ends after ten minutes without calls. If a scheduler is required, an
error denies the call; otherwise the call runs.
Exit codes: 0 done, 1 an installed hook does not answer, 2 an option or a
settings file is wrong, and nothing was changed.
"""

app = typer.Typer(name="hook", help=OVERVIEW, no_args_is_help=True)
ClientArgument = Annotated[
    str, typer.Argument(metavar="CLIENT", help="claude, codex, gemini, cursor or copilot.")
]
ProjectOption = Annotated[
    bool, typer.Option("--project/--user", help="Use the settings of this folder's project, or your own.")
]
RequiredOption = Annotated[
    list[str] | None,
    typer.Option("--required", metavar="NAME", help="Deny calls while this scheduler is silent. Repeatable."),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="YAML with the keys of `toolgate:` in a plan.")
]
TimeoutOption = Annotated[
    int,
    typer.Option(
        "--timeout", metavar="SECONDS", min=5, max=3600, help="Longest wait of the client, people included."
    ),
]
AgentOption = Annotated[
    str,
    typer.Option("--agent", metavar="NAME", help="Agent name for schedulers (default: the client's name)."),
]
_MARKS: Final = {"answered": "green", "unruled": "yellow"}


@dataclass(frozen=True)
class HookRow:
    """State of the hook in one client."""

    client: str
    scope: str
    settings: str
    installed: bool
    required: list[str]
    verdict: str
    """`answered`, `unruled`, `fault` or `broken`; empty if no test call was made."""
    reason: str
    milliseconds: int | None
    notes: list[str]


@app.command()
def install(
    client: ClientArgument,
    project: ProjectOption = False,
    required: RequiredOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    agent: AgentOption = "",
    http: Annotated[
        str,
        typer.Option(metavar="URL", help="Claude Code only: ask this `toolgate serve` without a process."),
    ] = "",
    token_env: Annotated[
        str, typer.Option(metavar="NAME", help="With --http: variable that holds the client's token.")
    ] = "",
    portable: Annotated[
        bool,
        typer.Option("--portable", help="Write `toolgate-hook`, found on PATH, not this environment's."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a coding agent ask before each call: toolgate hook install claude --required policy

    Toolgate adds its entries to the agent's settings. It keeps every other byte, and a backup of the file. A
    second install replaces the entries. If a scheduler is required, a hook that cannot run denies the call,
    as far as the agent supports that.
    """
    settings = make_settings(client, required, config, timeout, agent, http, token_env, portable=portable)
    change = ClientSettings(client, find_place(project=project)).install(settings)
    if as_json:
        print_json({"client": client, **_describe(change), "required": list(settings.required)})
        return
    title = CLIENTS[client].title
    console.print(f"{title}: {change.changed} in {escape(str(change.path))}", soft_wrap=True)
    if change.backup is not None:
        console.print(f"[dim]Backup of the former settings: {escape(str(change.backup))}[/]", soft_wrap=True)
    if not settings.required:
        console.print(
            "[dim]No scheduler is required: calls run while none rules or Toolgate cannot be asked "
            "(change that with --required NAME).[/]",
            soft_wrap=True,
        )
    if config is not None and not _read_section(config).get("redis"):
        console.print(
            f"[dim]{escape(str(config))} names no bus (`redis`): the hook uses the bus in your own folder "
            "(/run/user/UID, else /tmp), even if a project sets other variables.[/]",
            soft_wrap=True,
        )
    for note in CLIENTS[client].notes:
        console.print(f"[dim]{escape(note)}[/]", soft_wrap=True)
    where = " --project" if project else ""
    console.print(f"[dim]Test it: {command_name()} hook status {client}{where}[/]", soft_wrap=True)


@app.command()
def uninstall(client: ClientArgument, project: ProjectOption = False, as_json: JsonOption = False) -> None:
    """Remove Toolgate's entries from a coding agent's settings: toolgate hook uninstall claude

    If nothing else changed, the file is restored byte for byte. Otherwise only the entries are removed.
    """
    check_client(client)
    change = ClientSettings(client, find_place(project=project)).uninstall()
    if as_json:
        print_json({"client": client, **_describe(change)})
        return
    words = {
        "restored": "restored as it was before",
        "removed": "Toolgate's entries were removed",
        "absent": "there were no entries of Toolgate",
    }
    console.print(f"{escape(str(change.path))}: {words[change.changed]}", soft_wrap=True)


@app.command()
def status(
    client: Annotated[str, typer.Argument(metavar="[CLIENT]", help="Only this client (default: all).")] = "",
    project: ProjectOption = False,
    no_probe: Annotated[bool, typer.Option("--no-probe", help="Do not test the hooks with a call.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show which coding agents ask, and test each with a call: toolgate hook status

    The test call goes to the hook as the agent would send it. It is never run, and nothing of it is recorded.
    `answered` means that schedulers rule on calls; `unruled` that calls run, because no scheduler is there;
    `fault` that calls are denied, because no scheduler can be asked; `broken` that the hook does not work.

    Exit codes: 0 shown, 1 an installed hook has a `fault` or is `broken`, 2 an option is wrong.
    """
    if client:
        check_client(client)
    place = find_place(project=project)
    rows = [_look(name, place, puts_call=not no_probe) for name in ([client] if client else CLIENTS)]
    if as_json:
        for row in rows:
            print_json(asdict(row))
    else:
        console.print(_show(rows))
        for row in rows:
            if row.installed or client:
                for note in row.notes:
                    console.print(
                        f"[dim]{escape(CLIENTS[row.client].title)}: {escape(note)}[/]", soft_wrap=True
                    )
    if any(row.verdict in ("fault", "broken") for row in rows):
        raise typer.Exit(1)


@app.command()
def run(
    client: ClientArgument,
    required: RequiredOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    config: ConfigOption = None,
    agent: AgentOption = "",
) -> None:
    """Answer one event, as the installed hook does: toolgate hook run claude < event.json

    The hook reads the event from stdin, and writes only the answer to stdout. `toolgate-hook` does the same
    and starts twenty times faster.
    """
    import toolgate_hook

    words = [client, "--timeout", str(timeout)]
    for name in required or ():
        words += ["--required", name]
    words += ["--config", str(config)] if config is not None else []
    words += ["--agent", agent] if agent else []
    raise typer.Exit(toolgate_hook.main(words))


# ---------------------------------------------------------------- shared by the commands


def check_client(client: str) -> None:
    """Raise ConfigError for an unknown client."""
    if client not in CLIENTS:
        raise ConfigError(f"CLIENT: {client[:64]!r} is unknown. Choose one of: {', '.join(CLIENTS)}")


def find_place(*, project: bool) -> HookPlace:
    """Return the folders of the settings for this user and the current folder."""
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        home = Path.home()
    except RuntimeError:
        raise ConfigError("you have no home directory: set HOME") from None
    kept = Path(state) if Path(state).is_absolute() else home / ".local" / "state"
    return HookPlace("project" if project else "user", home, Path.cwd(), kept, os.environ)


def make_settings(
    client: str,
    required: list[str] | None,
    config: Path | None,
    timeout: int,
    agent: str,
    http: str,
    token_env: str,
    *,
    portable: bool,
) -> HookSettings:
    """Return the settings of an entry. Raise ConfigError for a wrong option.

    Schedulers that `config` requires are added to `required`.
    """
    check_client(client)
    if token_env and not http:
        raise ConfigError("--token-env works only with --http")
    if http and re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", http) is None:
        raise ConfigError("--http: write an address such as http://127.0.0.1:8181")
    names = list(required or ())
    if config is not None:
        from toolgate_orchestrator.decision.config import parse

        names += parse(_read_section(config), str(config)).required
    for name in names:
        if re.fullmatch(NAME_PATTERN, name) is None:
            raise ConfigError(f"--required: {name[:64]!r} is not a valid name of a scheduler")
    return HookSettings(
        client,
        tuple(dict.fromkeys(names)),
        timeout,
        str(config.absolute()) if config is not None else "",
        agent,
        find_command(portable=portable),
        http,
        token_env,
    )


def _read_section(config: Path) -> Any:
    from toolgate_bus.config.document import read_document

    fields: Any = read_document(config).mapping()
    return fields["toolgate"] if set(fields) == {"toolgate"} else fields


def find_command(*, portable: bool) -> tuple[str, ...]:
    """Return the program that the client starts: one interpreter and one file, with nothing else to load."""
    if portable:
        if shutil.which("toolgate-hook") is None:
            raise ConfigError("--portable: toolgate-hook is not on your PATH")
        return ("toolgate-hook",)
    found = find_spec("toolgate_hook")
    if found is None or found.origin is None:
        raise ConfigError(f"toolgate_hook is not installed. Run: {how_to_install()} --force-reinstall")
    return (sys.executable, "-I", "-S", str(Path(found.origin).absolute()))


def _describe(change: HookChange) -> dict[str, Any]:
    backup = str(change.backup) if change.backup is not None else None
    return {"settings": str(change.path), "backup": backup, "changed": change.changed}


def _look(client: str, place: HookPlace, *, puts_call: bool) -> HookRow:
    settings = ClientSettings(client, place)
    found = settings.read()
    files = CLIENTS[client]
    handlers = [
        _handler_at(found, event, at, within)
        for event, at, within in find_handlers(found, client)
        if event == files.before
    ]
    required: list[str] = []
    answer = None
    if handlers:
        line = str(handlers[0].get("command") or handlers[0].get("bash") or "")
        required = re.findall(r"--required (\S+)", line)
        if puts_call:
            from toolgate_orchestrator.commands.hook.probe import probe

            answer = probe(client, handlers[0])
    return HookRow(
        client,
        place.scope,
        str(settings.file.path),
        bool(handlers),
        required,
        answer.verdict if answer else "",
        answer.reason if answer else "",
        answer.milliseconds if answer else None,
        list(files.notes),
    )


def _handler_at(found: Any, event: str, at: int, within: int | None) -> dict[str, Any]:
    entry = found["hooks"][event][at]
    handler: dict[str, Any] = entry["hooks"][within or 0] if "hooks" in entry else entry
    return handler


def _show(rows: list[HookRow]) -> Any:
    table = Table(
        ("client", "settings", "installed", "required", "test call", "ms"),
        right=("ms",),
        cut={"settings"},
        wrap={"required", "test call"},
        spare=("ms", "required"),
    )
    for row in rows:
        mark = _MARKS.get(row.verdict, "red")
        said = f"[{mark}]{row.verdict}[/] {escape(row.reason)}".strip() if row.verdict else ""
        table.add_row(
            CLIENTS[row.client].title,
            escape(row.settings),
            "yes" if row.installed else "no",
            escape(", ".join(row.required)),
            said,
            "" if row.milliseconds is None else str(row.milliseconds),
        )
    return table
