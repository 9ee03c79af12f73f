"""`toolgate demo`: everything at once, on real parts, and nothing left behind.

A private server, scheduler processes, sessions with scripted LLMs, files in a temporary
workspace inside the server's own directory: whoever ends the server removes them too, also when
this command is killed.
"""

from typing import Annotated

import typer
from toolgate_bus.commands.options import console, run_async
from toolgate_bus.commands.terminal import Terminal, print_json
from toolgate_bus.server.embedded import Server, private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.telemetry import tracing

from toolgate_orchestrator.commands.demo.job import ANSWER, lay_out
from toolgate_orchestrator.commands.host.scheduler_processes import scheduler_processes


def demo(
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    color: Annotated[
        bool, typer.Option("--color/--no-color", help="Colours, where the terminal has them.")
    ] = True,
) -> None:
    """Watch schedulers rule on a small agent's tool calls, on a team of agents, and on a queue of calls.

    Shows what the LLM chose, what each scheduler said and what came of it: calls that run, are replaced
    or denied, work that goes to another agent, an agent that is stopped, and calls that wait for their
    turn. Takes some seconds.
    Needs nothing and leaves nothing behind.

    Exit codes: 0 all went as it should, 1 it did not, 130 Ctrl-C.
    """
    with tracing.configure("toolgate-demo"), private_server() as server:
        good = run_async(lambda: _show(server, as_json=json_, color=color))
    if not good:
        raise typer.Exit(1)


async def _show(server: Server, *, as_json: bool, color: bool) -> bool:
    # Late: amplifier_core takes a while to load, and --help should not.
    from toolgate_orchestrator.commands.demo.queue_act import queue_promises, run_queue
    from toolgate_orchestrator.commands.demo.session import run_demo
    from toolgate_orchestrator.commands.demo.team_session import run_team
    from toolgate_orchestrator.commands.demo.team_view import team_promises
    from toolgate_orchestrator.commands.demo.view import DemoView, demo_record, promises

    out = Terminal(quiet=True) if as_json else console if color else Terminal(no_color=True)
    view = DemoView(out)
    bus = BusSettings(redis=server.url, namespace="demo")
    layout = lay_out(server.directory / "demo")
    async with scheduler_processes(layout.schedulers, bus) as running:
        view.show_opening(layout, server, running)
        names = [one.name for one in running]
        answer, calls = await run_demo(layout, bus, names, view)
        view.show_closing(answer, calls)
        view.team.show_opening()
        story = await run_team(layout, bus, names, view.team)
        view.team.show_closing(story)
        queue = await run_queue(server.directory, bus, view.line)
    promised = promises(calls, answer, ANSWER) | team_promises(story) | queue_promises(queue)
    view.farewell(running)
    if as_json:
        print_json(demo_record(answer, calls, story, queue, running, promised))
    if not all(promised.values()):
        view.broken(promised)
    return all(promised.values())
