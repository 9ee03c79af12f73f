"""Run an exporter: one leads and counts; others stand by, and take over when it is gone.

    lead? ─ no ──▶ stand by: only the exporter's own metrics; asked again every half second
      │ yes
    go on from what was kept ─▶ read facts ─▶ count ─▶ keep, every second ─▶ show what was kept

Only kept counts are shown. So an exporter that is killed and started again never shows less than it did
before, which Prometheus would take for a restart from zero.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal

import anyio

from toolgate_bus.commands.exporter.checkpoint import CheckpointStore, ExporterCheckpoint
from toolgate_bus.commands.exporter.fleet import FleetCounts
from toolgate_bus.commands.exporter.gauges import FleetGauges
from toolgate_bus.errors import BusDown, ConfigError, OutcomeUnknown, ToolgateError, TransportError
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.telemetry import definitions, metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.metrics import Collector, Gauges

KEEP_EVERY_S: Final = 1.0
RENEW_EVERY_S: Final = 1.5
"""Seconds between renewals of the lease while nothing new is counted: half of the lease."""
GAUGES_EVERY_S: Final = 2.0
UNASKED_GAUGES_S: Final = 6.0
"""Seconds between reads of the gauges if the page was not requested since the last read."""
STAND_BY_S: Final = 0.5
STALE_S: Final = 10.0
"""Seconds without reading facts after which the exporter is unhealthy."""
LEAVING_S: Final = 5.0
AT_ONCE: Final = 500
"""Number of facts that are counted before other tasks of this process have their turn."""
_log = get_logger("toolgate.exporter")


class Exporter:
    """One exporter of one namespace."""

    def __init__(
        self, facts: FactsReader, store: CheckpointStore, gauges: FleetGauges, by_label: Sequence[str] = ()
    ) -> None:
        """Make an exporter; `by_label` as in `FleetCounts`."""
        self._facts, self._store, self._gauges, self._by_label = facts, store, gauges, by_label
        self._counts: FleetCounts | None = None
        """Counts so far; None while another exporter leads."""
        self._shown: str | None = None
        """Counts that were kept last, as a text."""
        self._before: ExporterCheckpoint | None = None
        """Counts when the lead was lost. They are used if the server has lost the stored counts."""
        self._of_server: list[Collector] = []
        self._kept_at = self._led_at = self._read_at = self._looked_at = float("-inf")
        self._asked = True
        """True if the page was requested since the gauges were read."""
        self._new = False
        self._connected = False
        self._warned = ""

    @property
    def leads(self) -> bool:
        """True if this exporter counts."""
        return self._counts is not None

    def health(self) -> tuple[bool, str]:
        """Return whether it reads facts, and a sentence about it."""
        if not self._connected:
            return False, "the bus cannot be reached; waiting for it"
        if not self.leads:
            return False, "stands by: another exporter of this namespace leads"
        if time.monotonic() - self._read_at >= STALE_S:
            return False, f"has read no facts for {STALE_S:g} s"
        return True, "reads facts"

    def page(self, accept: str) -> tuple[str, bytes]:
        """Return the page of metrics."""
        self._asked = True
        shown: list[Collector] = [
            Gauges(definitions.EXPORTER_LEADS, {(): float(self.leads)}),
            Gauges(definitions.CONNECTED, {("exporter",): float(self._connected)}),
            *(metrics.BAD_MESSAGES, metrics.RECONNECTS, metrics.LOOP_LAG),
            *metrics.ABOUT_PROCESS,
        ]
        if self._shown is not None:
            shown += [*FleetCounts.read(self._shown).collectors(), *self._of_server]
        return metrics.exposition(accept, shown)

    async def run(self) -> None:
        """Work until cancelled. Then store the counts, and let another exporter lead."""
        away = False
        try:
            while True:
                try:
                    if away:
                        await self._facts.give_way()
                    leads, away = await self.step(), False
                except ConfigError:
                    raise
                except TransportError as error:
                    self._on_disconnect(error)
                    leads, away = False, True
                if not leads:
                    await asyncio.sleep(STAND_BY_S)
        finally:
            with anyio.move_on_after(LEAVING_S, shield=True), suppress(ToolgateError):
                await self.leave()

    async def step(self) -> bool:
        """Read once, count, and store the counts if it is time. Return False if another exporter leads."""
        counts = self._counts or await self._take_the_lead()
        if counts is None:
            return False
        facts = await self._facts.next()
        for start in range(0, len(facts), AT_ONCE):
            for fact in facts[start : start + AT_ONCE]:
                self._new |= counts.take(fact)
            await asyncio.sleep(0)
            if time.monotonic() - self._led_at >= KEEP_EVERY_S:  # a long backlog outlasts the lease
                if not await self._store.keep():
                    return self._stand_by()
                self._led_at = time.monotonic()
        self._read_at = time.monotonic()
        keep_every = KEEP_EVERY_S if self._new else RENEW_EVERY_S
        if self._read_at - self._kept_at >= keep_every and not await self.keep():
            return self._stand_by()
        if self._read_at - self._looked_at >= (GAUGES_EVERY_S if self._asked else UNASKED_GAUGES_S):
            self._asked = False
            await self._look()
        return True

    async def keep(self) -> bool:
        """Store the counts, and renew the lease. Return False if another exporter leads."""
        counts = self._counts
        if counts is None:
            return False
        kept = self._present(counts) if self._new else None
        if not await self._store.keep(kept):
            return False
        if kept is not None:
            self._shown, self._new = kept.text, False
        self._kept_at = self._led_at = time.monotonic()
        return True

    async def leave(self) -> None:
        """Store the counts, and let another exporter lead."""
        if await self.keep():
            await self._store.leave()

    def _present(self, counts: FleetCounts) -> ExporterCheckpoint:
        positions = self._facts.positions
        counts.forget(positions)
        return ExporterCheckpoint(counts.text(), positions)

    async def _take_the_lead(self) -> FleetCounts | None:
        leads = await self._store.lead()
        self._connected = True
        if not leads:
            self._shown = None
            return None
        kept = await self._store.read()
        self._new = kept is None  # to be written down even if no fact comes
        kept = kept or self._before or ExporterCheckpoint(FleetCounts().text(), {})
        counts = FleetCounts.read(kept.text)
        counts.by_label = tuple(self._by_label)
        self._facts.resume(kept.positions, counts.numbers)
        await self._facts.rewind()
        self._counts, self._shown = counts, kept.text
        self._kept_at, self._led_at = float("-inf"), time.monotonic()
        _log.info("counts the facts of the fleet", facts=counts.facts)
        return counts

    def _stand_by(self) -> Literal[False]:
        _log.warning("another exporter leads now; this one stands by")
        self._give_up()
        self._shown = None
        return False

    def _give_up(self) -> None:
        if self._counts is not None:
            self._before = self._present(self._counts)
        self._counts = None

    def _on_disconnect(self, error: TransportError) -> None:
        if self._connected:
            metrics.count(metrics.RECONNECTS, "exporter")
            _log.warning("the bus cannot be reached; waiting for it", error=str(error))
        self._connected = False
        self._give_up()  # another may lead before this one is back; what is shown stays until then

    async def _look(self) -> None:
        try:
            self._of_server = await self._gauges.read(self._facts.positions)
            self._warned = ""
        except (BusDown, OutcomeUnknown):
            raise
        except TransportError as error:  # a command that this user may not run: the counters go on
            self._of_server = []
            if self._warned != str(error):
                self._warned = str(error)
                _log.warning("the gauges cannot be read", error=str(error))
        self._looked_at = time.monotonic()
