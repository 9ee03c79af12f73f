"""The ledger of a simulated world: the product's rules in one book on the server, and each replica's watch.

What `lua/ledger*.lua` do around the rules is done here in memory: the epoch is compared, changes are counted
by writer, and what is spent is written into a journal, whose archive no failover forgets. Each replica has
the product's `EpochWatch`, with a file that is as old as the product's at its end.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from simulated_server import Remote
from simulation_journal import Journal
from toolgate_bus.errors import TransportError
from toolgate_bus.ledger.money.epoch import KeptNumber, LedgerLoss
from toolgate_bus.ledger.money.epoch_watch import EpochWatch
from toolgate_bus.ledger.money.ledger import LOST, Account, Offer, Reservation, SettlementResult, Step
from toolgate_bus.ledger.money.rebuild import JournalSums
from toolgate_bus.ledger.money.rules import LedgerRules

BOOK = "budget"
Known = list[tuple[str, int]]
"""Decisions whose changes were confirmed to a writer, and how often a person had decided, as far as it knew.

What it changed before it heard of a person's decision is no part of what it watches from then on: it settles
and releases by facts, which are read again from where the ledger stands. It reserves nothing in that time.
"""


class LedgerArchive:
    """What outlasts every book of a world: its journal, and what replicas were told."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.known: dict[str, Known] = {}
        self.losses = 0
        """How often a book forgot something."""
        self.checked: dict[str, int] = {}
        """By writer: of how many losses it is known that it reserved nothing in ignorance."""
        self.decided = 0
        """How often a person ended a quarantine."""
        self.accepted = 0
        """What a person accepted as lost, in micro-units."""
        self.emptied: list[float] = []
        self.file: Any = None
        """What the last process wrote down for the next."""
        self.numbers: dict[str, tuple[KeptNumber, float]] = {}
        """How many changes each process had seen confirmed, and when."""

    def add_up(self) -> JournalSums:
        """What all books together have spent."""
        sums = JournalSums(BOOK)
        for entry in self.entries:
            sums.take(entry)
        return sums


class SimulatedFile:
    """As `EpochFile`: one for all processes."""

    def __init__(self, archive: LedgerArchive) -> None:
        self._archive = archive

    async def read(self) -> tuple[Any, list[KeptNumber]]:
        """As `EpochFile.read`."""
        now = time.monotonic()
        numbers = [one._replace(age_s=now - at) for one, at in self._archive.numbers.values()]
        return self._archive.file, numbers

    async def write(self, kept: Any) -> None:
        """As `EpochFile.write`."""
        self._archive.file = kept

    def count(self, writer: str, epoch: str, decided: int, number: int) -> None:
        """As `EpochFile.count`."""
        self._archive.numbers[writer] = (KeptNumber(writer, epoch, decided, number, 0.0), time.monotonic())

    def close(self) -> None:
        """As `EpochFile.close`."""


