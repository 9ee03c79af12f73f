"""Other schedulers on the calls of the record, compared with what was really decided.

Their questions are asked anew in a namespace of its own, never in the living one. What everybody
else said stands (`--alone`: nobody else ruled): the new verdicts take the place of those by the same
names, and `toolgate_bus.what_if` says what comes of them together. What became of the calls is told
to the new schedulers, so that what they reserved is settled.
"""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from toolgate_bus.disagreements import comparable
from toolgate_bus.events import Decision, Heard, ToolSelecting
from toolgate_bus.merge import merge
from toolgate_bus.settings import BusSettings
from toolgate_bus.what_if import Effect, Proposed, actual, proposed, reruled

from toolgate_orchestrator.gate.client import acquire, release
from toolgate_orchestrator.gate.config import parse
from toolgate_orchestrator.gate.gate import Gate
from toolgate_orchestrator.host.own_namespace import removed_afterwards
from toolgate_orchestrator.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.replay.comparison import ComparedCall, Comparison, Prices, Set, compared
from toolgate_orchestrator.replay.progress import progress
from toolgate_orchestrator.replay.recorded_decisions import Aftermath, Record, RecordedDecision
from toolgate_orchestrator.replay.travelled import Travelled

__all__ = ["Trial", "compare_record"]

_NOBODY_ANSWERED = frozenset(("silent", "bus_down"))


@dataclass(frozen=True, slots=True)
class Trial:
    """Which schedulers are tried on the record, and how."""

    bus: BusSettings
    """With a namespace that was made for this."""
    specs: Sequence[SchedulerSpec]
    alone: bool
    patience_ms: int


