"""The local tables of the living schedulers, by which a gate answers for them without asking.

A table counts while every living replica of its scheduler announces it. If replicas announce different
tables, only denials count, those of each: a replica with old rules may come back once new ones are in force.
A table says `continue` only while the heartbeats that were read still count (`lease`). It says `deny` longer:
also while the bus is away.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from toolgate_bus.errors import CodecError, ToolgateError
from toolgate_bus.protocol.revision import MAX_REVISION
from toolgate_bus.ruling.conditions.matching import AnyQuestion
from toolgate_bus.ruling.local_table import MAX_TABLE, LocalAnswer, LocalTable, table_key
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.fact_metrics import LOCAL
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport import lease
from toolgate_bus.transport.ports import Member, OrchestratorBus

from toolgate_orchestrator.decision.faults import note_fault
from toolgate_orchestrator.decision.link.scheduler_info import SchedulerInfo, newest, select_trusted

AGAIN_S: Final = 1.0
"""Seconds until a table that could not be read is read again."""
MAX_DIFFERENT: Final = 8
"""Maximum number of different tables of one scheduler's replicas. With more, it is asked."""
MAX_KEPT: Final = 64
"""Maximum number of tables that are kept: those in force, and those that were."""
SEEN: Final = 12
"""Number of characters of a digest in the own heartbeat."""
LocalAnswers = Mapping[str, tuple[LocalAnswer, str]]
"""Answers of local tables, each with the revision that it names, by scheduler."""
_log = get_logger("toolgate.gate")


class TableInForce(NamedTuple):
    """The tables that the living replicas of a scheduler announce: one as a rule."""

    tables: tuple[LocalTable, ...]
    digest: str
    """Digest of the table; empty while replicas announce different ones: then only denials count."""
    revision: str
    """Revision that its answers name."""

    def answer(self, question: AnyQuestion) -> LocalAnswer | None:
        """Return what the tables answer; None if the scheduler is asked."""
        if self.digest:
            return self.tables[0].answer(question)
        answers = (table.answer(question) for table in self.tables)
        return next((one for one in answers if one is not None and one.verdict.action == "deny"), None)


class Announcement(NamedTuple):
    """The tables that the living replicas of a scheduler announce."""

    digests: tuple[str, ...]
    is_one: bool
    """True if all of them announce the same."""
    revision: str


class LocalTables:
    """The tables that the schedulers of one bus announce."""

    def __init__(self, bus: OrchestratorBus) -> None:
        self._bus = bus
        self.in_force: Mapping[str, TableInForce] = {}
        """Tables that answer now, by scheduler."""
        self._announced: Mapping[str, Announcement] = {}
        self._seen: Mapping[str, str] = {}
        """Beginning of the digest that was last seen of each scheduler; empty without a table."""
        self._read: dict[str, LocalTable] = {}
        """Tables by digest."""
        self._refused: set[str] = set()
        """Digests of tables that are not as a table must be."""
        self._reading: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        """Set once each table that was announced has been read, or could not be read, for the first time."""
        self._tried.set()
        self._is_closed = False

    def follow(
        self, members: Sequence[Member], announced: Mapping[str, SchedulerInfo], keyed: Collection[str]
    ) -> None:
        """Take the tables that these members announce. Schedulers in `keyed` must sign."""
        told: dict[str, Announcement] = {}
        seen: dict[str, str] = {}
        for name, replicas in select_trusted(members).items():
            info, alive = announced.get(name), [one for one in replicas if not (one.gone or one.left)]
            seen[name] = "".join(sorted({one.table for one in alive}))[:SEEN]
            if info is None or info.gone or info.shadow or (name in keyed and not info.signed) or not alive:
                continue
            found = {one.table for one in alive}
            digests = tuple(sorted(found - {""}))
            if 0 < len(digests) <= MAX_DIFFERENT:
                told[name] = Announcement(digests, len(found) == 1, newest(alive).revision.text)
        if told != self._announced:
            self._announced = told
            self._apply()
        if seen != self._seen:
            # What was seen, and not what is in force: who has seen a table never goes back to an older one.
            self._seen = seen
            self._bus.report_tables(seen)
        if self._reading is None and self._missing() and not self._is_closed:
            self._tried.clear()
            self._reading = asyncio.create_task(self._read_missing(), name="toolgate-tables")

    def answer(self, names: Iterable[str], question: AnyQuestion) -> LocalAnswers:
        """Return what the tables of these schedulers answer, each with its revision. The others are asked."""
        found: dict[str, tuple[LocalAnswer, str]] = {}
        in_force, is_fresh = self.in_force, None
        for name in names:
            if (one := in_force.get(name)) is None:
                continue
            try:
                answer = one.answer(question)
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

    def may_miss(self, name: str) -> bool:
        """Return whether a scheduler need not see a call that another one denies.

        Its table denies calls of which it never hears, so it counts none. One that only says which calls
        concern it may count those.
        """
        one = self.in_force.get(name)
        return one is not None and bool(one.digest) and all(table.denies for table in one.tables)

    def denies_all(self, name: str, question: AnyQuestion) -> bool:
        """Return whether a scheduler's table denies every call of this tool by this agent."""
        one = self.in_force.get(name)
        try:
            return one is not None and any(table.denies_all(question) for table in one.tables)
        except Exception as error:  # noqa: BLE001 - a fault of ours: the tool is offered
            note_fault("table", error, name)
            return False

    async def settle(self, timeout_s: float) -> None:
        """Wait until the tables that were just announced are read, for at most this many seconds."""
        if not self._tried.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._tried.wait(), timeout_s)

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
        self.in_force = {
            name: TableInForce(
                tables,
                one.digests[0] if one.is_one else "",
                f"{one.revision[: MAX_REVISION - len(LOCAL)]}{LOCAL}",
            )
            for name, one in self._announced.items()
            if (tables := tuple(self._read[digest] for digest in one.digests if digest in self._read))
        }

    def _missing(self) -> list[tuple[str, str]]:
        """Return schedulers and digests of the tables that are announced and not read yet."""
        return [
            (name, digest)
            for name, one in self._announced.items()
            for digest in one.digests
            if digest not in self._read and digest not in self._refused
        ]

    async def _read_missing(self) -> None:
        """Read what is announced until all of it is here."""
        try:
            while missing := self._missing():
                for name, digest in missing:
                    await self._read_one(name, digest)
                self._apply()
                self._tried.set()
                if self._missing():
                    await asyncio.sleep(AGAIN_S)
        finally:
            self._tried.set()
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
            announced = {kept for one in self._announced.values() for kept in one.digests}
            self._read = {kept: one for kept, one in self._read.items() if kept in announced}
        self._read[digest] = table
