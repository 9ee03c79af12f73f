"""The ledger in this process, by the pure rules, for tests of schedulers and for simulated worlds."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from toolgate_bus.ledger.money.epoch import LedgerEpoch, LedgerLoss, Why
from toolgate_bus.ledger.money.epoch_watch import EpochWatch
from toolgate_bus.ledger.money.ledger import (
    LOST,
    NO_AMOUNTS,
    Account,
    Addition,
    Balance,
    DecisionKind,
    Ending,
    Ledger,
    Offer,
    OpenReservation,
    Reservation,
    SettlementResult,
    Step,
)
from toolgate_bus.ledger.money.rules import LedgerRules
from toolgate_bus.transport.ports import override


@dataclass(slots=True)
class MemoryLedger(Ledger):
    """`Ledger` in this process, for tests of schedulers."""

    book: LedgerRules = field(default_factory=LedgerRules)
    _watch: EpochWatch | None = None

    @override
    async def reserve(
        self, decision: str, phase: int, offers: Sequence[Offer], accounts: Sequence[Account], owner: str
    ) -> Reservation:
        watch = self._watch
        if watch is None:
            return self.book.reserve(decision, phase, offers, accounts, owner, time.time())
        for _ in range(2):
            memory = watch.memory
            if not memory.is_whole and await watch.look() is not None:
                break
            trouble = self.book.epoch.check(memory.id, memory.decided, memory.confirmed, memory.writer)
            if watch.waits or trouble == "lost":
                break
            if trouble is None:
                memory.meet(self.book.epoch.begin(memory.fresh, time.time()), self.book.epoch.decided)
                with self._count() as kept:
                    answer = self.book.reserve(decision, phase, offers, accounts, owner, time.time())
                    held = [Offer(answer.name, answer.amount, amounts=answer.amounts)]
                    kept.append(partial(self._restore, decision, phase, held, accounts, owner))
                return answer
            if await watch.look() is not None:
                break
        return LOST

    @override
    async def preview(
        self, decision: str, phase: int, offers: Sequence[Offer], accounts: Sequence[Account], owner: str
    ) -> Reservation:
        if self._watch is not None and await self._watch.look() is not None:
            return LOST
        return self.book.preview(decision, phase, offers, accounts, owner, time.time())

    def _restore(
        self, decision: str, phase: int, held: Sequence[Offer], accounts: Sequence[Account], owner: str
    ) -> None:
        self.book.reserve(decision, phase, held, accounts, owner, time.time(), limited=False)

    def _end_again(self, decision: str, act: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that repeats a step, and before it the reservation that the step ends."""
        reserved = self.book.find_reservation(decision)

        def take_both() -> None:
            if reserved is not None:
                self._restore(*reserved)
            act()

        return take_both

    @override
    async def mark_executing(self, decision: str) -> None:
        self.book.mark_executing(decision)

    @override
    async def settle(
        self, decision: str, actual: int | None, costs: Mapping[str, int] = NO_AMOUNTS
    ) -> SettlementResult:
        return self._take(Step("settle", decision, actual, costs=costs))

    @override
    async def release(self, decision: str) -> None:
        with self._count() as kept:
            kept.append(lambda: self.book.release(decision, time.time()))
            self.book.release(decision, time.time())

    @override
    async def take(self, steps: Sequence[Step]) -> list[SettlementResult]:
        settled = [self._take(step) for step in steps]
        return [one for one in settled if one.outcome != "done"]

    def _take(self, step: Step) -> SettlementResult:
        with self._count() as kept:
            kept.append(self._end_again(step.decision, lambda: self.book.take(step, time.time())))
            return self.book.take(step, time.time())

    @override
    async def claim(self, decision: str, owner: str, by: str) -> bool:
        return self.book.claim(decision, owner, by)

    @override
    async def astray(self) -> dict[str, int]:
        return dict(self.book.strays)

    @override
    async def orphan(self, decision: str) -> bool:
        with self._count() as kept:
            kept.append(self._end_again(decision, lambda: self.book.orphan(decision)))
            return self.book.orphan(decision)

    @override
    async def charge(
        self, event: str, amount: int, accounts: Sequence[Account], amounts: Mapping[str, int] = NO_AMOUNTS
    ) -> bool:
        with self._count() as kept:
            kept.append(lambda: self.book.charge(event, amount, accounts, time.time(), amounts))
            return self.book.charge(event, amount, accounts, time.time(), amounts)

    @override
    async def open(self) -> list[OpenReservation]:
        return self.book.open(time.time())

    @override
    async def balances(self) -> list[Balance]:
        return self.book.balances()

    @override
    async def reset(self, key: str, by: str = "") -> int:
        return self.book.reset(key)

    # ------------------------------------------------------------------ the epoch

    @override
    async def watch(self) -> None:
        self._watch = self._watch or EpochWatch(self)
        await self._watch.begin()

    @override
    async def look(self) -> LedgerLoss | None:
        return None if self._watch is None else await self._watch.look()

    @override
    async def leave(self) -> None:
        """Do nothing, because there is no next process."""

    @override
    async def loss(self) -> LedgerLoss | None:
        return self.book.epoch.loss

    @override
    async def mark_ended(self, endings: Mapping[str, Ending]) -> None:
        self.book.mark_ended(endings, time.time())

    @override
    async def rebuild(self, additions: Sequence[Addition], newest: str) -> bool:
        for one in additions:
            self.book.add(one)
        return True

    @override
    async def decide(self, kind: DecisionKind, by: str, reason: str = "", amount: int = 0) -> bool:
        return self.book.epoch.decide(kind)

    @override
    async def sweep(self) -> None:
        """Do nothing, because there are no other writers."""

    async def read_epoch(self) -> LedgerEpoch:
        """Return the book's epoch and its numbers."""
        return self.book.epoch.tell()

    async def lose(self, epoch: str, why: Why, fresh: str, replaced: Sequence[str], by: str) -> None:
        """Implement `EpochPort.lose`."""
        self.book.epoch.lose(epoch, why, fresh, replaced, by, time.time())

    async def find(self, by: str) -> None:
        """Implement `EpochPort.find`."""
        self.book.epoch.find(by)

    async def write_again(self, steps: Sequence[Any], by: str, number: int, epoch: str) -> int:
        """Implement `EpochPort.write_again`."""
        if epoch == self.book.epoch.id:
            for step in steps:
                step()
        return self.book.epoch.declare(by, number, epoch)

    @contextmanager
    def _count(self) -> Iterator[list[Callable[[], Any]]]:
        """Count the step in the block if it changes anything. The block adds the function that repeats it."""
        kept: list[Callable[[], Any]] = []
        before, watch = self.book.changes, self._watch
        if watch is not None:
            watch.memory.meet(self.book.epoch.begin(watch.memory.fresh, time.time()), self.book.epoch.decided)
        yield kept
        if watch is not None and self.book.changes != before:
            known, writer = watch.memory.confirmed, watch.memory.writer
            watch.keep(self.book.epoch.count(writer), known, kept[0])