class SimulatedLedger:
    """The server's side: one book, looked at after every step."""

    def __init__(self, journal: Journal, archive: LedgerArchive, book: LedgerRules | None = None) -> None:
        self.journal, self.archive = journal, archive
        self.book = LedgerRules() if book is None else book

    async def open(self) -> list[Any]:
        """As `Ledger.open`."""
        return self.book.open(time.time())

    async def balances(self) -> list[Any]:
        """As `Ledger.balances`."""
        return self.book.balances()

    def reserve(
        self,
        asked: tuple[Any, ...],
        remembered: tuple[str, int],
        fresh: str,
        confirmed: int,
        writer: str,
        known: int,
    ) -> tuple[Reservation | str, int | None, str, int]:
        """The answer or why there is none, the number of the change, the epoch, and how often one decided."""
        decision, phase, _, _, owner = asked
        trouble = self.book.epoch.check(*remembered, confirmed, writer)
        if trouble is not None:
            self.journal.note(f"ledger: {trouble} for {decision[:8]}")
            return trouble, None, "", 0
        self._check_known(writer, known)
        id_ = self.book.epoch.begin(fresh, time.time())
        record = self.book.records.get(decision)
        again = record is not None and record.phase == phase
        answer, number = self.change(writer, lambda: self.book.reserve(*asked, time.time()))
        if answer.status == "reserved":
            self.journal.reserved[decision] = (owner, answer.amount, self.journal._now())
        self.journal.note(f"ledger: {answer.status} {answer.amount} for {decision[:8]} ({phase})")
        if not self.archive.losses:
            self.check()
        if again and answer.status == "reserved" and number is None:
            number = self.book.epoch.count(writer)
        return answer, number, id_, self.book.epoch.decided

    def begin(self, fresh: str) -> tuple[str, int]:
        """Its epoch, which is this one where it had none, and how often a person decided."""
        return self.book.epoch.begin(fresh, time.time()), self.book.epoch.decided

    def take(self, step: Step, writer: str) -> tuple[SettlementResult, int | None, Any]:
        """One step, the number of its change, and what was reserved."""
        self.journal.note(f"ledger: {step.what} {step.decision[:8]}")
        id_ = step.decision
        reserved = self.book.find_reservation(id_) if step.what == "settle" else None
        return *self.change(writer, lambda: self.book.take(step, time.time()), step.what, id_), reserved

    def orphan(self, decision: str, writer: str) -> tuple[bool, int | None, Any]:
        """As `Ledger.orphan`, the number of the change, and what was reserved."""
        self.journal.note(f"ledger: orphan {decision[:8]}")
        reserved = self.book.find_reservation(decision)
        return *self.change(writer, lambda: self.book.orphan(decision), "orphan", decision), reserved

    def take_all(self, steps: Sequence[Step], writer: str) -> list[tuple[SettlementResult, int | None, Any]]:
        """Several steps, each by itself."""
        return [self.take(step, writer) for step in steps]

    def write_again(self, steps: Sequence[Any], by: str, number: int, epoch: str, *, fell: bool) -> int:
        """As `EpochPort.write_again`, and whether it is known that they were forgotten."""
        self.journal.note(f"ledger: {len(steps)} changes are written again")
        if fell and not self.archive.losses:
            self.journal.fail("changes are taken for forgotten, and nothing has been")
        if epoch == self.book.epoch.id:
            for step in steps:
                self._take_again(step)
        return self.book.epoch.declare(by, number, epoch)

    def _take_again(self, step: Any) -> None:
        match step:
            case ("restore", asked):
                if asked is not None:
                    self.change("", lambda: self.book.reserve(*asked, time.time(), limited=False))
            case ("end", reserved, Step() as ending):
                self._take_again(("restore", reserved))
                self.take(ending, "")
            case ("end", reserved, decision):
                self._take_again(("restore", reserved))
                self.orphan(decision, "")

    def on_epoch(self, name: str, *args: Any) -> Any:
        """What is asked of the epoch."""
        if name != "tell":
            self.journal.note(f"ledger: {name} {args[:2]}")
        if name == "lose" and not self.archive.losses:
            self.journal.fail(f"the ledger is quarantined ({args[1]}), and has forgotten nothing")
        return getattr(self.book.epoch, name)(*args)

    def change(
        self, writer: str, act: Callable[[], Any], kind: str = "", id_: str = ""
    ) -> tuple[Any, int | None]:
        """Do this, number it for its writer where it changes anything, and tell the journal what it spent."""
        before, spent = self.book.changes, self._spent()
        found = act()
        if self.book.changes == before:
            record = self.book.records.get(id_)
            is_over = record is not None and record.state in ("settled", "released", "orphaned")
            return found, self.book.epoch.count(writer) if writer and is_over else None
        for place, amount in self._spent().items():
            if more := amount - spent.get(place, 0):
                at = time.time()
                entry = {"event": "ledger", "book": BOOK, "kind": kind, "id": id_, "amount": more, "at": at}
                number = f"0-{len(self.archive.entries)}"
                self.archive.entries.append({**entry, "accounts": [list(place)], "entry": number})
        return found, self.book.epoch.count(writer) if writer else None

    def _spent(self) -> dict[tuple[str, int], int]:
        return {place: total.spent for place, total in self.book.totals.items()}

    def decide(self, kind: str) -> None:
        """A person ends a quarantine: what the journal shows is added, or accepted as lost."""
        sums = self.archive.add_up()
        beyond = sums.beyond(self.book.balances(), {})
        missing = sum(one.amount for one in beyond)
        self.journal.note(f"a person decides: {kind}, {missing} are missing")
        if kind == "rebuild":
            opened = [one.decision for one in self.book.open(time.time())]
            self.book.mark_ended(sums.endings(opened), time.time())
            for one in sums.beyond(self.book.balances(), {}):
                self.book.add(one)
        else:
            self.archive.accepted += missing
            self.archive.entries.clear()
            for one in self.book.balances():
                entry = {"event": "ledger", "book": BOOK, "kind": "", "id": "", "amount": one.spent}
                place = {"accounts": [[one.key, one.window]], "at": time.time(), "entry": "0-0"}
                self.archive.entries.append(entry | place)
        self.book.epoch.decide(kind)
        self.archive.decided += 1

    def check(self) -> None:
        """Never more spent and reserved than there is, where every call is reserved for."""
        if not self.journal.strict:
            return
        for one in self.book.balances():
            if one.limit is not None and one.spent + one.reserved > one.limit:
                self.journal.fail(f"{one.spent} spent and {one.reserved} reserved are more than {one.limit}")

    def _check_known(self, writer: str, known: int) -> None:
        """Nobody reserves in a book that has forgotten what was confirmed to them."""
        archive = self.archive
        if archive.checked.get(writer, 0) == archive.losses:
            return
        archive.checked[writer] = archive.losses
        for decision, decided in archive.known.get(writer, [])[:known]:
            if decided == archive.decided and decision not in self.book.records:
                self.journal.fail(f"the ledger forgot {decision[:8]}, and reserves for who knows of it")

    def check_inherited(self, inherited: dict[str, int], losses: int) -> None:
        """Who looked, and found nothing missing, has all that was confirmed to who was gone when it began."""
        archive = self.archive
        if archive.losses != losses or self.book.epoch.loss is not None:
            return
        for writer, known in inherited.items():
            entries = archive.known[writer]
            if len(entries) != known:  # it goes on, and writes again what is its own
                continue
            for decision, decided in entries:
                if decided == archive.decided and decision not in self.book.records:
                    self.journal.fail(f"the ledger forgot {decision[:8]}, and who began later misses nothing")


