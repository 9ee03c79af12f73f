"""The rules of a ledger's epoch, as a pure value: the same as `lua/ledger_epoch.lua` does on a server."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from toolgate_bus.ledger.money.epoch import LedgerEpoch, LedgerLoss, Why


@dataclass(slots=True)
class EpochRules:
    """The epoch of one ledger."""

    id: str = ""
    since: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    loss: LedgerLoss | None = None
    lost_by: str = ""
    replaced: set[str] = field(default_factory=set)
    decided: int = 0

    def check(
        self, remembered: str, decided: int, confirmed: int, writer: str
    ) -> Literal["lost", "another", "behind"] | None:
        """Return the reason why a replica with this memory may not reserve; None if it may."""
        if self.loss is not None:
            return "lost"
        if remembered and (remembered != self.id or decided < self.decided):
            return "another"
        return "behind" if self.counts.get(writer, 0) < confirmed else None

    def begin(self, fresh: str, now: float) -> str:
        """Return the ledger's epoch. A ledger without one gets `fresh`."""
        if not self.id:
            self.id, self.since = fresh, now
        return self.id

    def count(self, writer: str) -> int:
        """Count one more change of this writer, and return the new number."""
        self.counts[writer] = self.counts.get(writer, 0) + 1
        return self.counts[writer]

    def tell(self) -> LedgerEpoch:
        """Return everything that the ledger knows of its epoch."""
        counts, replaced = dict(self.counts), frozenset(self.replaced)
        return LedgerEpoch(self.id, self.since, counts, self.loss, self.lost_by, replaced, self.decided)

    def lose(self, epoch: str, why: Why, fresh: str, replaced: Sequence[str], by: str, now: float) -> None:
        """Implement `EpochPort.lose`."""
        if why != "behind" and (self.id == epoch or epoch in self.replaced):
            return
        self.begin(fresh, now)
        if why != "behind":
            self.replaced.update((epoch, *replaced))
        if self.loss is None:
            self.loss, self.lost_by = LedgerLoss(why, now), by

    def find(self, by: str) -> None:
        """Implement `EpochPort.find`."""
        if self.loss is not None and self.loss.why == "behind" and self.lost_by == by:
            self.loss = None

    def declare(self, by: str, number: int, epoch: str) -> int:
        """Implement `EpochPort.write_again`, for the case that everything is written."""
        if epoch != self.id:
            return 0
        self.counts[by] = max(self.counts.get(by, 0), number) + 1
        return self.counts[by]

    def decide(self, kind: str) -> bool:
        """Implement `Ledger.decide`."""
        if self.loss is None and kind == "accept-loss":
            return False
        self.loss, self.decided = None, self.decided + 1
        return True
