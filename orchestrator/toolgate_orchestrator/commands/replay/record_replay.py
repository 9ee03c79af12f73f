"""Asks other schedulers about the decisions of the record, one after the other.

`toolgate_bus.ruling.counterfactual` computes the outcome of a call from the new verdicts and the recorded
ones that stand. The new schedulers are told the outcome, so that they settle what they reserved.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from toolgate_bus.facts.shadow_report import normalize
from toolgate_bus.protocol.events import Decision, ToolSelecting
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.placeholders import MARK
from toolgate_bus.ruling.counterfactual import Effect, actual, apply_modify
from toolgate_bus.ruling.merge import merge
from toolgate_bus.ruling.rehearsal import Rehearsal
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.ports import override

from toolgate_orchestrator.commands.host.scheduler_processes import (
    SchedulerSpec,
    remove_namespace_on_exit,
    scheduler_processes,
)
from toolgate_orchestrator.commands.replay.comparison import (
    ComparedCall,
    ReplayComparison,
    Set,
    ToolPrices,
    build_comparison,
)
from toolgate_orchestrator.commands.replay.recorded_decisions import FollowUpFact, Record, RecordedDecision
from toolgate_orchestrator.commands.replay.rehearsed import CallEstimate, list_figures, play, split
from toolgate_orchestrator.commands.replay.side import limits_of, progress
from toolgate_orchestrator.decision.config import RedactConfig, parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.shared_clients import acquire, release
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.decision.question.redact import RedactedArguments, Redactor


class PassthroughRedactor(Redactor):
    """Redactor that hides nothing more: secrets and long values are not in the record anyway.

    A modify may keep a placeholder by the usual rules; it stands for itself.
    """

    def __init__(self) -> None:
        super().__init__(RedactConfig())
        self.truncated = False
        """True if the current question was marked as truncated in the record."""

    @override
    def is_harmless(self, tool: str, arguments: Mapping[str, Any], body: bytes, beside: int = 0) -> bool:
        return False

    @override
    def find_secrets(self, tool_input: Mapping[str, Any], tool: str) -> tuple[Sequence[str], bool]:
        out = self.redact_arguments(tool_input, None, tool)
        return out.secrets, out.uncertain

    @override
    def redact_arguments(
        self, tool_input: Mapping[str, Any], before: RedactedArguments | None = None, tool: str = ""
    ) -> RedactedArguments:
        """Return the arguments unchanged."""
        placeholders = {text: text for text in _placeholders(tool_input)}
        return RedactedArguments(dict(tool_input), placeholders, self.truncated)


def _placeholders(root: Any) -> set[str]:
    found, waiting = set[str](), [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and MARK in value:
            found.add(value)
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


@dataclass(slots=True)
class RecordReplay:
    """Asks the schedulers behind one gate, and compares."""

    gate: Gate
    redactor: PassthroughRedactor
    """Redactor of the gate."""
    names: frozenset[str]
    """Schedulers that are asked; recorded verdicts of the same names do not count."""
    alone: bool
    """True if the recorded verdicts of all other schedulers do not count either."""
    prices: ToolPrices
    calls: list[ComparedCall] = field(default_factory=list)
    reckonings: list[tuple[RecordedDecision, CallEstimate]] = field(default_factory=list)
    """Estimated outcome of each call, with the verdicts behind it."""
    unanswered: int = 0
    """Number of questions on which a scheduler gave no verdict in time."""
    invalid: int = 0
    """Number of questions on which a replacement could not be used and was set aside."""

    async def ask(self, one: RecordedDecision) -> None:
        """Put one decision before the schedulers, and compare."""
        decision = await self._decide(one.question)
        reckoning, live = await self._reckon(one, decision)
        effect, before = reckoning.judge(), actual(one.ruled)
        self._tell(one, live, effect, ran_so=effect.kind == "run" and effect.call.same(before.call))
        self.reckonings.append((one, reckoning))
        self.calls.append(self._compare(one, effect))

    def rehearse(self, rehearsals: Mapping[str, Rehearsal]) -> None:
        """Put all calls before these schedulers as well, on the times of the record."""
        timed = play(self.reckonings, rehearsals)
        self.calls = [
            replace(self._compare(one, call.effect or actual(one.ruled)), waited_after=call.waited_s)
            for (one, _), call in zip(self.reckonings, timed, strict=True)
        ]

    def _compare(self, one: RecordedDecision, effect: Effect) -> ComparedCall:
        before = actual(one.ruled)
        price = one.cost if one.cost is not None else self.prices.of(before.call.tool)
        cost_before = price if before.kind == "run" else 0
        same = effect.kind == "run" and before.kind == "run" and effect.call.same(before.call)
        after = self.prices.of(effect.call.tool) if effect.kind == "run" else 0
        where = {"decision": one.question.id, "session": one.question.session, "at": one.at}
        where |= {"id": one.question.tool_call_id}
        cost_after = cost_before if same else after
        return ComparedCall(
            where, one.ruled.original, before, effect, cost_before, cost_after, waited_before=one.waited
        )

    async def _reckon(self, one: RecordedDecision, decision: Decision) -> tuple[CallEstimate, Decision]:
        """Return the outcome of the call, and the decision behind it."""
        if decision.why == "bus_down" or _find_silent(decision):
            denied = Effect("deny", one.ruled.original, decision.scheduler, decision.reason)
            return CallEstimate(one.ruled, settled=denied), decision
        added = [normalize(heard) for heard in decision.verdicts]
        winner = merge(heard for heard in added if heard.phase == "select").winner
        own, verified = apply_modify(one.ruled.original, winner), one.ruled
        if self.alone:
            verified = replace(verified, outcome="continue", why="unasked", verdicts=(), scheduler=None)
            verified = replace(verified, final=verified.original)
        reckoning = CallEstimate(verified, tuple(added), self.names, own)
        effect = reckoning.judge()
        if effect.kind != "run" or effect.verified or effect.call.same(own):
            return reckoning, decision
        # Another scheduler's replacement: the new schedulers were only asked about the LLM's own choice.
        self._report_unused(decision)
        call = effect.call
        fields = {"tool_name": call.tool, "tool_input": call.arguments, "agent_target": call.agent}
        second = await self._decide(one.question.model_copy(update=fields))
        # Verdicts on a replacement count as verdicts of the verify phase.
        of_it = [heard._replace(phase="verify") for heard in second.verdicts if heard.phase == "select"]
        of_it += [heard for heard in second.verdicts if heard.phase == "admit"]
        added = [heard for heard in added if heard.phase != "admit"]
        return CallEstimate(verified, (*added, *of_it), self.names, call), second

    async def _decide(self, question: ToolSelecting) -> Decision:
        self.redactor.truncated = question.truncated
        at = Caller(
            question.session,
            question.agent,
            question.root_session,
            question.parent,
            question.lineage,
            question.labels,
        )
        call = Call(
            question.tool_name,
            question.tool_input,
            question.available_tools,
            at,
            question.tool_call_id,
            question.parallel_group_id,
            question.iteration,
            available_agents=question.available_agents,
            agent_target=question.agent_target,
            request=question.request,
            is_request=question.tool_name == LLM_REQUEST,
        )
        decision = await self.gate.decide(call)
        self.unanswered += bool(_find_silent(decision))
        self.invalid += any(heard.problem is not None for heard in decision.verdicts)
        return decision

    def _tell(self, one: RecordedDecision, decision: Decision, effect: Effect, *, ran_so: bool) -> None:
        """Tell the schedulers the outcome of the call, as far as it can be known."""
        if not decision.allowed:
            return
        if effect.kind != "run" or (ran_so and one.ran is None):
            self._report_unused(decision)
            return
        told = {"decision_id": decision.id, "tool": effect.call.tool, "session": one.question.session}
        self.gate.note("tool:selected", told)
        kept = ("seconds", "success", "error", "cost", "signal", "retry_after") if ran_so else ()
        ran = {name: one.ran[name] for name in kept if one.ran and name in one.ran}
        event = str(one.ran["event"]) if ran_so and one.ran else "tool:post"
        self.gate.note(event, {"success": True, **told, **ran})

    def _report_unused(self, decision: Decision) -> None:
        if decision.allowed:
            self.gate.note("tool:unused", {"decision_id": decision.id, "tool": decision.tool_name})


def _find_silent(decision: Decision) -> set[str]:
    """Return the schedulers that gave no answer; an unusable replacement is an answer."""
    return set(decision.silent) - {heard.scheduler for heard in decision.verdicts if heard.problem}


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """Schedulers to try on the record, with options."""

    bus: BusSettings
    """Bus with a namespace that was made for the trial."""
    specs: Sequence[SchedulerSpec]
    alone: bool
    patience_ms: int
    quiet: bool = False


async def compare_record(
    record: Record, trial: TrialOptions, prices: ToolPrices, subject: str, notes: Sequence[str]
) -> ReplayComparison:
    """Put every decision before the schedulers. Raise ConfigError if one cannot be started.

    They are asked in a namespace of their own. Recorded verdicts of other schedulers stand (with `--alone`,
    none do); the new verdicts replace those of the same names. Schedulers that go by the clock are rehearsed
    afterwards, on the times of the record.
    """
    began = time.monotonic()
    rehearsals, started = split(trial.specs)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(remove_namespace_on_exit(trial.bus))
        running = await stack.enter_async_context(scheduler_processes(started, trial.bus))
        limits = limits_of(running)
        names = tuple(sorted({*limits, *rehearsals}))
        client = await acquire(str(trial.bus.redis), trial.bus.namespace)
        stack.push_async_callback(release, client)
        redactor = PassthroughRedactor()
        gate = Gate(parse(_config(trial, limits, record)), client, redactor=redactor)
        rehearsal = RecordReplay(gate, redactor, frozenset(names), trial.alone, record.prices(prices))
        with progress(sum(1 for _ in record.decisions), "decisions", quiet=trial.quiet) as advance:
            for entry in record.entries:
                if isinstance(entry, FollowUpFact):
                    gate.note(entry.event, entry.fields)
                else:
                    await rehearsal.ask(entry)
                    advance()
        words = {one.name: one.words() for one in running}
    if rehearsals:
        rehearsal.rehearse(rehearsals)
    others = "" if trial.alone else ", beside what everybody else said"
    heard = (verdict for decision in record.decisions for verdict in decision.ruled.verdicts)
    before = {verdict.scheduler for verdict in heard if not verdict.shadow}
    return build_comparison(
        subject,
        time.monotonic() - began,
        Set("what was decided", tuple(sorted(before))),
        Set(f"--against{others}", names),
        rehearsal.calls,
        limits={
            **record.limits,
            "invalid": rehearsal.invalid,
            "unanswered_after": rehearsal.unanswered,
            "results_unknown": sum(one.ran is not None for one in record.decisions),
        },
        notes=(*notes, *(f"{name}: {one.left_out}" for name, one in rehearsals.items() if one.left_out)),
        words=words,
        pools=list_figures(rehearsals) if rehearsals else None,
    )


def _config(
    trial: TrialOptions, limits: Mapping[str, Mapping[str, Any]], record: Record
) -> dict[str, object]:
    trusted = {"can_modify": record.tools}
    config: dict[str, object] = {
        "redis": trial.bus.redis,
        "namespace": trial.bus.namespace,
        "required": list(limits),
        "patience_ms": trial.patience_ms,
        # Nobody answers a held call.
        "max_hold_s": trial.patience_ms / 1000,
        "schedulers": {
            name: {**limit, **(trusted if name in record.modifiers else {})} for name, limit in limits.items()
        },
    }
    return config | ({"keys": str(trial.bus.keys)} if trial.bus.keys else {})
