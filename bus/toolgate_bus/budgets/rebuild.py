"""What a record of the ledger's journal shows to have been spent beyond what its books say.

A journal adds up to its accounts. After a failover it may tell the same twice (what was forgotten is written
again): the end of a decision counts once, so does its orphan and that one's correction. What somebody has
accepted as lost is spent no more.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolgate_bus.budgets.ledger import Addition, Balance, Ending
from toolgate_bus.budgets.limits import PER_TASK, BudgetDescription
from toolgate_bus.protocol.money import MAX_AMOUNT

REMEMBERED: Final = 100_000
"""Entries among which one that is told twice is found."""
TOLD_AGAIN_S: Final = 600.0
"""So old may facts be that are written again after a lost connection: writers keep far younger ones only."""
LATEST: Final = 10_000
"""Entries whose facts may be told again, whatever the clock said when they were written."""
DAY_S: Final = 86_400
WORK_S: Final = 30 * DAY_S
"""How long accounts of sessions, trees and slices are kept."""
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
"""Of two, the former is the later."""
_ONCE: Final = ("orphan", "release")

Entry = Mapping[str, Any]
_Place = tuple[str, int]


@dataclass(slots=True)
class SeenEntries:
    """Entries of one journal, each of which counts once."""

    _seen: OrderedDict[tuple[str, str], Entry] = field(default_factory=OrderedDict)
    _twice: str = ""
    """Whose entry was told twice just now."""

    def take(self, entry: Entry) -> bool:
        """Whether this one was not told before."""
        kind, id_ = str(entry.get("kind")), str(entry.get("id"))
        if kind == PART:  # of the entry before it
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
        """Those that are remembered and not older."""
        return [one for one in self._seen.values() if float(one["at"]) >= at]

    def orphans(self) -> set[str]:
        """Decisions of which nobody had told, when they were taken for lost."""
        return {id_ for kind, id_ in self._seen if kind == "orphan"}


@dataclass(slots=True)
class JournalSums:
    """What the journal of one book adds up to."""

    book: str
    spent: dict[_Place, int] = field(default_factory=dict)
    entries: int = 0
    twice: int = 0
    last: str = "0-0"
    """The entry that was read last."""
    last_at: float = 0.0
    """When the newest entry was written, in seconds since the epoch."""
    _seen: SeenEntries = field(default_factory=SeenEntries)

    def take(self, entry: Entry) -> None:
        """Add one entry (`journal.is_entry`); those of other books are passed over."""
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
        """What was in the ledger before this one was accepted as lost."""
        if isinstance(began, int | float) and began > 0:
            self.spent.clear()
            for entry in self._seen.since(float(began)):
                self._add(entry)

    def endings(self, open_: Collection[str] = ()) -> dict[str, Ending]:
        """What became of decisions and events in this sum: of the latest, whose facts may be told again, of
        those that were orphans, and of those that a book has `open_`, since it forgot their end.
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
        """What is to be added to the books, so that they say what the journal does; by account."""
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
    """How many seconds an account is kept that nobody touches; 0 keeps it."""
    name, _, rest = key.partition("/")
    budget = budgets.get(name)
    if window:
        return budget.window_s + 2 * DAY_S if budget is not None and budget.window_s else MAX_KEPT_S
    return WORK_S if name == "slice" or rest.partition("/")[0] in PER_TASK else 0
