"""Keep the newest decisions, each with its later verdicts; bounded in number and in bytes.

Every change has a number, so a page that was away for a moment is sent the changes that it missed.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from toolgate_bus.facts.join import DecisionJoiner

from toolgate_schedulers.commands.console.filters import Filter
from toolgate_schedulers.commands.console.rows import row_of, search_text_of

MAX_COUNT: Final = 2000
MAX_AFTER: Final = 8
MAX_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """Decision in its present state."""

    number: int
    """Number of its last change."""
    decision: Mapping[str, Any]
    row: Mapping[str, Any]
    json: str
    """Row in JSON, ready to be sent."""
    searched: str
    size: int
    """Approximate size in bytes."""

    def fits(self, wanted: Filter) -> bool:
        """Return whether a filter matches it."""
        return not wanted or wanted.wants(self.decision, self.row, self.searched)


class Ring:
    """Decisions by id, the oldest first."""

    def __init__(self, most: int = MAX_COUNT, most_bytes: int = MAX_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._gathering = DecisionJoiner(most)
        self._entries: OrderedDict[str, DecisionEntry] = OrderedDict()
        self._after: dict[str, list[Mapping[str, Any]]] = {}
        self._bytes = 0
        self.number = 0
        """Number of the newest change."""

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, fact: Mapping[str, Any]) -> DecisionEntry | None:
        """Take in a fact; return the decision that it is or adds to, or None if there is none or it is long
        gone."""
        decision = self._gathering.take(fact)
        if decision is None:
            about = fact.get("decision_id")
            if isinstance(about, str) and about in self._entries:
                told = self._after.setdefault(about, [])
                if len(told) < MAX_AFTER:
                    told.append(fact)
            return None
        self.number += 1
        row = row_of(decision)
        text = json.dumps(row, ensure_ascii=False)
        words = search_text_of(decision)
        size = len(json.dumps(decision, ensure_ascii=False, default=repr)) + 2 * len(text) + len(words)
        entry = DecisionEntry(self.number, decision, row, text, words, size)
        id_ = decision["id"]
        before = self._entries.get(id_)
        self._bytes += entry.size - (before.size if before else 0)
        self._entries[id_] = entry
        while len(self._entries) > self._most or (self._bytes > self._most_bytes and len(self._entries) > 1):
            gone, last = self._entries.popitem(last=False)
            self._gathering.decisions.pop(gone, None)
            self._after.pop(gone, None)
            self._bytes -= last.size
        return entry

    def get(self, id_: str) -> DecisionEntry | None:
        """Return a decision by its id."""
        return self._entries.get(id_)

    def after(self, id_: str) -> list[Mapping[str, Any]]:
        """Return the later facts about a decision's call: that it ran, or did not run after all."""
        return self._after.get(id_, [])

    def newest(self, most: int, wanted: Filter, after: int = 0) -> list[DecisionEntry]:
        """Return the newest entries that match a filter and changed after a number, oldest first."""
        newest = reversed(self._entries.values())
        fitting = (one for one in newest if one.number > after and one.fits(wanted))
        return list(islice(fitting, most))[::-1]
