"""Carries out `toolgate replay` once its options are checked."""

import asyncio
import secrets
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.facts.recording import RunArchive
from toolgate_bus.ruling.counterfactual import Effect, ProposedCall, words_of
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_bus.transport.redis.storage.retention import read_usage
from toolgate_bus.transport.retention import FactUsage

from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, new_namespace
from toolgate_orchestrator.commands.replay.comparison import (
    ComparedCall,
    ReplayComparison,
    Set,
    ToolPrices,
    build_comparison,
)
from toolgate_orchestrator.commands.replay.record_replay import TrialOptions, compare_record
from toolgate_orchestrator.commands.replay.recorded_decisions import read_record
from toolgate_orchestrator.commands.replay.report import Report, report_on
from toolgate_orchestrator.commands.replay.result_comparison import ComparedResult, compare_results
from toolgate_orchestrator.commands.replay.session import ReplayedCall, check_loop
from toolgate_orchestrator.commands.replay.side import RunningSide, Side, open_side, progress
from toolgate_orchestrator.commands.replay.with_schedulers import prices_of, targets_of

_WAITED_FOR: dict[str, Literal["ask", "hold"]] = {"no_approver": "ask", "expired": "hold"}
"""Denials that only stand for waiting: in a replay no person is asked, and no hold is answered by hand."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Values of the command's options."""

    loop: str
    before: Sequence[SchedulerSpec]
    """Schedulers of --with."""
    after: Sequence[SchedulerSpec]
    """Schedulers of --against."""
    tools: Sequence[str]
    patience_ms: int
    limit: int | None
    in_own_namespace: bool
    """True if --with has a namespace of its own, apart from the living schedulers."""
    alone: bool = False
    since_s: int = 0
    quiet: bool = False


async def play_runs(recording: RunArchive, asked: ReplayRequest, bus: BusSettings) -> Report:
    """Play all runs to one set. Raise ConfigError if a scheduler or the loop cannot be started."""
    check_loop(asked.loop)
    tag = await _tag(asked, recording, bus)
    # In a namespace of their own, nobody answers the calls that schedulers hold.
    hold_s = asked.patience_ms / 1000 if asked.in_own_namespace else None
    async with open_side(_side(asked, bus, tag, hold_s), recording) as playing:
        began = time.monotonic()
        with progress(len(recording.runs), quiet=asked.quiet) as advance:
            for run in recording.runs:
                await playing.play(run)
                advance()
        seconds = time.monotonic() - began
        return report_on(recording.source, asked.loop, seconds, playing.played, playing.words())


async def against_runs(recording: RunArchive, asked: ReplayRequest, bus: BusSettings) -> ReplayComparison:
    """Play all runs to two sets. Raise ConfigError if a scheduler or the loop cannot be started."""
    check_loop(asked.loop)
    hold_s = asked.patience_ms / 1000  # nobody answers held calls
    tag = await _tag(asked, recording, bus)
    before = _side(asked, bus, tag, hold_s)
    after = replace(before, bus=_apart(bus), specs=asked.after, own_namespace=True)
    prices = prices_of([*asked.before, *asked.after])
    return await compare_runs(recording, before, after, prices, quiet=asked.quiet)


async def against_record(asked: ReplayRequest, bus: BusSettings) -> ReplayComparison:
    """Put the decisions of the record before a set. Raise ConfigError or TransportError."""
    async with aclosing(RedisCommands(str(bus.redis), "toolgate-replay", connections=1)) as commands:
        facts, reach_s = await FactsReader(commands, bus.namespace).since(asked.since_s)
        usage = await read_usage(commands, bus.namespace)
    record = read_record(facts, asked.limit)
    trial = TrialOptions(_apart(bus), asked.after, asked.alone, asked.patience_ms, asked.quiet)
    subject = f"the record of the last {_length(min(asked.since_s, reach_s))}"
    notes = []
    kept_s = (usage or FactUsage()).kept.seconds
    if asked.since_s > kept_s:
        notes.append(
            f"--since asks for {_length(asked.since_s)}; the record keeps {_length(kept_s)}, "
            f"and goes back {_length(reach_s)}. `toolgate decisions --follow --json` into a file keeps more."
        )
    if not any(True for _ in record.decisions):
        notes.append(f"There are no decisions in namespace {bus.namespace} to compare with.")
    return await compare_record(record, trial, prices_of(asked.after), subject, notes)


def _apart(bus: BusSettings) -> BusSettings:
    """Return the same server with a new namespace of its own."""
    return replace(bus, namespace=new_namespace())


