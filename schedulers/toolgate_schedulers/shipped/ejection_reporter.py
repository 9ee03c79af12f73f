"""Report the ejections of a scheduler: in its log, its metrics, and as notes for reports and the console.

    outcomes ─▶ changes ─▶ log and metrics
                        └▶ notes, written to the store within a second

Each replica follows the same facts and makes the same notes. A note that another replica overwrote is written
again, as each replica looks for its own until they have stood there for a while. The notes are no part of any
ruling: if the store fails, they are late.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from toolgate_bus.state.ejections import BACK, MAX_NOTES, EjectionNote, write_notes
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.tasks import keep, repeat

from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.score.outcomes import Outcomes

LOOK_S: Final = 1.0
"""Seconds between two looks for notes that the store lacks."""
SETTLED_S: Final = 10.0
"""Seconds after which a note that was found in the store is not looked for again."""
_log = get_logger("toolgate.score")


class EjectionReporter:
    """Reporter of one replica. A shadow's ejections change no call, and are not reported."""

    def __init__(self, context: SchedulerContext, clock: Callable[[], float] = time.time) -> None:
        """Report for the scheduler of this context; `clock` tells seconds since the epoch."""
        self._context, self._clock = context, clock
        self._notes: deque[EjectionNote] = deque(maxlen=MAX_NOTES)
        self._shown: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write notes."""
        self._task = asyncio.create_task(keep(repeat, self.write, LOOK_S))

    async def stop(self) -> None:
        """End. Nothing is shown as ejected any longer: nobody of this process leaves anything alone now."""
        self.forget()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def forget(self) -> None:
        """Show nothing as ejected: what is remembered of calls begins anew."""
        for of in self._shown:
            metrics.set_ejected(self._context.name, of, False)
        self._shown.clear()

    def take(self, every: Iterable[Outcomes]) -> None:
        """Take the changes and the explored calls out of these outcomes, and report them."""
        for outcomes in every:
            while outcomes.explorer.calls:
                of = outcomes.explorer.calls.popleft()
                if not self._context.shadow:
                    metrics.count(metrics.EXPLORED, self._context.name, of)
            while outcomes.changes:
                of, why, words, seconds = outcomes.changes.popleft()
                if self._context.shadow:
                    continue
                name, is_back = self._context.name, why == BACK
                metrics.set_ejected(name, of, not is_back)
                if is_back:
                    self._shown.discard(of)
                    _log.info("gets calls again", of=of, why=words)
                else:
                    self._shown.add(of)
                    metrics.count(metrics.EJECTIONS, name, of, why)
                    told = {"of": of, "why": words, "seconds": round(seconds, 1)}
                    _log.warning("fails too often, and gets no calls for a while", **told)
                self._notes.append(EjectionNote(self._clock(), name, of, why, words, float(seconds)))

    async def write(self) -> None:
        """Write the notes that the store lacks; raise TransportError."""
        notes = list(self._notes)
        if notes and await write_notes(self._context.shared.store, notes):
            settled = self._clock() - SETTLED_S
            while self._notes and self._notes[0].at < settled:
                self._notes.popleft()
