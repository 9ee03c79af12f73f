"""Track the progress of an archive: how far each writer was read, and which facts are missing.

Facts of one orchestrator are numbered from 1, without gaps. So the numbers show each fact that was written
and not read: trimmed before it was read, lost with a server, or refused. The numbers cannot show two cases,
which are handled apart: orchestrators that wrote before the archive began (their first number may be any),
and those that lived and were forgotten while nobody read (told as one gap in time, `away`). The ledger's
journal is one stream with one place; entries that were trimmed unread are a gap of kind `journal`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.money.journal import JournalCursor, JournalPage
from toolgate_bus.transport.retention import KEEP_S

Fact = dict[str, Any]

GAP: Final = "archive:gap"
"""Event of a line that tells of missing facts."""


@dataclass(slots=True)
class ArchiveProgress:
    """Progress of an archive. It changes as facts are taken."""

    places: dict[str, str] = field(default_factory=dict)
    """Id of the last entry that was read of each writer's stream."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Number of the last fact that was taken of each writer."""
    before: set[str] | None = None
    """Writers that existed when the archive began, and are silent since; None: it has not begun."""
    read_ms: int = 0
    """Time of the last read, in milliseconds of the server's clock."""
    facts: int = 0
    gaps: int = 0
    journals: dict[str, JournalCursor] = field(default_factory=dict)
    """Place up to which the journal of each ledger was read, by its book."""
    entries: int = 0
    """Number of entries of journals."""
    epochs: dict[str, str] = field(default_factory=dict)
    """Name of the ledger behind each book, at the last read."""

    def begin(self, writers: Iterable[str]) -> None:
        """Note the writers at the first read of a server: what they wrote before is no gap of the archive."""
        if self.before is None:
            self.before = set(writers)

    def take(
        self, facts: Iterable[Fact], places: Mapping[str, str], now_ms: int, keep_s: int = KEEP_S
    ) -> list[Fact]:
        """Return the lines for facts, gaps among them. They were read up to `places`, at time `now_ms`.

        `keep_s` is the number of seconds that the server keeps facts.
        """
        lines: list[Fact] = []
        until = now_ms - keep_s * 1000
        if 0 < self.read_ms < until:
            lines.append({"event": GAP, "kind": "away", "from_ms": self.read_ms, "to_ms": until})
        for fact in facts:
            lines += self._missing(fact)
            lines.append(fact)
            self.facts += 1
        self.places, self.read_ms = dict(places), max(self.read_ms, now_ms)
        self.numbers = {name: last for name, last in self.numbers.items() if name in places}
        if self.before:
            self.before &= places.keys()
        self.gaps += sum(line["event"] == GAP for line in lines)
        return lines

    def take_journal(self, book: str, page: JournalPage) -> list[Fact]:
        """Return the lines for a page of a ledger's journal, with a gap if entries were trimmed unread."""
        before, self.journals[book] = self.journals.get(book, JournalCursor()), page.place
        self.entries += len(page.entries)
        if not page.missed:
            return page.entries
        self.gaps += 1
        ends = {"after": before.last, "before": page.place.last}
        return [*page.entries, {"event": GAP, "kind": "journal", "book": book, "count": page.missed, **ends}]

    def take_epoch(self, book: str, epoch: str) -> bool:
        """Note the name of a book's ledger. Return whether it has changed."""
        before = self.epochs.get(book) if epoch else None
        if epoch:
            self.epochs[book] = epoch
        return before not in (None, epoch)

    def as_json(self) -> dict[str, Any]:
        """Return the progress as it is kept."""
        return {
            "places": self.places,
            "numbers": self.numbers,
            "before": None if self.before is None else sorted(self.before),
            "read_ms": self.read_ms,
            "facts": self.facts,
            "gaps": self.gaps,
            "journals": {book: list(place) for book, place in sorted(self.journals.items())},
            "entries": self.entries,
            "epochs": dict(sorted(self.epochs.items())),
        }

    @classmethod
    def of(cls, kept: Any) -> "ArchiveProgress":
        """Return progress from what was kept. Raise ConfigError if that is invalid."""
        try:
            return cls(
                {str(name): str(place) for name, place in kept["places"].items()},
                {str(name): int(number) for name, number in kept["numbers"].items()},
                None if kept["before"] is None else set(map(str, kept["before"])),
                int(kept["read_ms"]),
                int(kept["facts"]),
                int(kept["gaps"]),
                {
                    str(book): JournalCursor(str(last), int(number))
                    for book, (last, number) in kept.get("journals", {}).items()
                },
                int(kept.get("entries", 0)),
                {str(book): str(epoch) for book, epoch in kept.get("epochs", {}).items()},
            )
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ConfigError(f"the progress of the archive cannot be read: {error!r}") from None

    def _missing(self, fact: Fact) -> list[Fact]:
        name, number = fact.get("orchestrator"), fact.get("seq")
        if not isinstance(name, str) or type(number) is not int:
            return []
        known_before = name in (self.before or ()) and name not in self.numbers
        expected = self.numbers.get(name, 0) + 1
        if self.before:
            self.before.discard(name)
        self.numbers[name] = number  # readers give each number once; a lower one was hidden by a forged one
        if number <= expected or known_before:
            return []
        return [
            {
                "event": GAP,
                "kind": "missing",
                "orchestrator": name,
                "from": expected,
                "to": number - 1,
                "after": self.places.get(name),
                "before": fact.get("entry"),
            }
        ]


def words_of_gap(gap: Mapping[str, Any]) -> str:
    """Return a sentence for people about a gap."""
    if gap.get("kind") == "away":
        minutes = (int(gap["to_ms"]) - int(gap["from_ms"])) / 60_000
        return (
            f"Nothing was read for longer than facts are kept: facts of {minutes:.0f} min, "
            f"up to {gap['to_ms']} ms of the server's clock, may be missing."
        )
    if gap.get("kind") == "journal":
        return (
            f"{gap['count']} entries of the journal of ledger {gap.get('book')} are missing, written before "
            f"{gap.get('before')}: trimmed before they were read. Run the archiver all the time."
        )
    count = int(gap["to"]) - int(gap["from"]) + 1
    return (
        f"{count} facts of orchestrator {gap.get('orchestrator')} are missing, numbers {gap['from']} to "
        f"{gap['to']}: trimmed before they were read, or lost by the server."
    )