def _side(asked: ReplayRequest, bus: BusSettings, tag: str, hold_s: float | None) -> Side:
    return Side(
        _apart(bus) if asked.in_own_namespace else bus,
        asked.before,
        own_namespace=asked.in_own_namespace,
        loop=asked.loop,
        # Tools beside those of the file: the same for both sets.
        also=tuple(dict.fromkeys((*targets_of([*asked.before, *asked.after]), *asked.tools))),
        patience_ms=asked.patience_ms,
        hold_s=hold_s,
        tag=tag,
    )


async def _tag(asked: ReplayRequest, recording: RunArchive, bus: BusSettings) -> str:
    """Return the suffix of the session ids.

    It is the same on each side and each time, so that rules by session see the same. If living schedulers,
    which remember sessions, rule, each replay has another one.
    """
    if not asked.in_own_namespace:
        async with aclosing(RedisCommands(str(bus.redis), "toolgate-replay", connections=1)) as commands:
            living = (await Roster(commands, bus.namespace).read()).members
        if living:
            return secrets.token_hex(4)
    return sha256(Path(recording.source).name.encode()).hexdigest()[:8]


def _length(seconds: float) -> str:
    """Return a length of time in words."""
    for unit, name in ((86_400, "days"), (3600, "hours"), (60, "min")):
        if seconds >= 2 * unit or (seconds >= unit and unit == 3600 and seconds % unit):
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"


async def compare_runs(
    recording: RunArchive, before: Side, after: Side, prices: ToolPrices, *, quiet: bool = False
) -> ReplayComparison:
    """Play every run to both sides at the same time. Raise ConfigError if one cannot be started.

    The recorded LLM says the same whatever the rulings. Each side has its own namespace, gate and sessions,
    so that what schedulers count, reserve and learn stays apart.
    """
    began, calls = time.monotonic(), list[ComparedCall]()
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(open_side(before, recording))
        other = await stack.enter_async_context(open_side(after, recording))
        with progress(len(recording.runs), quiet=quiet) as advance:
            for run in recording.runs:
                first, second = await asyncio.gather(one.play(run), other.play(run))
                calls += [
                    _compare_call(run.number, *pair, prices)
                    for pair in zip(first.calls, second.calls, strict=True)
                ]
                advance()
        sides = (("before", one), ("after", other))
        words = {f"{which}: {name}": said for which, side in sides for name, said in side.words().items()}
    living = "the living schedulers" if _schedulers(one) else "no scheduler"
    return build_comparison(
        recording.source,
        time.monotonic() - began,
        Set("--with" if one.side.specs else living, _schedulers(one)),
        Set("--against", _schedulers(other)),
        calls,
        # Calls on which a scheduler that was asked gave no verdict in time.
        limits={
            f"unanswered_{which}": sum(
                bool(call.decision and call.decision.silent) for run in side.played for call in run.calls
            )
            for which, side in sides
        },
        violations=[
            f"{which}: run {run.run.number}: {fault}"
            for which, side in sides
            for run in side.played
            for fault in run.faults
        ],
        words=words,
    )


def effect_of(one: ReplayedCall) -> Effect:
    """Return the outcome of a replayed call."""
    decision = one.decision
    scheduler, reason = (decision.scheduler, decision.reason) if decision else (None, None)
    if one.ran_tool is not None:
        return Effect("run", ProposedCall(one.ran_tool, one.ran_arguments), scheduler, reason)
    kind = _WAITED_FOR.get(decision.why) if decision else None
    if kind and decision:
        told = (heard for heard in decision.verdicts if heard.scheduler == scheduler)
        reason = next(filter(None, map(words_of, told)), reason)
    return Effect(kind or "deny", ProposedCall(one.call.tool, one.call.arguments), scheduler, reason)


def _compare_call(run: int, before: ReplayedCall, after: ReplayedCall, prices: ToolPrices) -> ComparedCall:
    call = before.call
    return ComparedCall(
        {"run": run, "position": call.position, "id": call.id},
        ProposedCall(call.tool, call.arguments),
        effect_of(before),
        effect_of(after),
        prices.of(before.ran_tool) if before.ran_tool is not None else 0,
        prices.of(after.ran_tool) if after.ran_tool is not None else 0,
        result=_compare_result(before, after),
    )


def _compare_result(before: ReplayedCall, after: ReplayedCall) -> ComparedResult | None:
    """Return what became of the result on each side; None if not the same call ran on both."""
    one, other = effect_of(before), effect_of(after)
    if one.kind != "run" or other.kind != "run" or not one.call.same(other.call):
        return None
    return compare_results(before.given, after.given, is_same_text=before.result == after.result)


def _schedulers(playing: RunningSide) -> tuple[str, ...]:
    """Return the schedulers that were started, or else those that gave verdicts, without shadows."""
    if playing.running:
        return tuple(sorted(one.name for one in playing.running))
    calls = (call for run in playing.played for call in run.calls)
    return tuple(
        sorted({heard.scheduler for call in calls for heard in call.all_verdicts if not heard.shadow})
    )
