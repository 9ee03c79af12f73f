"""Other schedulers on the calls of the record, compared with what was really decided.

Their questions are asked anew in a namespace of its own, never in the living one. What everybody
else said stands (`--alone`: nobody else ruled): the new verdicts take the place of those by the same
names, and `toolgate_bus.ruling.counterfactual` says what comes of them together. What became of the calls
is told to the new schedulers, so that what they reserved is settled.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from toolgate_bus.server.settings import BusSettings

from toolgate_orchestrator.commands.host.scheduler_processes import (
    SchedulerSpec,
    removed_afterwards,
    scheduler_processes,
)
from toolgate_orchestrator.commands.replay.asking_again import AskingAgain, Travelled
from toolgate_orchestrator.commands.replay.comparison import Comparison, Prices, Set, compared
from toolgate_orchestrator.commands.replay.recorded_decisions import Aftermath, Record
from toolgate_orchestrator.commands.replay.side import limits_of, progress
from toolgate_orchestrator.gate.client import acquire, release
from toolgate_orchestrator.gate.config import parse
from toolgate_orchestrator.gate.gate import Gate

__all__ = ["Trial", "compare_record"]


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
        limits = limits_of(running)
        names = tuple(sorted(limits))
        client = await acquire(str(trial.bus.redis), trial.bus.namespace)
        stack.push_async_callback(release, client)
        redactor = Travelled()
        gate = Gate(parse(_config(trial, limits, record)), client, redactor=redactor)
        asking = AskingAgain(gate, redactor, frozenset(names), trial.alone, record.prices(prices))
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
        limits={**record.limits, "invalid": asking.invalid, "unanswered_after": asking.unanswered},
        notes=notes,
        words=words,
    )


def _config(trial: Trial, limits: Mapping[str, Mapping[str, Any]], record: Record) -> dict[str, object]:
    trusted = {"can_modify": record.tools}
    config: dict[str, object] = {
        "redis": trial.bus.redis,
        "namespace": trial.bus.namespace,
        "required": list(limits),
        "patience_ms": trial.patience_ms,
        # Nobody is there to answer a hold.
        "max_hold_s": trial.patience_ms / 1000,
        "schedulers": {
            name: {**limit, **(trusted if name in record.trusted else {})} for name, limit in limits.items()
        },
    }
    return config | ({"keys": str(trial.bus.keys)} if trial.bus.keys else {})


def _recorded(record: Record) -> tuple[str, ...]:
    """Everybody who ruled in the record."""
    heard = (one for decision in record.decisions for one in decision.ruled.verdicts)
    return tuple(sorted({one.scheduler for one in heard if not one.shadow}))
