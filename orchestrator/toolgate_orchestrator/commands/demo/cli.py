"""`toolgate demo`: three schedulers rule on a small agent, on one screen.

A private server, three scheduler processes, a session with a scripted LLM, and files inside the server's
own directory. The server's guard removes all of it, also when this command is killed.
"""

import os
import sys
from typing import Annotated, Final, TextIO

import typer
from toolgate_bus.commands.options import activation, console, run_async
from toolgate_bus.commands.terminal import Terminal, print_json
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.server.embedded import Server, private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.telemetry import tracing

from toolgate_orchestrator.commands.demo.job import AGENT, lay_out
from toolgate_orchestrator.commands.demo.keyboard import Keyboard
from toolgate_orchestrator.commands.demo.view import WIDTH, DemoView
from toolgate_orchestrator.commands.host.scheduler_processes import scheduler_processes

PACE_S: Final = 1.0
"""Seconds that a reader at a terminal needs for a short line. Without a terminal there is no wait."""


def demo(
    step: Annotated[bool, typer.Option("--step", help="Wait for Enter after each call.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    color: Annotated[
        bool, typer.Option("--color/--no-color", help="Use colours (default: if the terminal supports them).")
    ] = True,
) -> None:
    """Watch three schedulers rule on the tool calls of a small agent, on one screen.

    One call runs, one is replaced, one exceeds a budget, one is denied, and one needs a person: you, or
    the demo itself if you do not answer. At a terminal this takes about twenty seconds; in a pipe it
    prints the same lines without waiting. It needs no LLM, no key and no server, and leaves nothing behind.

    Exit codes: 0 all went as it should, 1 it did not, 2 --step without a terminal, 130 Ctrl-C.
    """
    shown = not json_ and _is_terminal(sys.stdout)
    at_terminal = shown and _is_terminal(sys.stdin)
    if step and not at_terminal:
        raise ConfigError("--step waits for Enter: use it at a terminal, without --json")
    out = Terminal(quiet=True) if json_ else console if color else Terminal(no_color=True)
    out.width = min(out.width, WIDTH) if out.is_terminal else WIDTH
    with Keyboard(sys.stdin.fileno() if at_terminal else None) as keyboard:
        view = DemoView(out, keyboard, pace_s=PACE_S if shown and not step else 0.0, step=step)
        view.show_title()
        with tracing.configure("toolgate-demo"), private_server() as server:
            try:
                run_async(lambda: _run(server, view, as_json=json_))
            finally:
                view.end_line()
    view.show_next_steps(activation())


async def _run(server: Server, view: DemoView, *, as_json: bool) -> None:
    # Late: amplifier_core takes a while to load, and --help should not.
    from toolgate_orchestrator.commands.demo.session import demo_record, run_demo

    bus = BusSettings(redis=server.url, namespace="demo")
    layout = lay_out(server.directory / "demo")
    async with scheduler_processes(layout.schedulers, bus) as running:
        await view.show_opening([*((one.name, one.pid) for one in running), (AGENT, os.getpid())])
        result = await run_demo(layout, bus, [one.name for one in running], view)
    if as_json:
        print_json(demo_record(result, running))
    if missing := [name for name, kept in result.promises().items() if not kept]:
        raise ToolgateError(f"the demo failed to show: {', '.join(missing)}")


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()
