"""The ledger's epoch: the identity of a ledger, its numbers of changes, and a replica's memory of both.

    the ledger      id (chance, at its first change) · number of changes of each writer · why it is lost
    each replica    the id · number of own confirmed changes, and the newest of them · others' numbers

    no id, or another  ─▶ lost: emptied, restarted without its data, another server: waits for a person
    own number lower   ─▶ a failover forgot writes: written again, in their order, and nothing is lost
    an outcome unknown ─▶ it may count in the place of a forgotten change: the newest are written again
    another's lower    ─▶ wait: a living replica writes its own again; else lost, as a person has to know
    decided            ─▶ somebody accepted the loss, or rebuilt the books: remembered as it is now

Pure.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Literal, NamedTuple

KEPT_S: Final = 30.0
"""Seconds for which own changes are kept, so that they can be written again."""
MAX_KEPT: Final = 10_000
DOUBT_S: Final = 10.0
"""Seconds before the newest own change. After an unknown outcome, all changes in them are written again.
Replicas are never further behind than this."""
GRACE_S: Final = 5.0
"""Seconds that another replica has to write again the changes that the ledger forgot."""
IDLE_S: Final = 300.0
"""Seconds without a change; after twice as long the ledger may drop a writer's number."""
MAX_REPLACED: Final = 16
MAX_CONFIRMED: Final = 2**63
NEVER: Final = float("-inf")
ANY: Final = "*"
"""Epoch that a caller gives to the ledger's scripts to skip the check for a loss."""
LOST: Final = ("missing", "another", "behind")

Why = Literal["missing", "another", "behind"]
WHY: Final[Mapping[Why, str]] = {
    "missing": "it was emptied or restarted without its data, or the address names an empty server",
    "another": "it is another one than its schedulers know",
    "behind": "it forgot changes that it had confirmed, of a replica that is gone",
}
"""Explanation of each loss, for people."""
Judgement = Literal["fine", "adopt", "rewrite", "wait", "find", "missing", "another", "behind", "lost"]


class LedgerLoss(NamedTuple):
    """A loss of data: the ledger waits for a person to decide."""

    why: Why
    """`missing`: it is empty. `another`: it is not the same. `behind`: it forgot its newest changes."""
    since: float
    """Time when the loss was noticed, in seconds since the epoch; 0 if unknown."""


class LedgerEpoch(NamedTuple):
    """Identity and counts that a ledger keeps about itself."""

    id: str = ""
    """Name of the epoch; empty until somebody changes anything in the ledger."""
    since: float = 0.0
    """Start of the epoch, in seconds since the epoch of Unix."""
    counts: Mapping[str, int] = {}
    """Number of changes by each writer."""
    loss: LedgerLoss | None = None
    lost_by: str = ""
    """Writer that noticed the loss."""
    replaced: frozenset[str] = frozenset()
    """Epochs that this one replaces."""
    decided: int = 0
    """Number of times that a person ended a quarantine."""


class KeptChange(NamedTuple):
    """A replica's own change that the ledger confirmed."""

    number: int
    at: float
    step: Any
    """Change to write again if the ledger forgets it."""


class KeptNumber(NamedTuple):
    """Number of own changes that a process saw confirmed. The process may have ended since."""

    writer: str
    epoch: str
    decided: int
    number: int
    age_s: float
    """Seconds since the number changed."""


