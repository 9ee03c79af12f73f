"""Common options of the commands, their settings, consoles and exit codes, and the event loop they run in.

The options name their environment variables. `bus_settings` turns them into checked settings.
Nothing here opens a connection.
"""

import asyncio
import contextlib
import gc
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeVar

import typer

from toolgate_bus.commands.markup import escape_lines
from toolgate_bus.commands.terminal import console as console
from toolgate_bus.commands.terminal import err_console as err_console
from toolgate_bus.errors import ConfigError, NoServer, ToolgateError
from toolgate_bus.server.embedded import Server, join_server, open_shared_server
from toolgate_bus.server.settings import BusSettings, has_password
from toolgate_bus.server.settings import bus_settings as bus_settings
from toolgate_bus.telemetry.logging import load_structlog
from toolgate_bus.telemetry.printable import shorten, visible

Result = TypeVar("Result")

COLLECT_AFTER = (10_000, 20, 50)
"""Thresholds of the garbage collector. They are high: most values of a command need no collector."""

SETTLED_S: Final = 5.0
"""Seconds after which a command lives long. It loads then what its first log line needs, in a thread."""
MAX_USER: Final = 64
"""Maximum length of a user's name in records, in characters."""
_SPAN: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(s|m|h|d)?")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, None: 1}

RedisOption = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        envvar="TOOLGATE_REDIS_URL",
        callback=lambda ctx, param, value: _warn_of_password(ctx, param, value),
        help="URL of the bus server: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://. "
        "Default: the embedded server. Put the password into a file, and name that file in "
        "TOOLGATE_REDIS_PASSWORD_FILE.",
        rich_help_panel="Bus",
    ),
]
NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace",
        metavar="NAME",
        envvar="TOOLGATE_NAMESPACE",
        help="Name of the fleet on that server. Agents and schedulers meet only within one namespace.",
        rich_help_panel="Bus",
    ),
]
KeysOption = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        envvar="TOOLGATE_KEYS",
        help="YAML file that maps scheduler names to hexadecimal keys, which sign and check verdicts.",
        rich_help_panel="Bus",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON, one object per line, instead of a table.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Leave out hints, progress and cases that pass.")]
METRICS_PORT: Final = "TOOLGATE_METRICS_PORT"
MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        min=0,
        max=65535,
        envvar=METRICS_PORT,
        help="Serve this process's metrics at /metrics on this port. 0 means any free port.",
        rich_help_panel="Metrics",
    ),
]
MetricsAddressOption = Annotated[
    str,
    typer.Option(
        "--metrics-address",
        metavar="ADDRESS",
        envvar="TOOLGATE_METRICS_ADDRESS",
        help="Address on which to serve these metrics. 0.0.0.0 means every interface.",
        rich_help_panel="Metrics",
    ),
]


def _warn_of_password(ctx: typer.Context, param: Any, url: str | None) -> str | None:
    source = ctx.get_parameter_source(param.name or "")
    if url and source is not None and source.name == "COMMANDLINE" and has_password(url):
        err_console.print(
            "[yellow]Every user of this machine can read the password in --redis (`ps`).[/] Leave it "
            "out, and name a file that only you can read: TOOLGATE_REDIS_PASSWORD_FILE=FILE; or set "
            "TOOLGATE_REDIS_URL.",
            soft_wrap=True,
        )
    return url


Bus = contextlib.AbstractContextManager[BusSettings]


def start_bus(redis: str | None, namespace: str, keys: Path | None) -> Bus:
    """Open the bus: give the settings, with `redis` the named server, else the user's, started if need be."""
    return _with_server(bus_settings(redis, namespace, keys), open_shared_server)


def join_bus(redis: str | None, namespace: str, keys: Path | None) -> Bus:
    """Open the bus like `start_bus`, but start nothing: raise NoServer if none is named and none runs."""
    return _with_server(bus_settings(redis, namespace, keys), join_server)


@contextlib.contextmanager
def _with_server(
    settings: BusSettings, find: Callable[[], contextlib.AbstractContextManager[Server]]
) -> Iterator[BusSettings]:
    if settings.redis:
        yield settings
        return
    with find() as server:
        yield replace(settings, redis=server.url)


_measured: list[str] = []
"""Sides (scheduler, orchestrator) whose event loop `run_async` measures: those that serve metrics."""


