"""`toolgate check`: names become objects here, and gaps become lines and an exit code."""

from typing import Annotated

import typer
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import JsonOption, console
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json

from toolgate_orchestrator.commands.check.frameworks import find_gaps
from toolgate_orchestrator.commands.check.target import load_target


def check(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET…", help="Agent to check: agent.py:agent, package.module:make_agent, …"
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """List the tools of an agent that are not gated, with the reason: toolgate check agent.py:agent

    Toolgate imports the agent's file as Python would, but does not run the agent. It calls a function that
    has no parameters, and checks the object that the function returns.

    \b
      toolgate check agent.py:agent            an agent, app, crew or options
      toolgate check my_app.agents:make_desk   a function that makes one
      toolgate check agent.py:app --json       a line for each gap, for scripts

    A gap is a tool that the model's provider runs, an agent further down that has no gate, or code that could
    change a call behind the gate. The framework must be installed. Tools that are added while the agent runs
    are not seen.

    Exit codes: 0 everything is gated, 1 something is not, 2 there is nothing to check.
    """
    total = 0
    for target in targets:
        title, gaps = find_gaps(load_target(target))
        total += len(gaps)
        if as_json:
            for gap in gaps:
                print_json({"target": target, "framework": title, **gap._asdict()})
        elif not gaps:
            console.print(
                f"[green]✓[/] {escape(target)} ({title}): every tool call is ruled on", soft_wrap=True
            )
        else:
            console.print(f"[red]✗[/] {escape(target)} ({title}): {len(gaps)} not gated", soft_wrap=True)
            why = "why, and what to do"
            table = Table(("agent", "tool", why), cut={"agent", "tool"}, wrap={why})
            for gap in gaps:
                table.add_row(escape(gap.agent), escape(gap.tool), escape(gap.reason))
            console.print(table)
    if total:
        raise typer.Exit(1)