@dataclass(slots=True)
class EpochMemory:
    """Everything that one replica remembers of a ledger."""

    writer: str
    fresh: str
    """Epoch to give to a ledger that has none."""
    id: str = ""
    replaced: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    """Other writers' numbers of changes, as last seen."""
    moved: dict[str, float] = field(default_factory=dict)
    """Time when each of these numbers was last seen to change; `NEVER` if it was there at the first look."""
    decided: int = 0
    confirmed: int = 0
    """Number of own changes that were confirmed: the highest number, and 1 for each change after a fall."""
    kept: deque[KeptChange] = field(default_factory=deque)
    numbers: set[int] = field(default_factory=set)
    """Numbers of the kept changes. A server gives each number once."""
    dropped: int = 0
    """Highest number of an own change that is not kept any more."""
    fallen: int | None = None
    """Number of own changes that the ledger has, if fewer than were confirmed; None otherwise."""
    is_doubtful: bool = False
    """True if the ledger may have made a change unconfirmed. Its number may hide a lost change."""
    waits_since: float | None = None
    """Time since when another writer's number is too low."""
    last: float = 0.0
    """Time when the last own change was confirmed."""
    others: list[KeptNumber] = field(default_factory=list)
    """Numbers that earlier processes kept of other ledgers at this address; empty after the first look."""

    def meet(self, id_: str, decided: int) -> None:
        """Remember the epoch that a ledger told, and its number of decisions. Only the first one counts."""
        if not self.id:
            self.id, self.decided = id_, decided

    def keep(self, number: int, known: int, step: Any, now: float) -> None:
        """Remember an own change that the ledger confirmed under this number.

        `known` is the number of own changes that were confirmed when it was sent.
        """
        if number <= known and now - self.last > IDLE_S:
            self._begin_anew()
        elif number <= known or number in self.numbers:
            # (a number twice: the change was sent before another was confirmed, which the ledger forgot)
            self.fallen = number - 1 if self.fallen is None else min(self.fallen, number - 1)
        # A change after a fall gets the number of a forgotten change, and must not stand in for it.
        self.confirmed, self.last = max(self.confirmed + (self.fallen is not None), number), now
        self.numbers.add(number)
        self._append(KeptChange(number, now, step))

    def _append(self, change: KeptChange) -> None:
        kept = self.kept
        kept.append(change)
        while kept and (kept[0].at < change.at - KEPT_S or len(kept) > MAX_KEPT):
            oldest = kept.popleft().number
            self.dropped = max(self.dropped, oldest)
            self.numbers.discard(oldest)

    def judge(self, seen: LedgerEpoch, now: float, known: int = MAX_CONFIRMED) -> Judgement:
        """Return the action that the ledger's answer asks for, and remember the other writers' numbers.

        `known` is the number of own changes confirmed when the ledger was asked. Its answer may lack changes
        that were confirmed since, over another connection.
        """
        self._choose_epoch(seen, now)
        if self.id and seen.id != self.id and self.id not in seen.replaced:
            return "another" if seen.id else "missing"
        if seen.id != self.id or seen.decided > self.decided:
            return "lost" if seen.loss else "adopt"
        if self._find_missing(seen, now, known):
            return "rewrite" if self.fallen is not None and self.dropped <= self.fallen else "behind"
        if self.is_doubtful and self.kept:
            return "rewrite"
        if self._is_behind(seen, now):
            self.waits_since = now if self.waits_since is None else self.waits_since
            return "lost" if seen.loss else "wait" if now - self.waits_since < GRACE_S else "behind"
        self.waits_since = None
        self._remember(seen, now)
        if seen.loss:
            mine = seen.loss.why == "behind" and seen.lost_by == self.writer
            return "find" if mine else "lost"
        return "fine"

    def _find_missing(self, seen: LedgerEpoch, now: float, known: int) -> bool:
        """Return whether own changes are missing in the ledger."""
        own = seen.counts.get(self.writer)
        if own is None and self.confirmed and now - self.last > IDLE_S:
            self._begin_anew()
        elif (own or 0) < min(self.confirmed, known):
            self.fallen = min(own or 0, self.confirmed if self.fallen is None else self.fallen)
        return self.fallen is not None

    def _begin_anew(self) -> None:
        """Start counting from 0, because the ledger dropped the own number for its age."""
        self.dropped = self.confirmed = 0
        self._forget_own()

    def _forget_own(self) -> None:
        self.fallen, self.is_doubtful = None, False
        self.kept.clear()
        self.numbers.clear()

    def _forget_others(self) -> None:
        self.counts.clear()
        self.moved.clear()

    def _is_behind(self, seen: LedgerEpoch, now: float) -> bool:
        """Return whether other writers' changes are missing. Idle writers' numbers may be dropped."""
        for writer, number in list(self.counts.items()):
            if (found := seen.counts.get(writer, 0)) >= number:
                continue
            moved = self.moved[writer]
            if now - moved <= IDLE_S or (found and moved == NEVER):
                return True
            del self.counts[writer], self.moved[writer]
        return False

    def _remember(self, seen: LedgerEpoch, now: float) -> None:
        for writer, number in seen.counts.items():
            if writer != self.writer and self.counts.get(writer) != number:
                self.counts[writer], self.moved[writer] = number, now

    def adopt(self, seen: LedgerEpoch, now: float) -> None:
        """Remember this ledger as it is, from now on."""
        if self.id:  # changes that the ledger forgot are accepted, and no gap any more
            self.confirmed, self.dropped = seen.counts.get(self.writer, 0), 0
            self._forget_own()
            self._forget_others()
        before, self.id, self.decided, self.waits_since = self.id, seen.id, seen.decided, None
        self._note_replaced((*sorted(seen.replaced), before))
        self._remember(seen, NEVER)  # nobody knows how long these numbers have stood still

    def _choose_epoch(self, seen: LedgerEpoch, now: float) -> None:
        """Choose the epoch to remember from those that earlier processes knew.

        An epoch that is neither this ledger nor replaced by it wins: something was confirmed there that this
        ledger lacks. If there is none, this ledger's epoch is chosen.
        """
        others, self.others = self.others, []
        known = dict.fromkeys((self.id, *(one.epoch for one in others))) if others else ()
        strange = [one for one in known if one not in (seen.id, *seen.replaced, *self.replaced)]
        chosen = strange[0] if strange else seen.id
        if chosen != self.id and chosen in known:
            self.id, self.decided = chosen, 0
            self._forget_others()
            self._take_numbers(others, now)
        self._note_replaced(one for one in known if one != seen.id)

    def _note_replaced(self, epochs: Iterable[str]) -> None:
        known = dict.fromkeys((*self.replaced, *epochs))
        self.replaced = tuple(one for one in known if one not in ("", self.id))[-MAX_REPLACED:]

    @property
    def is_whole(self) -> bool:
        """True if no change has to be written again, as far as is known without looking."""
        return self.fallen is None and not (self.is_doubtful and self.kept)

    def list_forgotten(self) -> list[KeptChange]:
        """Return the own changes that the ledger forgot or may have forgotten, in their order."""
        lowest = inf if self.fallen is None else self.fallen
        since = self.kept[-1].at - DOUBT_S if self.is_doubtful and self.kept else inf
        return [one for one in self.kept if one.number > lowest or one.at >= since]

    def remember_written(self, written: Iterable[KeptChange], number: int, now: float) -> None:
        """Remember these changes as written again under this number. A failover may forget them again."""
        again = {id(one): one for one in written}
        self.kept = deque(one for one in self.kept if id(one) not in again)
        self.numbers.difference_update(one.number for one in again.values())
        for one in again.values():
            self._append(KeptChange(number, now, one.step))
        self.confirmed, self.last, self.fallen = max(self.confirmed, number), now, None

    def as_json(self) -> dict[str, Any]:
        """Return the part of the memory that outlasts this process."""
        counts = {**self.counts, **({self.writer: self.confirmed} if self.confirmed else {})}
        return {"id": self.id, "replaced": list(self.replaced), "counts": counts, "decided": self.decided}

    def recall(self, kept: Any, numbers: Iterable[KeptNumber] = (), now: float = 0.0) -> None:
        """Take over the memory and numbers that earlier processes kept. Malformed values are skipped."""
        match kept:
            case {"id": str(id_), "replaced": [*replaced], "counts": dict(counts), "decided": int(decided)}:
                self.id, self.decided = id_[:64], decided
                self.replaced = tuple(str(one)[:64] for one in replaced[-MAX_REPLACED:])
                for writer, number in counts.items():
                    if isinstance(writer, str) and type(number) is int and number > 0:
                        self.counts[writer], self.moved[writer] = number, NEVER
        youngest = sorted(numbers, key=lambda each: each.age_s)
        for one in youngest:
            self.meet(one.epoch, one.decided)  # no memory was kept, only numbers
        self._take_numbers(youngest, now)
        self.others = [one for one in youngest if one.epoch != self.id and one.age_s <= 2 * IDLE_S]

    def _take_numbers(self, numbers: Iterable[KeptNumber], now: float) -> None:
        """Take the numbers of the remembered ledger, of the time since the last decision of a person."""
        same = [one for one in numbers if one.epoch == self.id]
        decided = max((one.decided for one in same), default=0)
        if decided > self.decided:
            self.decided = decided
            self._forget_others()
        for one in same:
            if one.decided == self.decided and one.number >= self.counts.get(one.writer, 1):
                is_recent = 0 <= one.age_s <= IDLE_S
                self.counts[one.writer] = one.number
                self.moved[one.writer] = now - one.age_s if is_recent else NEVER


def read_epoch(fields: Mapping[str, bytes]) -> LedgerEpoch:
    """Read the hash that a ledger keeps about itself. Any content is accepted."""
    texts = {name: value.decode("ascii", "replace")[:64] for name, value in fields.items()}
    why = next((one for one in LOST if one == texts.get("lost")), None)
    loss = LedgerLoss(why, _number(texts.get("lost_at")) / 1000) if why else None
    return LedgerEpoch(
        texts.get("id", ""),
        _number(texts.get("since")) / 1000,
        {name[2:]: _number(value) for name, value in texts.items() if name.startswith("w:")},
        loss,
        texts.get("lost_by", ""),
        frozenset(name[4:] for name in texts if name.startswith("was:")),
        _number(texts.get("decided")),
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 17 else 0
