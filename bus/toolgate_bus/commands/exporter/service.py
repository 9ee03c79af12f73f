"""Run an exporter: one leads and counts; others stand by, and take over when it is gone.

Only kept counts are shown. So an exporter that is killed and started again never shows less than it did
before, which Prometheus would take for a restart from zero. Counts and the positions of their facts are one
value, so an exporter that goes on from it counts no fact twice and leaves none out.
"""

import asyncio
import json
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, Final, Literal, NamedTuple

import anyio

from toolgate_bus.commands.exporter.fleet import FleetCounts
from toolgate_bus.commands.exporter.gauges import FleetGauges
from toolgate_bus.errors import BusDown, OutcomeUnknown, ToolgateError, TransportError
from toolgate_bus.facts.lease import Lease
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.facts.service import FactsService
from toolgate_bus.telemetry import definitions, metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.metrics import Collector, Gauges

LEASE_S: Final = 3.0
KEEP_EVERY_S: Final = 1.0
RENEW_EVERY_S: Final = LEASE_S / 2
"""Seconds between renewals of the lease while nothing new is counted."""
GAUGES_EVERY_S: Final = 2.0
UNASKED_GAUGES_S: Final = 6.0
"""Seconds between reads of the gauges if the page was not requested since the last read."""
LEAVING_S: Final = 5.0
AT_ONCE: Final = 500
"""Number of facts that are counted before other tasks of this process have their turn."""
MAX_BYTES: Final = 64 * 1024 * 1024
_log = get_logger("toolgate.exporter")


class ExporterCheckpoint(NamedTuple):
    """Counts (`FleetCounts.text`), and the positions up to which each writer's facts were read for them."""

    text: str
    positions: Mapping[str, str]

    def to_bytes(self) -> bytes:
        """Return the checkpoint as bytes for the store."""
        fields = {"counts": self.text, "positions": dict(self.positions)}
        return zlib.compress(json.dumps(fields).encode(), level=1)

    @classmethod
    def from_bytes(cls, raw: bytes) -> "ExporterCheckpoint":
        """Return a checkpoint from what `to_bytes` gave. Raise ValueError for anything else."""
        try:
            reader = zlib.decompressobj()
            fields = json.loads(reader.decompress(raw, MAX_BYTES))
            positions = {str(name): str(last) for name, last in fields["positions"].items()}
            FleetCounts.read(fields["counts"])
            return cls(fields["counts"], positions)
        except (zlib.error, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is not a checkpoint of an exporter: {error!r}") from None


class Exporter(FactsService):
    """One exporter of one namespace."""

    side: ClassVar[str] = "exporter"
    stands_by: ClassVar[str] = "another exporter of this namespace leads"
    _facts: FactsReader

    def __init__(
        self, facts: FactsReader, lease: Lease, gauges: FleetGauges, by_label: Sequence[str] = ()
    ) -> None:
        """Make an exporter; `by_label` as in `FleetCounts`."""
        super().__init__(facts, _log, is_command=True)
        self._lease, self._gauges, self._by_label = lease, gauges, by_label
        self._counts: FleetCounts | None = None
        """Counts so far; None while another exporter leads."""
        self._shown: str | None = None
        """Counts that were kept last, as a text."""
        self._before: ExporterCheckpoint | None = None
        """Counts when the lead was lost. They are used if the server has lost the stored counts."""
        self._of_server: list[Collector] = []
        self._kept_at = self._looked_at = float("-inf")
        self._asked = True
        """True if the page was requested since the gauges were read."""
        self._new = False
        self._warned = ""

    def page(self, accept: str) -> tuple[str, bytes]:
        """Return the page of metrics."""
        self._asked = True
        shown: list[Collector] = [
            Gauges(definitions.EXPORTER_LEADS, {(): float(self.leads)}),
            Gauges(definitions.CONNECTED, {("exporter",): float(bool(self.is_connected))}),
            *(metrics.BAD_MESSAGES, metrics.RECONNECTS, metrics.LOOP_LAG),
            *metrics.ABOUT_PROCESS,
        ]
        if self._shown is not None:
            shown += [*FleetCounts.read(self._shown).collectors(), *self._of_server]
        return metrics.exposition(accept, shown)

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
            # A long backlog outlasts the lease. Its counts belong to no position yet, so they are not kept.
            if time.monotonic() - self._lease.renewed_at >= KEEP_EVERY_S and not await self._lease.keep():
                return await self._stand_by()
        self.worked_at = time.monotonic()
        keep_every = KEEP_EVERY_S if self._new else RENEW_EVERY_S
        if self.worked_at - self._kept_at >= keep_every and not await self.keep():
            return await self._stand_by()
        if self.worked_at - self._looked_at >= (GAUGES_EVERY_S if self._asked else UNASKED_GAUGES_S):
            self._asked = False
            await self._look()
        return True

    async def keep(self) -> bool:
        """Store the counts, and renew the lease. Return False if another exporter leads."""
        counts = self._counts
        if counts is None:
            return False
        kept = self._present(counts) if self._new else None
        if not await self._lease.keep(*([] if kept is None else [("SET", "state", kept.to_bytes())])):
            return False
        if kept is not None:
            self._shown, self._new = kept.text, False
        self._kept_at = time.monotonic()
        return True

    async def leave(self) -> None:
        """Store the counts, and let another exporter lead."""
        with anyio.move_on_after(LEAVING_S, shield=True), suppress(ToolgateError):
            if await self.keep():
                await self._lease.leave()

    async def give_up(self) -> None:
        """Stop counting. The page stays as it is until this exporter or another one leads."""
        if self._counts is not None:
            self._before = self._present(self._counts)
        self._counts, self.leads = None, False
        self._facts.stand_by()

    def _present(self, counts: FleetCounts) -> ExporterCheckpoint:
        positions = self._facts.positions
        counts.forget(positions)
        return ExporterCheckpoint(counts.text(), positions)

    async def _take_the_lead(self) -> FleetCounts | None:
        leads = await self._lease.take()
        self.is_connected = True
        if not leads:
            self._shown = None
            return None
        kept = await self._read_kept()
        self._new = kept is None  # to be written down even if no fact comes
        kept = kept or self._before or ExporterCheckpoint(FleetCounts().text(), {})
        counts = FleetCounts.read(kept.text)
        counts.by_label = tuple(self._by_label)
        self._facts.resume(kept.positions, counts.numbers)
        await self._facts.rewind()
        self._counts, self._shown, self._kept_at, self.leads = counts, kept.text, float("-inf"), True
        _log.info("counts the facts of the fleet", facts=counts.facts)
        return counts

    async def _read_kept(self) -> ExporterCheckpoint | None:
        raw = await self._lease.read("state")
        try:
            return None if raw is None else ExporterCheckpoint.from_bytes(raw)
        except ValueError as error:
            _log.error("the stored counts cannot be read; counting begins anew", error=str(error))
            return None

    async def _stand_by(self) -> Literal[False]:
        _log.warning("another exporter leads now; this one stands by")
        await self.give_up()
        self._shown = None
        return False

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
