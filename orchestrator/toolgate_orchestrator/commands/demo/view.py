"""What `toolgate demo` shows: who is there, each call as it happens, and a summary."""

import statistics
from collections.abc import Sequence
from typing import Any, Final

from rich.text import Text
from toolgate_bus.commands.options import activation
from toolgate_bus.commands.terminal import Terminal
from toolgate_bus.protocol.events import Decision, ReceivedVerdict
from toolgate_bus.server.embedded import Server

from toolgate_orchestrator.commands.demo.job import PROMPT, DemoCall, Layout, next_steps
from toolgate_orchestrator.commands.demo.queue_act import QueueStory, queue_record
from toolgate_orchestrator.commands.demo.team_view import Story, TeamView, team_record
from toolgate_orchestrator.commands.host.rulings import (
    call_text,
    outcome_line,
    result_line,
    verdict_lines,
    verdict_record,
)
from toolgate_orchestrator.commands.host.scheduler_processes import RunningScheduler

WIDTH: Final = 10


class DemoView:
    """Prints the demo while it runs."""

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._calls = 0
        self.team = TeamView(self.line)
        """Shows the second act."""

    def show_opening(self, layout: Layout, server: Server, schedulers: Sequence[RunningScheduler]) -> None:
        """Who is there, and what is asked of the agent."""
        self.line("Toolgate demo", style="bold")
        self.line("Act one: an agent", style="bold")
        self.line("Three scheduler processes rule on every tool call of a small agent, before it runs.")
        self.line("Its LLM is a script: it needs no key. The processes, the rulings and the tools are real.")
        self.line()
        self.line(f"  {'server':<{WIDTH}} pid {server.pid:<8} private, on a unix socket; gone when this ends")
        for one in schedulers:
            self.line(f"  {one.name:<{WIDTH}} pid {one.pid:<8} {layout.about.get(one.name, '')}")
        self.line()
        self.line(f"The user: {PROMPT}")

    def on_decision(self, decision: Decision, verdicts: tuple[ReceivedVerdict, ...]) -> None:
        """One call, what each scheduler said of it, what came of that."""
        self._calls += 1
        call = call_text(decision.original_tool, decision.original_input)
        self.line()
        self.line(Text.assemble((f"{self._calls:>2}  ", "dim"), "The LLM chose ", call))
        for line in verdict_lines(verdicts, WIDTH):
            self.line(line)
        self.line(outcome_line(decision))

    def on_result(self, result: str) -> None:
        """What the tool returned."""
        self.line(result_line(result))

    def show_closing(self, answer: str, calls: Sequence[DemoCall]) -> None:
        """The first act's answer and summary."""
        self.line()
        self.line(Text.assemble(("The LLM's answer: ", "bold"), answer))
        self.line()
        outcomes = [call.decision.outcome for call in calls]
        said = sum(len(call.verdicts) for call in calls)
        median = statistics.median([call.decision.seconds for call in calls] or [0.0]) * 1000
        counts = {word: outcomes.count(word) for word in ("continue", "modify", "deny")}
        came = "{continue} ran as chosen, {modify} replaced, {deny} denied".format(**counts)
        summary = f"{len(calls)} calls: {came}; {said} verdicts; decided in {median:.1f} ms (median)."
        self.line(Text.assemble(("Summary: ", "bold"), summary))

    def farewell(self, schedulers: Sequence[RunningScheduler]) -> None:
        """What goes with the command, and where to go from here."""
        self.line()
        pids = ", ".join(f"{one.name} {one.pid}" for one in schedulers)
        self.line(f"Scheduler processes: {pids}. They, the server and the files go with this command.")
        self.line()
        for step in next_steps(activation()).splitlines():
            self.line(step, style=None if step.startswith(" ") else "bold")

    def broken(self, promised: dict[str, bool]) -> None:
        """What should have happened and did not."""
        self.line()
        missing = ", ".join(name for name, kept in promised.items() if not kept)
        self.line(f"The demo did not go as it should: {missing}", style="bold red")

    def line(self, line: str | Text = "", style: str | None = None) -> None:
        """Show one line."""
        self._console.print(line, style=style, markup=False)


def promises(calls: Sequence[DemoCall], answer: str, expected: str) -> dict[str, bool]:
    """What the demo promises to show, and whether it happened."""
    decisions = [call.decision for call in calls]
    return {
        "one call denied": any(one.outcome == "deny" for one in decisions),
        "one call whose tool and arguments were replaced": any(
            one.allowed and one.tool_name != one.original_tool and one.tool_input != one.original_input
            for one in decisions
        ),
        "one call that went through": any(one.outcome == "continue" for one in decisions),
        "the LLM's final answer": answer == expected,
    }


def demo_record(
    answer: str,
    calls: Sequence[DemoCall],
    story: Story,
    queue: QueueStory,
    schedulers: Sequence[RunningScheduler],
    promised: dict[str, bool],
) -> dict[str, Any]:
    """Everything as one JSON object."""
    return {
        "ok": all(promised.values()),
        "promised": promised,
        "schedulers": [{"name": one.name, "pid": one.pid} for one in schedulers],
        "calls": [_call(call) for call in calls],
        "answer": answer,
        "team": team_record(story, _call),
        "queue": queue_record(queue),
    }


def _call(call: DemoCall) -> dict[str, Any]:
    decision = call.decision
    return {
        "tool": decision.original_tool,
        "arguments": decision.original_input,
        "outcome": decision.outcome,
        "why": decision.why,
        "reason": decision.reason,
        "scheduler": decision.scheduler,
        "ran_tool": decision.tool_name if decision.allowed else None,
        "ran_arguments": decision.tool_input if decision.allowed else None,
        "result": call.result,
        "decision_ms": round(decision.seconds * 1000, 3),
        "verdicts": [verdict_record(heard) for heard in call.verdicts],
    }
