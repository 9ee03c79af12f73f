"""What the second act shows: who is there, each agent's calls and who ruled on them, and the stop."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text
from toolgate_bus.protocol.events import Decision, ReceivedVerdict
from toolgate_bus.telemetry.printable import visible

from toolgate_orchestrator.commands.demo.job import DemoCall
from toolgate_orchestrator.commands.demo.team import LEAD, SCENES, TEAM, TEAM_ANSWER, TEAM_PROMPT, WATCHER
from toolgate_orchestrator.commands.host.rulings import call_text, outcome_line, result_line, verdict_lines
from toolgate_orchestrator.commands.host.toolgate_command import Command

WIDTH: Final = 10
WHOLE: Final = 1
"""So many of the watcher's calls are shown with all verdicts; the next ones in a line each."""
Line = Callable[..., None]


@dataclass(frozen=True, slots=True)
class StopResult:
    """Who was seen, and how the order went."""

    looked: Command
    ordered: Command
    seconds: float
    """From the order to its end, the start of the command included."""


@dataclass(frozen=True, slots=True)
class Story:
    """What came of the second act."""

    calls: tuple[DemoCall, ...]
    """In the order in which they were ruled on; of the lead's own delegations, with what came of them."""
    answer: str
    stopped: StopResult | None
    """None: the order failed."""
    ended: str
    """How the stopped agent's turn ended, as its loop tells it."""
    report_there: bool
    """Whether the file that nobody may delete is there."""


class TeamView:
    """Prints the second act while it happens; `line` prints one line. `agents` are those from the root on."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._calls = self._shown = 0
        self._watched = 0
        self._looking = False
        self._held: Text | None = None
        self._scenes = iter(SCENES)

    def show_opening(self) -> None:
        """Who is there, and what is asked of them."""
        self._line()
        self._line("Act two: a team", style="bold")
        self._line(
            "Agents give work to agents; their LLMs are scripts, too. The same schedulers rule on the calls "
            "of all, and on who works for whom: giving work away is a tool call like any other."
        )
        self._line()
        for name, about in TEAM.items():
            self._line(f"  {name:<{WIDTH}} {about}")
        self._line()
        self._line(f"The user: {TEAM_PROMPT}")

    def on_team_decision(
        self, agents: tuple[str, ...], decision: Decision, verdicts: tuple[ReceivedVerdict, ...]
    ) -> None:
        """One call, what each scheduler said of it, what came of that."""
        self._calls += 1
        if agents[-1] == WATCHER:
            self._watched += 1
        if self._looking:
            return
        self._shown = self._calls
        if agents == (LEAD,):
            self._line()
            self._line(next(self._scenes, ""), style="bold")
        again = agents[-1] == WATCHER and self._watched > WHOLE
        self._line() if not again else None
        call = call_text(decision.original_tool, decision.original_input)
        more = " once more" if again else ""
        self._line(Text.assemble((f"{self._calls:>2}  ", "dim"), _who(agents), " chose ", call, more))
        for line in () if again else verdict_lines(verdicts, WIDTH):
            self._line(line)
        self._line(outcome_line(decision))

    def on_team_result(self, agents: tuple[str, ...], tool: str, told: Any) -> None:
        """What came back; of a delegation, the other agent's answer."""
        if agents[-1] == WATCHER and (self._looking or self._watched > WHOLE):
            return
        if agents[-1] != WATCHER and isinstance(told, dict) and ("answer" in told or "error" in told):
            words = visible(str(told.get("error") or told.get("answer")))
            self._held = Text.assemble("    ", _who(agents), f" is answered: {words}")
            if not self._looking:  # else first what the order said
                self._give_held()
            return
        self._line(result_line(told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)))

    def on_operator(self) -> None:
        """The operator begins; what the watcher does meanwhile is not shown."""
        self._looking = True
        self._line()
        self._line(f"So it would go on. While {WATCHER} works, somebody in another terminal has a look:")

    def on_agents_list(self, command: Command) -> None:
        """Who is there."""
        self._command(command)
        self._line()
        self._line("and ends it, through the bus, wherever it runs:")

    def on_stop(self, command: Command) -> None:
        """The order, and what came of it."""
        self._command(command)
        if self._calls > self._shown:
            self._line()
            self._line(f"Calls {self._shown + 1} to {self._calls} were {WATCHER}'s meanwhile, each ruled on.")
        self._give_held()

    def show_closing(self, story: Story) -> None:
        """The answer, and a summary."""
        self._give_held()
        self._line()
        self._line(Text.assemble(("The lead's answer: ", "bold"), story.answer))
        self._line()
        self._line(Text.assemble(("Summary: ", "bold"), _summary(story)))

    def _give_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._line()
            self._line(held)

    def _command(self, command: Command) -> None:
        self._line()
        self._line(Text.assemble(("     $ ", "dim"), (command.line, "bold")))
        for line in command.output.splitlines():
            self._line(f"     {visible(line)}")


def _who(agents: tuple[str, ...]) -> Text:
    return Text(" > ".join(map(visible, agents)), style="bold cyan")


def _summary(story: Story) -> str:
    calls = story.calls
    who = len({call.agents for call in calls})
    decisions = [call.decision for call in calls]
    rerouted = [one for one in decisions if _is_rerouted(one)]
    denied = [one for one in decisions if one.outcome == "deny"]
    parts = [
        f"{len(calls)} calls of {who} agents",
        *(
            f"{one.scheduler} gave {one.original_input.get('agent')}'s work to {one.agent_target}"
            for one in rerouted
        ),
        *(f"{one.scheduler} denied {one.original_tool}, as it would {LEAD}" for one in denied),
    ]
    watched = sum(call.agents[-1] == WATCHER for call in calls)
    if story.ended == "cancelled":
        parts.append(f"an operator ended {WATCHER} after {watched} calls")
    return "; ".join(parts) + "."


def _is_rerouted(decision: Decision) -> bool:
    return decision.allowed and decision.agent_target not in (None, decision.original_input.get("agent"))


def team_promises(story: Story | None) -> dict[str, bool]:
    """What the second act promises to show, and whether it happened."""
    calls: Sequence[Any] = story.calls if story else ()
    by_junior = any(call.agents == (LEAD, "junior") for call in calls)
    stopped = story.stopped if story else None
    return {
        "work that another agent got than was asked": by_junior
        and any(_is_rerouted(call.decision) and call.decision.scheduler == "router" for call in calls),
        "an agent's agent denied what the lead is denied": any(
            len(call.agents) == 3
            and call.decision.outcome == "deny"
            and f"as for {LEAD}" in str(call.decision.reason)
            for call in calls
        )
        and story is not None
        and story.report_there,
        "an agent stopped through the bus": stopped is not None
        and stopped.ordered.code == 0
        and story is not None
        and story.ended == "cancelled",
        "the lead's final answer": story is not None and story.answer == TEAM_ANSWER,
    }


def team_record(story: Story, call: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """The second act as plain values; `call` gives those of one call."""
    stopped = story.stopped
    return {
        "calls": [{"agents": list(one.agents), **call(one)} for one in story.calls],
        "stop": stopped
        and {
            "command": stopped.ordered.line,
            "code": stopped.ordered.code,
            "output": stopped.ordered.output,
            "seconds": round(stopped.seconds, 3),
            "status": story.ended,
        },
        "answer": story.answer,
    }
