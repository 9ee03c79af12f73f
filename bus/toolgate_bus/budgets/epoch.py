"""The ledger's epoch: which ledger this is, what it has taken, and whether that is what a replica remembers.

    the ledger      id (chance, at its first change) · how many changes of each writer · why it is lost
    each replica    the id · how many own changes were confirmed, and the newest of them · others' numbers

    no id, or another  ─▶ lost: emptied, restarted without its data, another server: waits for a person
    own number lower   ─▶ a failover forgot writes: written again, in their order, and nothing is lost
    an outcome unknown ─▶ what was done may count for what was forgotten: the newest are written again
    another's lower    ─▶ waited for: who is alive writes its own again; else lost, as a person has to know
    decided            ─▶ somebody accepted the loss, or rebuilt the books: remembered as it is now

Pure.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Literal, NamedTuple

KEPT_S: Final = 30.0
"""Seconds for which own changes are kept, to be written again."""
MAX_KEPT: Final = 10_000
DOUBT_S: Final = 10.0
"""Seconds before the newest own change, of which all are written again after an outcome that is unknown:
more than replicas are ever behind."""
GRACE_S: Final = 5.0
"""So long another replica has to write again what the ledger forgot of it."""
IDLE_S: Final = 300.0
"""A writer's number may be taken off the ledger once it has stood still for twice as long."""
MAX_REPLACED: Final = 16
MAX_CONFIRMED: Final = 2**63
NEVER: Final = float("-inf")
ANY: Final = "*"
"""What is told of the epoch by who does not mind a loss."""
LOST: Final = ("missing", "another", "behind")

Why = Literal["missing", "another", "behind"]
WHY: Final[Mapping[Why, str]] = {
    "missing": "it was emptied or restarted without its data, or the address names an empty server",
    "another": "it is another one than its schedulers know",
    "behind": "it forgot changes that it had confirmed, of a replica that is gone",
}
"""For people."""
Judgement = Literal["fine", "adopt", "rewrite", "wait", "find", "missing", "another", "behind", "lost"]


class LedgerLoss(NamedTuple):
    """A ledger that waits for a person."""

    why: Why
    """`missing` and `another`: it is empty, or another one; `behind`: it forgot its newest changes."""
    since: float
    """When it was noticed, in seconds since the epoch; 0 where that is not known."""


class LedgerEpoch(NamedTuple):
    """What a ledger says of itself."""

    id: str = ""
    """Nobody has changed anything in it yet where there is none."""
    since: float = 0.0
    """When it began, in seconds since the epoch."""
    counts: Mapping[str, int] = {}
    """Changes by writer."""
    loss: LedgerLoss | None = None
    lost_by: str = ""
    """Who noticed it."""
    replaced: frozenset[str] = frozenset()
    """Epochs that this one stands in the place of."""
    decided: int = 0
    """How often somebody ended a quarantine."""


class KeptChange(NamedTuple):
    """A change of a replica's own that the ledger confirmed."""

    number: int
    at: float
    step: Any
    """What is taken again, should the ledger forget it."""


class KeptNumber(NamedTuple):
    """How many changes of its own a process had seen confirmed, which may have ended since."""

    writer: str
    epoch: str
    decided: int
    number: int
    age_s: float
    """Seconds since it changed."""