async def compare_record(
    record: Record, trial: Trial, prices: Prices, subject: str, notes: Sequence[str]
) -> Comparison:
    """Put every decision before the schedulers; raises ConfigError where one cannot be started."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(removed_afterwards(trial.bus))
        running = await stack.enter_async_context(scheduler_processes(trial.specs, trial.bus))
        names = tuple(sorted(one.name for one in running))
        client = await acquire(str(trial.bus.redis), trial.bus.namespace)
        stack.push_async_callback(release, client)
        redactor = Travelled()
        gate = Gate(parse(_config(trial, names)), client, redactor=redactor)
        asking = _Asking(gate, redactor, frozenset(names), trial.alone, record.prices(prices))
        with progress(sum(1 for _ in record.decisions), "decisions") as advance:
            for entry in record.entries:
                if isinstance(entry, Aftermath):
                    gate.note(entry.event, entry.fields)
                else:
                    await asking.ask(entry)
                    advance()
        words = {one.name: one.words() for one in running}
    others = "" if trial.alone else ", beside what everybody else said"
    return compared(
        subject,
        time.monotonic() - began,
        Set("what was decided", _recorded(record)),
        Set(f"--against{others}", names),
        asking.calls,
        limits={**record.limits, "unanswered_after": asking.unanswered},
        notes=notes,
        words=words,
    )


@dataclass(slots=True)
class _Asking:
    """Asks about one decision after the other."""

    gate: Gate
    redactor: Travelled
    names: frozenset[str]
    alone: bool
    prices: Prices
    calls: list[ComparedCall] = field(default_factory=list)
    unanswered: int = 0

    async def ask(self, one: RecordedDecision) -> None:
        """Put one decision before the schedulers, and compare."""
        decision = await self._decide(one.question)
        self.unanswered += bool(decision.silent)
        effect, live = await self._effect(one, decision)
        before = actual(one.ruled)
        self._tell(one, live, effect, ran_so=effect.kind == "run" and effect.call.same(before.call))
        self.calls.append(self._compared(one, before, effect))

    async def _effect(self, one: RecordedDecision, decision: Decision) -> tuple[Effect, Decision]:
        """What comes of the call, and the decision that stands for it."""
        if decision.outcome == "deny" and decision.why in _NOBODY_ANSWERED:
            return Effect("deny", one.ruled.original, decision.scheduler, decision.reason), decision
        added = [comparable(heard) for heard in decision.verdicts]
        winner = merge(heard for heard in added if heard.phase == "select").winner
        own, verified = proposed(one.ruled.original, winner), one.ruled
        if self.alone:
            verified = replace(verified, outcome="continue", why="unasked", verdicts=(), scheduler=None)
            verified = replace(verified, final=verified.original)
        effect = reruled(verified, added, without=self.names, verified=own)
        if effect.kind != "run" or effect.verified or effect.call.same(own):
            return effect, decision
        # Somebody else's replacement: these have only been asked about the LLM's own choice.
        self._unused(decision)
        question = _about(one.question, effect.call)
        second = await self._decide(question)
        self.unanswered += bool(second.silent)
        of_it = [_in_verify(heard) for heard in second.verdicts if heard.phase == "select"]
        return reruled(verified, [*added, *of_it], without=self.names, verified=effect.call), second

    async def _decide(self, question: ToolSelecting) -> Decision:
        self.redactor.truncated = question.truncated
        return await self.gate.decide(
            question.tool_name,
            question.tool_input,
            question.available_tools,
            labels=question.labels,
            agent=question.agent,
            session=question.session,
            root_session=question.root_session,
            parent=question.parent,
            tool_call_id=question.tool_call_id,
            iteration=question.iteration,
            parallel_group_id=question.parallel_group_id,
            available_agents=question.available_agents,
            agent_target=question.agent_target,
        )

    def _tell(self, one: RecordedDecision, decision: Decision, effect: Effect, *, ran_so: bool) -> None:
        """Tell the schedulers what became of the call, as far as anybody can know."""
        if not decision.allowed:
            return
        if effect.kind != "run" or (ran_so and one.ran is None):
            self._unused(decision)
            return
        told = {"decision_id": decision.id, "tool": effect.call.tool, "session": one.question.session}
        self.gate.note("tool:selected", told)
        kept = ("seconds", "success", "error", "cost") if ran_so else ()
        ran = {name: one.ran[name] for name in kept if one.ran and name in one.ran}
        event = str(one.ran["event"]) if ran_so and one.ran else "tool:post"
        self.gate.note(event, {"success": True, **told, **ran})

    def _unused(self, decision: Decision) -> None:
        if decision.allowed:
            self.gate.note("tool:unused", {"decision_id": decision.id, "tool": decision.tool_name})

    def _compared(self, one: RecordedDecision, before: Effect, after: Effect) -> ComparedCall:
        price = one.cost if one.cost is not None else self.prices.of(before.call.tool)
        cost_before = price if before.kind == "run" else 0
        same = after.kind == "run" and before.kind == "run" and after.call.same(before.call)
        cost_after = cost_before if same else self.prices.of(after.call.tool) if after.kind == "run" else 0
        question = one.question
        where = {"decision": question.id, "session": question.session, "at": one.at}
        where |= {"id": question.tool_call_id}
        return ComparedCall(where, one.ruled.original, before, after, cost_before, cost_after)


def _about(question: ToolSelecting, call: Proposed) -> ToolSelecting:
    fields = {"tool_name": call.tool, "tool_input": call.arguments, "agent_target": call.agent}
    return question.model_copy(update=fields)


def _in_verify(heard: Heard) -> Heard:
    """What was said of a replacement: it counts as in the verify phase, where no modify does."""
    return heard._replace(phase="verify")


def _config(trial: Trial, names: Sequence[str]) -> dict[str, object]:
    config: dict[str, object] = {
        "redis": trial.bus.redis,
        "namespace": trial.bus.namespace,
        "required": names,
        "patience_ms": trial.patience_ms,
        # Nobody is there to answer a hold.
        "max_hold_s": trial.patience_ms / 1000,
    }
    return config | ({"keys": str(trial.bus.keys)} if trial.bus.keys else {})


def _recorded(record: Record) -> tuple[str, ...]:
    """Everybody who ruled in the record."""
    heard = (one for decision in record.decisions for one in decision.ruled.verdicts)
    return tuple(sorted({one.scheduler for one in heard if not one.shadow}))
