"""Decisions with the verdicts that came after them, out of facts in any order. Pure.

A shadow's verdict may come before its decision (between the phases) or long after it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

Fact = dict[str, Any]

_MAX_BESIDE: Final = 1024
"""Verdicts of one decision: who tells more of them floods its readers."""
_ENVELOPE: Final = frozenset({"event", "id", "seq", "at", "orchestrator", "entry"})


class DecisionJoiner:
    """Puts together what belongs together; remembers the newest `most` decisions."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self.decisions: OrderedDict[str, Fact] = OrderedDict()
        """By id, in the order in which they were made."""
        self._early: OrderedDict[str, list[tuple[Any, Fact]]] = OrderedDict()

    def take(self, fact: Mapping[str, Any]) -> Fact | None:
        """The decision that this fact is or adds a verdict to, with all verdicts so far; else None."""
        key = fact.get("id")
        if not isinstance(key, str):
            return None
        writer, known = fact.get("orchestrator"), self.decisions.get(key)
        if known is not None and _differ(known.get("orchestrator"), writer):
            return None  # it is somebody else's decision, and stays as that one told it
        if fact["event"] == "decision":
            decision = self.decisions[key] = dict(fact)
            early = self._early.pop(key, ())
            decision["verdicts"] = [
                *decision["verdicts"],
                *(one for by, one in early if not _differ(by, writer)),
            ]
            self._forget(self.decisions)
            return decision
        if fact["event"] != "verdict":
            return None
        verdict = {name: value for name, value in fact.items() if name not in _ENVELOPE}
        if (made := self.decisions.get(key)) is None:
            beside = self._early.setdefault(key, [])
            if len(beside) < _MAX_BESIDE:
                beside.append((writer, verdict))
            self._forget(self._early)
            return None
        if len(made["verdicts"]) < _MAX_BESIDE:
            made["verdicts"].append(verdict)
        return made

    def _forget(self, kept: OrderedDict[str, Any]) -> None:
        if self._most is not None and len(kept) > self._most:
            kept.popitem(last=False)


def _differ(one: Any, other: Any) -> bool:
    """Whether two writers are known, and not the same."""
    return one is not None and other is not None and one != other


def join_decisions(facts: Iterable[Fact]) -> list[Fact]:
    """The decisions among the facts, each with the verdicts that came beside it."""
    gathering = DecisionJoiner()
    for fact in facts:
        gathering.take(fact)
    return list(gathering.decisions.values())
