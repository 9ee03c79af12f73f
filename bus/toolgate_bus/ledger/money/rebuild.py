"""Finds the spending that a record of the ledger's journal shows and that the ledger's books lack.

A journal adds up to its accounts. After a failover it may tell an entry twice, because forgotten changes are
written again: the end of a decision counts once, so do its orphan and the correction of that. Spending
that somebody accepted as lost does not count any more.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolgate_bus.ledger.money.ledger import Addition, Balance, Ending
from toolgate_bus.ledger.money.limits import BudgetDescription, is_per_task
from toolgate_bus.protocol.money import MAX_AMOUNT

REMEMBERED: Final = 100_000
"""Number of entries among which a repeated entry is found."""
TOLD_AGAIN_S: Final = 600.0
"""Maximum age, in seconds, of facts written again after a lost connection. Writers keep far younger ones
only."""
LATEST: Final = 10_000
"""Number of newest entries whose facts may be repeated, whatever the clock said when they were written."""
DAY_S: Final = 86_400
WORK_S: Final = 30 * DAY_S
"""Seconds that accounts of sessions, trees and slices are kept."""
MAX_KEPT_S: Final = 368 * DAY_S
PART: Final = "part"
_ENDS: Final = ("settle", "charge")
_ENDINGS: Final[Mapping[str, Ending]] = {
    "settle": "settled",
    "charge": "charged",
    "orphan": "orphaned",
    "release": "released",
}
_ORDER: Final[tuple[Ending, ...]] = ("settled", "charged", "released", "orphaned")
"""Ends in order: of two for one decision, the former is the later."""
_ONCE: Final = ("orphan", "release")

Entry = Mapping[str, Any]
_Place = tuple[str, int]


@dataclass(slots=True)
class SeenEntries:
    """Entries of one journal; each counts once."""

    _seen: OrderedDict[tuple[str, str], Entry] = field(default_factory=OrderedDict)
    _twice: str = ""
    """Id of the decision or event whose entry was repeated just now."""

    def take(self, entry: Entry) -> bool:
        """Remember an entry, and return whether it is new."""
        kind, id_ = str(entry.get("kind")), str(entry.get("id"))
        if kind == PART:  # a part of the entry before it
            is_new = id_ != self._twice
        elif kind in (*_ENDS, *_ONCE):
            kind = "end" if kind in _ENDS else kind
            is_new = (kind, id_) not in self._seen
            self._twice = "" if is_new else id_
        else:
            is_new = True
        if is_new:
            self._seen[kind, id_ if kind in ("end", *_ONCE) else str(entry.get("entry"))] = entry
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
        return is_new

    def since(self, at: float) -> list[Entry]:
        """Return the remembered entries that were written at this time or later."""
        return [one for one in self._seen.values() if float(one["at"]) >= at]

    def orphans(self) -> set[str]:
        """Return the decisions that were taken for lost, because nobody reported their cost."""
        return {id_ for kind, id_ in self._seen if kind == "orphan"}


@dataclass(slots=True)
class JournalSums:
    """Sums of the journal of one book."""

    book: str
    spent: dict[_Place, int] = field(default_factory=dict)
    entries: int = 0
    twice: int = 0
    last: str = "0-0"
    """Id of the entry that was read last."""
    last_at: float = 0.0
    """Time when the newest entry was written, in seconds since the epoch."""
    _seen: SeenEntries = field(default_factory=SeenEntries)

    def take(self, entry: Entry) -> None:
        """Add one entry (`journal.is_entry`). Entries of other books are skipped."""
        if entry["book"] != self.book:
            return
        self.entries += 1
        self.last = entry["entry"]
        self.last_at = max(self.last_at, float(entry["at"]))
        if not self._seen.take(entry):
            self.twice += 1
            return
        if entry.get("kind") == "accept-loss" and entry.get("lost") != "behind":
            self._forget_before(entry.get("since"))
        self._add(entry)

    def _add(self, entry: Entry) -> None:
        for key, window in entry["accounts"]:
            self.spent[key, window] = self.spent.get((key, window), 0) + int(entry["amount"])

    def _forget_before(self, began: Any) -> None:
        """Drop the spending from before this ledger began, because it was accepted as lost."""
        if isinstance(began, int | float) and began > 0:
            self.spent.clear()
            for entry in self._seen.since(float(began)):
                self._add(entry)

    def endings(self, open_: Collection[str] = ()) -> dict[str, Ending]:
        """Return the ends of decisions and events in these sums.

        Included are the latest ones, whose facts may be repeated, the orphans, and the decisions that a book
        has `open_` because it forgot their end.
        """
        since, known = self.last_at - TOLD_AGAIN_S, {*open_, *self._seen.orphans()}
        entries = self._seen.since(float("-inf"))
        found: dict[str, Ending] = {}
        for place, one in enumerate(entries, LATEST - len(entries)):
            ending, id_ = _ENDINGS.get(str(one.get("kind"))), str(one["id"])
            if ending is None or (place < 0 and float(one["at"]) < since and id_ not in known):
                continue
            if id_ not in found or _ORDER.index(ending) < _ORDER.index(found[id_]):
                found[id_] = ending
        return found

    def beyond(self, balances: Iterable[Balance], budgets: Mapping[str, BudgetDescription]) -> list[Addition]:
        """Return the additions, by account, after which the books agree with the journal."""
        books = {(one.key, one.window): one.spent for one in balances}
        return [
            Addition(
                key,
                window,
                min(spent - books.get((key, window), 0), MAX_AMOUNT),
                keep_of(key, window, budgets),
            )
            for (key, window), spent in sorted(self.spent.items())
            if spent > books.get((key, window), 0)
        ]


def keep_of(key: str, window: int, budgets: Mapping[str, BudgetDescription]) -> int:
    """Return the seconds that an untouched account is kept; 0 keeps it for ever."""
    name, _, rest = key.partition("/")
    budget = budgets.get(name)
    if window:
        return budget.window_s + 2 * DAY_S if budget is not None and budget.window_s else MAX_KEPT_S
    return WORK_S if name == "slice" or is_per_task(rest.partition("/")[0]) else 0
