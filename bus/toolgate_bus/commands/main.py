"""Frame of the `toolgate` command. It finds all commands, and loads only the one that is called.

Packages add commands through the entry-point group `toolgate.commands`: a `typer.Typer` becomes a
group of commands, a function a single one. A command whose extra is not installed says so when it is
called, and leaves the others working. No command is defined here.
"""

import codecs
import gc
import inspect
import io
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Final, Literal, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from toolgate_bus.errors import ToolgateError
from toolgate_bus.installation import EXTRAS, how_to_install
from toolgate_bus.telemetry.printable import spell_unencodable

GROUP = "toolgate.commands"
LogFormat = Literal["json", "text"]
GROUPS: Final = {
    "Every day": {
        "demo": "Watch three schedulers rule on an agent, on one screen. Start here.",
        "init": "Write rules to start from: for what you have, or for a new agent.",
        "scheduler": "Run schedulers, list those alive, write a new one.",
        "policy": "Test the rules of a policy, have some suggested, enforce or only observe.",
        "decisions": "Show what was decided, with every verdict.",
        "approvals": "Answer the calls that wait for a person.",
        "budget": "Set budgets, and see what was spent.",
        "report": "Report what was spent, saved, denied and held, and by whom.",
        "agents": "List the agents on the bus; stop one.",
        "console": "Watch decisions, and answer held calls, in a browser.",
    },
    "Put a gate in front of agents": {
        "run": "Run an agent from a mount plan; schedulers rule on its calls.",
        "chat": "Chat with an agent; schedulers rule on its calls.",
        "hook": "Gate coding agents: Claude Code, Codex, Gemini CLI and others.",
        "mcp": "Put a gate in front of MCP servers.",
        "serve": "Gate the calls of any program, over HTTP on this machine.",
        "check": "List the tools of your framework's agent that are not gated.",
    },
    "Try before, and measure": {
        "replay": "Replay recorded agent runs against schedulers.",
        "bench": "Measure decisions, compared with the bare server, NATS and a webhook.",
    },
    "Run a fleet": {
        "doctor": "Check this installation and its bus.",
        "exporter": "Serve Prometheus metrics of all decisions.",
        "notify": "Notify people by chat, mail or webhook of what needs them.",
        "queue": "See which calls have slots and which wait; change their order.",
        "shards": "See or set the number of shards that agents spread over.",
    },
}
"""Summary of each command by group, in the order of the help, which loads no command to show them."""
SUMMARIES: Final = {name: line for commands in GROUPS.values() for name, line in commands.items()}
_PANELS: Final = {name: group for group, commands in GROUPS.items() for name in commands}
SPELLED_OUT: Final = "toolgate-spelled-out"
"""Name of the codec error handler `spell_unencodable`, for letters that an output cannot encode."""
LOADED: Final = 100_000
"""Allocations between runs of the garbage collector while a command loads. What it loads stays in use."""
OVERVIEW = """
Independent programs decide on every tool call of your AI agents, before it runs.

These programs are schedulers. Each answers continue, deny or modify, has the call wait, or has a \
person asked. Any deny wins, else the modify of the highest priority. Then the call runs, another \
one runs in its place, or none.

Next steps:

\b
  toolgate demo                                      1. see it all work
  toolgate init --from claude                        2. write rules for yours
  toolgate scheduler run policy --config rules.yaml  3. let them decide

Without --redis URL (or TOOLGATE_REDIS_URL), all commands of one user share an embedded \
server. It starts with the first command and ends with the last.
"""


@cache
def own_entry_points(group: str) -> dict[str, str]:
    """Return the entry points of this distribution, `module:object` by name; none if it is not installed.

    They are parsed here: `importlib.metadata` takes longer to load than most commands take to run.
    """
    for folder in sys.path:
        for file in Path(folder).glob("toolgate_bus-*.dist-info/entry_points.txt"):
            section = file.read_text("utf-8").partition(f"[{group}]\n")[2].partition("\n[")[0]
            lines = (line.partition("=") for line in section.splitlines())
            return {name.strip(): value.strip() for name, _, value in lines if value}
    return {}


@cache
def _entry_points() -> dict[str, str]:
    """Return every command by name. If another distribution offers a name of ours, ours stays."""
    from importlib.metadata import entry_points  # not for a command of ours, see above

    return {point.name: point.value for point in entry_points(group=GROUP)} | own_entry_points(GROUP)


def _entry_point(name: str) -> str | None:
    return own_entry_points(GROUP).get(name) or _entry_points().get(name)


def _missing_extra(command: str, error: ModuleNotFoundError) -> ToolgateError | None:
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        return None
    extra = command if command in EXTRAS.values() else EXTRAS[module]  # several may bring it
    return ToolgateError(
        f"`toolgate {command}` needs {module}, which is not installed. Run: {how_to_install(extra)}"
    )