@dataclass(slots=True)
class EpochMemory:
    """What one replica remembers."""

    writer: str
    fresh: str
    """The epoch of a ledger that has none."""
    id: str = ""
    replaced: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    """Others' numbers, as they were seen last."""
    moved: dict[str, float] = field(default_factory=dict)
    """When each was seen to change; `NEVER`, where it was there before."""
    decided: int = 0
    confirmed: int = 0
    """How many own changes were confirmed: the highest number of one, and those that came after a fall."""
    kept: deque[KeptChange] = field(default_factory=deque)
    numbers: set[int] = field(default_factory=set)
    """Those of kept changes: a server gives each once."""
    dropped: int = 0
    """The highest number of those that are not kept any more."""
    fallen: int | None = None
    """How many own changes the ledger has, where that is less than were confirmed."""
    is_doubtful: bool = False
    """Whether the ledger may have done what it did not confirm: its number may be high enough by that."""
    waits_since: float | None = None
    """Since when another's number is too low."""
    last: float = 0.0
    """When the last own change was confirmed."""
    others: list[KeptNumber] = field(default_factory=list)
    """Of ledgers that earlier processes knew lately beside this one; until the first look."""

    def meet(self, id_: str, decided: int) -> None:
        """A ledger told its epoch, and how often a person decided; the first counts."""
        if not self.id:
            self.id, self.decided = id_, decided

    def keep(self, number: int, known: int, step: Any, now: float) -> None:
        """An own change was confirmed under this number; `known` were when it was sent."""
        if number <= known and now - self.last > IDLE_S:
            self._begin_anew()
        elif number <= known or number in self.numbers:
            # (the latter: it was sent before another was confirmed, which is forgotten)
            self.fallen = number - 1 if self.fallen is None else min(self.fallen, number - 1)
        # What comes after a fall has the numbers of what was forgotten, and must not stand in for it.
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
        """What is to be done about what the ledger says; others' numbers are remembered by it.

        `known` were confirmed when it was asked: what was confirmed since, over another connection, it may
        not have told yet.
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
        """Whether own changes are missing."""
        own = seen.counts.get(self.writer)
        if own is None and self.confirmed and now - self.last > IDLE_S:
            self._begin_anew()
        elif (own or 0) < min(self.confirmed, known):
            self.fallen = min(own or 0, self.confirmed if self.fallen is None else self.fallen)
        return self.fallen is not None

    def _begin_anew(self) -> None:
        """The own number was taken off the ledger for its age: nothing of it is new."""
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
        """Whether changes of others are missing; who stood still for long may have been taken off."""
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
        """Remember this ledger, as it is, from now on."""
        if self.id:  # what it forgot is no gap any more
            self.confirmed, self.dropped = seen.counts.get(self.writer, 0), 0
            self._forget_own()
            self._forget_others()
        before, self.id, self.decided, self.waits_since = self.id, seen.id, seen.decided, None
        self._note_replaced((*sorted(seen.replaced), before))
        self._remember(seen, NEVER)  # nobody knows for how long they have stood still

    def _choose_epoch(self, seen: LedgerEpoch, now: float) -> None:
        """Of several that earlier processes knew, remember one that this is not, nor stands in the place of.

        There something was confirmed that this one lacks. Where there is none, remember this one.
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
        """Whether nothing is to be written again, as far as is known without looking."""
        return self.fallen is None and not (self.is_doubtful and self.kept)

    def list_forgotten(self) -> list[KeptChange]:
        """Own changes that the ledger forgot, or may have, in their order."""
        lowest = inf if self.fallen is None else self.fallen
        since = self.kept[-1].at - DOUBT_S if self.is_doubtful and self.kept else inf
        return [one for one in self.kept if one.number > lowest or one.at >= since]

    def remember_written(self, written: Iterable[KeptChange], number: int, now: float) -> None:
        """They are there again, since the change of that number; an older copy forgets them once more."""
        again = {id(one): one for one in written}
        self.kept = deque(one for one in self.kept if id(one) not in again)
        self.numbers.difference_update(one.number for one in again.values())
        for one in again.values():
            self._append(KeptChange(number, now, one.step))
        self.confirmed, self.last, self.fallen = max(self.confirmed, number), now, None

    def as_json(self) -> dict[str, Any]:
        """What outlasts this process."""
        counts = {**self.counts, **({self.writer: self.confirmed} if self.confirmed else {})}
        return {"id": self.id, "replaced": list(self.replaced), "counts": counts, "decided": self.decided}

    def recall(self, kept: Any, numbers: Iterable[KeptNumber] = (), now: float = 0.0) -> None:
        """Take what earlier processes kept, and their numbers; what is none is passed over."""
        match kept:
            case {"id": str(id_), "replaced": [*replaced], "counts": dict(counts), "decided": int(decided)}:
                self.id, self.decided = id_[:64], decided
                self.replaced = tuple(str(one)[:64] for one in replaced[-MAX_REPLACED:])
                for writer, number in counts.items():
                    if isinstance(writer, str) and type(number) is int and number > 0:
                        self.counts[writer], self.moved[writer] = number, NEVER
        youngest = sorted(numbers, key=lambda each: each.age_s)
        for one in youngest:
            self.meet(one.epoch, one.decided)  # nobody kept more of it
        self._take_numbers(youngest, now)
        self.others = [one for one in youngest if one.epoch != self.id and one.age_s <= 2 * IDLE_S]

    def _take_numbers(self, numbers: Iterable[KeptNumber], now: float) -> None:
        """Take those of the ledger that is remembered, since a person decided last."""
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
    """The hash that a ledger keeps of itself, whatever is in it."""
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