class SimulatedLedgerClient:
    """A replica's side, as `RedisLedger`: it compares, remembers, and writes again."""

    def __init__(self, remote: Remote, archive: LedgerArchive) -> None:
        self._remote, self._archive = remote, archive
        self._watch: EpochWatch | None = None
        self._written = 0.0
        self._heard = 0
        """How often a person had decided when this one heard of it last."""
        self._heard_of: Any = None
        self._inherited: dict[str, int] = {}
        """How many changes had been confirmed to each writer when this one began."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._remote, name)

    @property
    def _writer(self) -> str:
        return self._watch.memory.writer if self._watch is not None else ""

    @property
    def _confirmed(self) -> int:
        return self._watch.memory.confirmed if self._watch is not None else 0

    async def reserve(
        self, decision: str, phase: int, offers: Sequence[Offer], accounts: Sequence[Account], owner: str
    ) -> Reservation:
        """As `RedisLedger.reserve`."""
        assert self._watch is not None
        asked = (decision, phase, offers, accounts, owner)
        for _ in range(2):
            memory, before = self._watch.memory, self._confirmed
            if self._watch.waits or (not memory.is_whole and await self.look() is not None):
                break
            known = self._archive.known.setdefault(memory.writer, [])
            with self._doubt():
                answer, number, id_, decided = await self._remote.reserve(
                    asked, (memory.id, memory.decided), memory.fresh, before, memory.writer, len(known)
                )
            if isinstance(answer, Reservation):
                memory.meet(id_, decided)
                held = [Offer(answer.name, answer.amount)]
                step = ("restore", (decision, phase, held, accounts, owner))
                self._keep(number, before, decision, step, holds=answer.status == "reserved")
                return answer
            if answer == "lost" or await self.look() is not None:
                break
        return LOST

    async def take(self, steps: Sequence[Step]) -> list[SettlementResult]:
        """As `RedisLedger.take`."""
        before, writer = await self._name(), self._writer
        with self._doubt():
            replies = await self._remote.take_all(steps, writer)
        for step, (_, number, reserved) in zip(steps, replies, strict=True):
            self._keep(number, before, step.decision, ("end", reserved, step))
        return [one for one, *_ in replies if one.outcome != "done"]

    async def orphan(self, decision: str) -> bool:
        """As `RedisLedger.orphan`."""
        before = await self._name()
        with self._doubt():
            done, number, reserved = await self._remote.orphan(decision, self._writer)
        self._keep(number, before, decision, ("end", reserved, decision))
        return bool(done)

    async def _name(self) -> int:
        """As `RedisLedger`: give a ledger that has no epoch one."""
        if self._watch is not None and not self._watch.memory.id:
            memory = self._watch.memory
            memory.meet(*await self._remote.begin(memory.fresh))
        return self._confirmed

    def _keep(self, number: int | None, before: int, decision: str, step: Any, *, holds: bool = True) -> None:
        """Remember a change; one that was denied once more holds nothing that could be forgotten."""
        if number and self._watch is not None:
            self._watch.keep(number, before, step)
            if holds:
                self._archive.known.setdefault(self._writer, []).append((decision, self._heard))

    @contextmanager
    def _doubt(self) -> Iterator[None]:
        try:
            yield
        except TransportError:
            if self._watch is not None:
                self._watch.memory.is_doubtful = True
            raise

    # ------------------------------------------------------------------ the epoch

    async def watch(self) -> None:
        """As `RedisLedger.watch`."""
        self._watch = EpochWatch(self, SimulatedFile(self._archive))
        self._inherited = {writer: len(known) for writer, known in self._archive.known.items()}
        await self._watch.begin()
        self._hear()

    async def look(self) -> LedgerLoss | None:
        """As `RedisLedger.look`."""
        if self._watch is None:
            return None
        losses = self._archive.losses
        loss = await self._watch.look()
        self._hear()
        if loss is None and losses == self._archive.losses:
            self._remote.there.check_inherited(self._inherited, self._archive.losses)
        return loss

    def _hear(self) -> None:
        assert self._watch is not None
        memory = self._watch.memory
        if self._heard_of != (memory.id, memory.decided):
            self._heard_of, self._heard = (memory.id, memory.decided), self._archive.decided

    async def leave(self) -> None:
        """What it knows is written down at each look."""

    async def sweep(self) -> None:
        """No writer stands still for so long."""

    async def read_epoch(self) -> Any:
        """As `EpochPort.read_epoch`."""
        return await self._remote.on_epoch("tell")

    async def lose(self, epoch: str, why: Any, fresh: str, replaced: Sequence[str], by: str) -> None:
        """As `EpochPort.lose`."""
        await self._remote.on_epoch("lose", epoch, why, fresh, replaced, by, time.time())

    async def find(self, by: str) -> None:
        """As `EpochPort.find`."""
        await self._remote.on_epoch("find", by)

    async def write_again(self, steps: Sequence[Any], by: str, number: int, epoch: str) -> int:
        """As `EpochPort.write_again`."""
        assert self._watch is not None
        fell = self._watch.memory.fallen is not None
        made: int = await self._remote.write_again(steps, by, number, epoch, fell=fell)
        return made
