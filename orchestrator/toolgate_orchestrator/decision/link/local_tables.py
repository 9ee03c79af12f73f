"""The local tables of the living schedulers, by which a gate answers for them without asking.

A table counts while every living replica of its scheduler announces it. It says `continue` only while the
heartbeats that were read still count (`lease`). It says `deny` longer: also while the bus is away.
"""

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from toolgate_bus.errors import CodecError, ToolgateError
from toolgate_bus.protocol.revision import MAX_REVISION
from toolgate_bus.ruling.conditions.matching import AnyQuestion
from toolgate_bus.ruling.local_table import MAX_TABLE, LocalAnswer, LocalTable, table_key
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport import lease
from toolgate_bus.transport.ports import Member, OrchestratorBus

from toolgate_orchestrator.decision.faults import note_fault
from toolgate_orchestrator.decision.link.scheduler_info import SchedulerInfo, newest, select_trusted

AGAIN_S: Final = 1.0
"""Seconds until a table that could not be read is read again."""
MAX_KEPT: Final = 64
"""Maximum number of tables that are kept: those in force, and those that were."""
SEEN: Final = 12
"""Number of characters of a digest in the own heartbeat."""
LOCAL: Final = " local"
"""End of the revision of an answer that a table gave."""
LocalAnswers = Mapping[str, tuple[LocalAnswer, str]]
"""Answers of local tables, each with the revision that it names, by scheduler."""
_log = get_logger("toolgate.gate")


class TableInForce(NamedTuple):
    """A table, its digest, and the revision that its answers name."""

    table: LocalTable
    digest: str
    revision: str


class LocalTables:
    """The tables that the schedulers of one bus announce."""

    def __init__(self, bus: OrchestratorBus) -> None:
        self._bus = bus
        self.in_force: Mapping[str, TableInForce] = {}
        """Tables that answer now, by scheduler."""
        self._announced: Mapping[str, tuple[str, str]] = {}
        """Digest and revision that each scheduler announces."""
        self._seen: Mapping[str, str] = {}
        """Beginning of the digest that was last seen of each scheduler; empty without a table."""
        self._read: dict[str, LocalTable] = {}
        """Tables by digest."""
        self._refused: set[str] = set()
        """Digests of tables that are not as a table must be."""
        self._reading: asyncio.Task[None] | None = None
        self._is_closed = False

    def follow(
        self, members: Sequence[Member], announced: Mapping[str, SchedulerInfo], keyed: Collection[str]
    ) -> None:
        """Take the tables that these members announce. Schedulers in `keyed` must sign."""
        told: dict[str, tuple[str, str]] = {}
        seen: dict[str, str] = {}
        for name, replicas in select_trusted(members).items():
            info, alive = announced.get(name), [one for one in replicas if not (one.gone or one.left)]
            seen[name] = "".join(sorted({one.table for one in alive}))[:SEEN]
            if info is None or info.gone or info.shadow or (name in keyed and not info.signed) or not alive:
                continue
            digests = {one.table for one in alive}
            if len(digests) == 1 and (digest := digests.pop()):
                told[name] = digest, newest(alive).revision.text
        if told != self._announced:
            self._announced = told
            self._apply()
        if seen != self._seen:
            # What was seen, and not what is in force: who has seen a table never goes back to an older one.
            self._seen = seen
            self._bus.report_tables(seen)
        if self._reading is None and self._missing() and not self._is_closed:
            self._reading = asyncio.create_task(self._read_missing(), name="toolgate-tables")

    def answer(self, names: Iterable[str], question: AnyQuestion) -> LocalAnswers:
        """Return what the tables of these schedulers answer, each with its revision. The others are asked."""
        found: dict[str, tuple[LocalAnswer, str]] = {}
        in_force, is_fresh = self.in_force, None
        for name in names:
            if (one := in_force.get(name)) is None:
                continue
            try:
                answer = one.table.answer(question)
            except Exception as error:  # noqa: BLE001 - a fault of ours: the scheduler is asked
                note_fault("table", error, name)
                continue
            if answer is None:
                continue
            if answer.verdict.action != "deny":
                if is_fresh is None:
                    is_fresh = self.is_fresh
                if not is_fresh:
                    continue
            found[name] = answer, one.revision
        return found

    def has_one(self, name: str) -> bool:
        """Return whether all replicas of a scheduler announce the same table, which was read."""
        one = self.in_force.get(name)
        return one is not None and bool(one.digest)

    @property
    def is_fresh(self) -> bool:
        """True if the heartbeats that were read still count."""
        return lease.now() - self._bus.seen_at <= lease.LEASE_S

    def close(self) -> None:
        """Read no more tables."""
        self._is_closed = True
        if self._reading is not None:
            self._reading.cancel()

    def _apply(self) -> None:
        in_force = {
            name: TableInForce(self._read[digest], digest, f"{revision[: MAX_REVISION - len(LOCAL)]}{LOCAL}")
            for name, (digest, revision) in self._announced.items()
            if digest in self._read
        }
        self.in_force = in_force

    def _missing(self) -> list[tuple[str, str]]:
        """Return schedulers and digests of the tables that are announced and not read yet."""
        return [
            (name, digest)
            for name, (digest, _) in self._announced.items()
            if digest not in self._read and digest not in self._refused
        ]

    async def _read_missing(self) -> None:
        """Read what is announced until all of it is here."""
        try:
            while missing := self._missing():
                for name, digest in missing:
                    await self._read_one(name, digest)
                self._apply()
                if self._missing():
                    await asyncio.sleep(AGAIN_S)
        finally:
            self._reading = None  # the next change of the roster begins again

    async def _read_one(self, name: str, digest: str) -> None:
        try:
            raw = await self._bus.store.get(table_key(name, digest))
        except ToolgateError:
            return  # the bus is away, or forbids it: the scheduler is asked
        if raw is None:
            return
        try:
            if len(raw) > MAX_TABLE or hashlib.sha256(raw).hexdigest() != digest:
                raise CodecError("malformed", "it is not the table that was announced")
            table = await asyncio.to_thread(LocalTable.read, raw)
        except CodecError as error:
            metrics.count(metrics.BAD_MESSAGES, name, error.reason)
            _log.warning("a local table is refused; its scheduler is asked", scheduler=name, error=str(error))
            if len(self._refused) >= MAX_KEPT:
                self._refused.clear()
            self._refused.add(digest)
            return
        if len(self._read) >= MAX_KEPT:
            announced = {kept for kept, _ in self._announced.values()}
            self._read = {kept: one for kept, one in self._read.items() if kept in announced}
        self._read[digest] = table
