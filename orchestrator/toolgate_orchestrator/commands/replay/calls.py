"""What became of each recorded call, and whether that is right.

A call is `run` as recorded, `rerouted` (another tool or other arguments), `vetoed`, or, which should
never be, `not_run`. The checks hold for any file and any loop: exactly one result for each call, in
order; what ran is what was decided; nothing runs twice; the LLM is told why a call was denied.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from amplifier_core import ToolResult
from toolgate_bus.protocol.events import Decision, Heard

from toolgate_orchestrator.commands.host.rulings import Rulings
from toolgate_orchestrator.commands.replay.playback import Playback, Source, Trace
from toolgate_orchestrator.commands.replay.recording import RecordedCall, arguments_key

__all__ = ["CallOutcome", "ReplayedCall", "call_faults", "replayed_calls"]

CallOutcome = Literal["run", "rerouted", "vetoed", "not_run"]


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """One recorded call after the replay."""

    call: RecordedCall
    outcome: CallOutcome
    ran_tool: str | None = None
    ran_arguments: dict[str, Any] | None = None
    source: Source | None = None
    """Where the result came from; None where nothing ran."""
    result: str | None = None
    """What the LLM's next request held for this call."""
    decision: Decision | None = None
    afterwards: tuple[Heard, ...] = ()
    """Verdicts that came after the decision: too late, or not needed any more since somebody denied."""

    @property
    def late(self) -> frozenset[str]:
        """Schedulers that were waited for in vain and answered after the decision."""
        silent = self.decision.silent if self.decision else ()
        return frozenset(heard.scheduler for heard in self.afterwards if heard.scheduler in silent)

    @property
    def heard(self) -> tuple[Heard, ...]:
        """Every verdict on the call, those after the decision last."""
        return (*(self.decision.verdicts if self.decision else ()), *self.afterwards)

    @property
    def ruled(self) -> bool:
        """Whether at least one scheduler, shadows apart, was heard or was owed an answer."""
        decision = self.decision
        return decision is not None and (
            bool(decision.silent) or any(not heard.shadow for heard in decision.verdicts)
        )


def replayed_calls(playback: Playback, rulings: Rulings) -> tuple[ReplayedCall, ...]:
    """One entry for every recorded call, in order, also for those the loop never made."""
    made = {trace.call.position: trace for trace in playback.traces}
    return tuple(_replayed(call, made.get(call.position), rulings) for call in playback.run.calls)


def _replayed(call: RecordedCall, trace: Trace | None, rulings: Rulings) -> ReplayedCall:
    if trace is None:
        return ReplayedCall(call, "not_run")
    decision = rulings.of_call(call.id)
    afterwards = tuple(rulings.late.get(decision.id, ())) if decision else ()
    result = trace.answers[0] if trace.answers else None
    if not trace.executions:
        outcome: CallOutcome = "vetoed" if decision is not None and not decision.allowed else "not_run"
        return ReplayedCall(call, outcome, result=result, decision=decision, afterwards=afterwards)
    ran = trace.executions[0]
    same = ran.tool == call.tool and arguments_key(ran.arguments) == arguments_key(call.arguments)
    return ReplayedCall(
        call,
        "run" if same else "rerouted",
        ran.tool,
        ran.arguments,
        ran.source,
        result,
        decision,
        afterwards,
    )


def call_faults(playback: Playback, calls: Sequence[ReplayedCall]) -> list[str]:
    """Everything that should not have happened, one line each."""
    made = {trace.call.position: trace for trace in playback.traces}
    faults = [
        f"the results of {', '.join(block)} reached the LLM out of order" for block in playback.disordered
    ]
    for one in calls:
        where = f"call {one.call.position} ({one.call.tool})"
        if (trace := made.get(one.call.position)) is None:
            faults.append(f"{where} was never made")
            continue
        if len(trace.answers) != 1:
            faults.append(f"{where} has {len(trace.answers)} results instead of one")
        if len(trace.executions) > 1:
            faults.append(f"{where} ran {len(trace.executions)} times")
        faults += [f"{where} {fault}" for fault in _faults_of(one, trace)]
    return faults


def _faults_of(one: ReplayedCall, trace: Trace) -> list[str]:
    decision, result = one.decision, one.result or ""
    if decision is not None and not decision.allowed:
        denied = [] if not trace.executions else ["ran although it was denied"]
        told = (decision.reason or "") in result
        return denied + ([] if told else ["was denied, and the LLM was not told why"])
    if not trace.executions:
        return ["did not run although nothing denied it"]
    wanted_tool = decision.tool_name if decision else one.call.tool
    wanted = decision.tool_input if decision else one.call.arguments
    ran = trace.executions[0]
    faults = []
    if ran.tool != wanted_tool or arguments_key(ran.arguments) != arguments_key(wanted):
        faults.append(f"ran as {ran.tool} with other arguments than decided")
    # The kernel's own rendering: control characters that providers refuse are taken out.
    if trace.answers and result != ToolResult(output=ran.text).get_serialized_output():
        faults.append("returned one text, and the LLM was told another")
    return faults