@contextlib.contextmanager
def serve_metrics(port: int | None, address: str, side: str) -> Iterator[str | None]:
    """Serve this process's metrics during the block. Give the URL, or None if no port is given.

    `side` names the process in its metrics (scheduler, orchestrator). Raise ConfigError if the port or
    address cannot be listened on.
    """
    if port is None:
        yield None
        return
    from toolgate_bus.telemetry import metrics  # not for --help: it takes a while

    serving = metrics.serve(port, address)
    _measured.append(side)
    try:
        yield serving.url
    finally:
        _measured.remove(side)
        serving.close()


def find_user() -> str:
    """Return the name of the user who runs this command, for records. An id without a name is `uid-1000`."""
    import getpass  # most commands never ask

    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container may run as an id that /etc/passwd does not know
        name = ""
    return shorten(visible(name).strip(), MAX_USER) or f"uid-{os.getuid()}"


def parse_span(text: str, option: str) -> float:
    """Return the seconds that `90`, `90s`, `10m`, `2h` or `1d` mean. Raise ConfigError for other text."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ConfigError(f"{option} {text}: not a time span; write seconds, or for example 10m, 2h, 1d")
    return float(found[1]) * _SECONDS[found[2]]


def refuse_options_before(ctx: typer.Context) -> None:
    """Raise ConfigError for an option before the subcommand, where it has no effect."""
    for param in ctx.command.params:
        source = ctx.get_parameter_source(param.name or "")
        if source is not None and source.name == "COMMANDLINE":
            name = ctx.invoked_subcommand
            raise ConfigError(f"{param.opts[0]}: put this option after `{name}`: {ctx.command_path} {name} …")


def exit_code(error: ToolgateError) -> int:
    """Return 2 if the user has to change the call (a config, an option, no server), else 1."""
    return 2 if isinstance(error, ConfigError | NoServer) else 1


def print_error(error: ToolgateError) -> None:
    """Print the error in red on stderr."""
    err_console.print(f"[bold red]Error:[/] [red]{escape_lines(str(error))}[/]", soft_wrap=True)


def command_name() -> str:
    """Return the words that run this command: `toolgate` if that is on PATH, else its path."""
    own = Path(sys.executable).with_name("toolgate")
    return shlex.quote(str(own)) if own.exists() and not _is_on_path(own) else "toolgate"


def activation() -> str:
    """Return the line that puts `toolgate` on PATH, for a shell in this folder; empty if it is there."""
    script = Path(sys.executable).with_name("activate")
    if not script.exists() or _is_on_path(script.with_name("toolgate")):
        return ""
    here = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    return f". {shlex.quote(str(here))}"


def _is_on_path(own: Path) -> bool:
    found = shutil.which("toolgate")
    return found is not None and own.exists() and Path(found).samefile(own)


def fail(error: ToolgateError) -> NoReturn:
    """Print the error and end the command with its exit code. `toolgate` does so with every ToolgateError."""
    print_error(error)
    raise typer.Exit(exit_code(error))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop if it is installed, else the standard loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_tell_loop_error)
    return loop


def _tell_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an uncaught error, except that of a TLS connection closed half way, which its owner handles."""
    is_of_tls = str(context.get("message")).startswith("Fatal error on SSL protocol")
    if not (is_of_tls and "the handler is closed" in str(context.get("exception"))):
        loop.default_exception_handler(context)


def run_async(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run an async main to its end. The first SIGINT or SIGTERM cancels it, the second ends it at once.

    A cancelled main ends the command with 130 or 143. A main that finishes its work after the cancellation
    and returns has ended well.
    """
    # Loaded modules stay: there is nothing to collect in them, and the search takes tens of ms.
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_until_signal(main))


async def _until_signal(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    task = asyncio.create_task(main(), name="toolgate-main")
    loop = asyncio.get_running_loop()
    settled = loop.call_later(SETTLED_S, loop.run_in_executor, None, load_structlog)
    watching = []
    for side in _measured:
        from toolgate_bus.telemetry.loop_lag import watch_loop_lag  # not for --help: it takes a while

        watching.append(asyncio.create_task(watch_loop_lag(side), name="toolgate-lag"))
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        _listen(None)  # the next one has its usual effect
        task.cancel()

    _listen(on_signal)
    try:
        return await task
    except asyncio.CancelledError:
        if received:
            raise typer.Exit(128 + received[0]) from None
        raise
    finally:
        settled.cancel()
        _listen(None)
        for one in watching:
            one.cancel()


def _listen(handler: Callable[[int], None] | None) -> None:
    """Give SIGINT and SIGTERM to the handler; without a handler, give them back to Python."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        if handler:
            loop.add_signal_handler(number, handler, number)
        else:
            loop.remove_signal_handler(number)