def _load(name: str, where: str) -> Any:
    """Return the command of this name, at `module:object`. Raise ToolgateError that says what to install."""
    try:
        loaded = resolve_name(where)
    except ModuleNotFoundError as error:
        raise _missing_extra(name, error) or ToolgateError(
            f"`toolgate {name}` could not be loaded from {where}: {error}"
        ) from error
    holder = loaded
    if not isinstance(loaded, typer.Typer):
        holder = typer.Typer(add_completion=False)
        holder.command(name)(loaded)
    command = typer.main.get_command(holder)
    # The frame has the options for completion; a group would add its own.
    command.params = [
        param for param in command.params if param.name not in ("install_completion", "show_completion")
    ]
    command.name = name
    return _join_lines(command)


def _join_lines(command: Any) -> Any:
    """Join the lines of the help's paragraphs, so that the terminal wraps them. Indented examples stay."""
    parts = inspect.cleandoc(command.help or "").split("\n\n")
    whole = (one if one.startswith("\b") or "\n " in one else one.replace("\n", " ") for one in parts)
    command.help = "\n\n".join(whole) or None
    for one in getattr(command, "commands", {}).values():
        _join_lines(one)
    return command


def _spare_text(command: Any, ctx: Any) -> Any:
    """Pass a command's text options through as they are, and options that are not given as None.

    Otherwise typer loads pydantic to check that a text is a text, and makes a validator for each option.
    """
    for param in command.get_params(ctx):
        kind = getattr(param, "type_descriptor", None)
        if (
            hasattr(param, "get_runtime_param")
            and kind is not None
            and param.nargs == 1
            and not param.multiple
        ):
            plain = kind.annotation is str and kind.parameter_info.parser is None and not kind.is_path
            param.get_runtime_param = partial(_OptionConverter, param.get_runtime_param, plain)
    for one in getattr(command, "commands", {}).values():
        _spare_text(one, ctx)
    return command


class _OptionConverter(NamedTuple):
    """Converter of an option's value. It uses typer's validator only where there is something to check."""

    make: Callable[[], Any]
    plain: bool

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value for the command. Raise the errors of typer."""
        if value is None or (self.plain and type(value) is str):
            if (
                value is not None
                and not value.isascii()
                and any("\ud800" <= letter <= "\udfff" for letter in value)
            ):
                raise typer.BadParameter(f"{value!r} is not valid UTF-8.", ctx=ctx, param=param)
            return value
        return self.make().coerce(value, param=param, ctx=ctx)


class _Commands(TyperGroup):
    """All commands of the installed packages. Each is loaded when it is called."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of the frame."""
        _spare_text(self, ctx)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        found = _entry_points()
        return [name for name in SUMMARIES if name in found] + sorted(found.keys() - SUMMARIES.keys())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a stand-in with the one line that the help shows, without loading the command."""
        where = _entry_point(cmd_name)
        if where is None:
            return None
        line = SUMMARIES.get(cmd_name) or f"From {where}."
        return TyperCommand(cmd_name, help=line, rich_help_panel=_PANELS.get(cmd_name, "From other packages"))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that was called, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        where = _entry_point(name) if name and command else None
        return name, _spare_text(_load(name or "", where), ctx) if where else command, rest


app = typer.Typer(
    name="toolgate",
    cls=_Commands,
    help=OVERVIEW,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # as above

        typer.echo(f"toolgate {version('toolgate-bus')}")
        raise typer.Exit


@app.callback()
def _frame(
    log_level: Annotated[
        str,
        typer.Option(metavar="LEVEL", envvar="TOOLGATE_LOG_LEVEL", help="Log to stderr from this level up."),
    ] = "WARNING",
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            metavar="[json|text]",
            envvar="TOOLGATE_LOG_FORMAT",
            help="Format: json (one object per line) or text. Default: text on a terminal, else json.",
        ),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    from toolgate_bus.telemetry.logging import configure_logging  # not for --help: it takes a while

    try:
        configure_logging(log_level, log_format)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--log-level") from None


def _make_output_safe() -> None:
    """Spell out letters that a terminal or pipe cannot show, so that they do not end a command.

    All output of every command goes to these two streams.
    """
    codecs.register_error(SPELLED_OUT, spell_unencodable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=SPELLED_OUT)


def main() -> None:
    """Run `toolgate`. Exit codes: 0 done, 1 failed, 2 wrong call or no server, 130 and 143 by signal."""
    _make_output_safe()
    gc.set_threshold(LOADED)
    try:
        app(prog_name="toolgate")
    except ToolgateError as error:
        _end(error)
    except ModuleNotFoundError as error:  # a command may import its extra only when it runs
        missing = _missing_extra(" ".join(sys.argv[1:2]), error)
        if missing is None:
            raise
        _end(missing)


def _end(error: ToolgateError) -> None:
    from toolgate_bus.commands.options import exit_code, print_error

    print_error(error)
    sys.exit(exit_code(error))


if __name__ == "__main__":
    main()
