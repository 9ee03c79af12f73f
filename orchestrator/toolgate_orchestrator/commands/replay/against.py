"""Two sets of schedulers on the same recorded runs, side by side.

The LLM is a record and says the same whatever is ruled, so both sets may rule on the same calls in
one go. Each has a namespace, a gate and sessions of its own: what schedulers count, reserve and
learn stays theirs, and what becomes of a call is what really would.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Literal

from toolgate_bus.ruling.counterfactual import Effect, Proposed, words_of

from toolgate_orchestrator.commands.replay.calls import ReplayedCall
from toolgate_orchestrator.commands.replay.comparison import ComparedCall, Comparison, Prices, Set, compared
from toolgate_orchestrator.commands.replay.recording import Recording
from toolgate_orchestrator.commands.replay.side import Playing, Side, opened, progress

__all__ = ["compare_runs", "effect_of"]

_WAITED_FOR: dict[str, Literal["ask", "hold"]] = {"no_approver": "ask", "expired": "hold"}
"""Denials that are none yet: in a replay there is nobody to ask, and no hold is answered by hand."""


async def compare_runs(recording: Recording, before: Side, after: Side, prices: Prices) -> Comparison:
    """Play every run to both sides; raises ConfigError where a scheduler or the loop cannot be started."""
    began, calls = time.monotonic(), list[ComparedCall]()
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(opened(before, recording))
        other = await stack.enter_async_context(opened(after, recording))
        with progress(len(recording.runs)) as advance:
            for run in recording.runs:
                first, second = await asyncio.gather(one.play(run), other.play(run))
                calls += [
                    _compared(run.number, *pair, prices)
                    for pair in zip(first.calls, second.calls, strict=True)
                ]
                advance()
        words = {f"before: {name}": said for name, said in one.words().items()}
        words |= {f"after: {name}": said for name, said in other.words().items()}
    return compared(
        recording.source,
        time.monotonic() - began,
        Set(_name(one), _schedulers(one)),
        Set("--against", _schedulers(other)),
        calls,
        limits={"unanswered_before": _unanswered(one), "unanswered_after": _unanswered(other)},
        violations=[*_violations("before", one), *_violations("after", other)],
        words=words,
    )


def effect_of(one: ReplayedCall) -> Effect:
    """What became of a replayed call."""
    decision = one.decision
    scheduler, reason = (decision.scheduler, decision.reason) if decision else (None, None)
    if one.ran_tool is not None:
        return Effect("run", Proposed(one.ran_tool, one.ran_arguments), scheduler, reason)
    kind = _WAITED_FOR.get(decision.why) if decision else None
    if kind and decision:
        told = (heard for heard in decision.verdicts if heard.scheduler == scheduler)
        reason = next(filter(None, map(words_of, told)), reason)
    return Effect(kind or "deny", Proposed(one.call.tool, one.call.arguments), scheduler, reason)


def _compared(run: int, before: ReplayedCall, after: ReplayedCall, prices: Prices) -> ComparedCall:
    call = before.call
    return ComparedCall(
        {"run": run, "position": call.position, "id": call.id},
        Proposed(call.tool, call.arguments),
        effect_of(before),
        effect_of(after),
        prices.of(before.ran_tool) if before.ran_tool is not None else 0,
        prices.of(after.ran_tool) if after.ran_tool is not None else 0,
    )


def _name(playing: Playing) -> str:
    if playing.side.specs:
        return "--with"
    return "the living schedulers" if _schedulers(playing) else "no scheduler"


def _schedulers(playing: Playing) -> tuple[str, ...]:
    """Who was started, or who was heard; shadows did not rule."""
    if playing.running:
        return tuple(sorted(one.name for one in playing.running))
    calls = (call for run in playing.played for call in run.calls)
    return tuple(sorted({heard.scheduler for call in calls for heard in call.heard if not heard.shadow}))


def _unanswered(playing: Playing) -> int:
    """Calls on which somebody who was asked gave no verdict in time."""
    calls = (call for run in playing.played for call in run.calls)
    return sum(bool(call.decision and call.decision.silent) for call in calls)


def _violations(which: str, playing: Playing) -> Sequence[str]:
    return [f"{which}: run {run.run.number}: {fault}" for run in playing.played for fault in run.faults]
