"""Decisions with the verdicts that came after them, out of facts in any order. Pure.

A shadow's verdict may come before its decision (between the phases) or long after it. A decision that waits
for a person is one from then on (outcome `ask`), and may be made by another process than the one that asked:
`asker` names the one that it came from.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolgate_bus.protocol.fact_events import TOLD_AS_DECISION, TOOL_ANSWERED, TOOL_DEFERRED

Fact = dict[str, Any]

_MAX_BESIDE: Final = 1024
"""Verdicts of one decision: who tells more of them floods its readers."""
_ANSWERED: Final = ("answer", "answered_by", "answered_after", "asker")
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
        if fact["event"] == TOOL_ANSWERED:
            return self._note_answer(fact)
        key = fact.get("id")
        if not isinstance(key, str):
            return None
        writer, known = fact.get("orchestrator"), self.decisions.get(key)
        if known is not None and _differ(known.get("orchestrator"), writer) and not _continues(fact, known):
            return None  # it is somebody else's decision, and stays as that one told it
        if fact["event"] in TOLD_AS_DECISION:
            if known is not None and known["event"] == "decision" and fact["event"] != "decision":
                return known
            decision = self.decisions[key] = dict(fact)
            self.decisions.move_to_end(key)
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

    def _note_answer(self, fact: Mapping[str, Any]) -> Fact | None:
        """Somebody goes on with a decision that waited."""
        key = fact.get("decision_id")
        known = self.decisions.get(key) if isinstance(key, str) else None
        if known is None or known["event"] == "decision":
            return None
        known |= {name: fact[name] for name in _ANSWERED if name in fact}
        return known

    def _forget(self, kept: OrderedDict[str, Any]) -> None:
        if self._most is not None and len(kept) > self._most:
            kept.popitem(last=False)


def _continues(fact: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether one of the two goes on where the other waited; what comes beside it, both may tell."""
    if fact["event"] == "verdict":
        return known.get("asker") == fact.get("orchestrator")
    later, earlier = (known, fact) if known["event"] == "decision" else (fact, known)
    return earlier["event"] == TOOL_DEFERRED and later.get("asker") == earlier.get("orchestrator")


def _differ(one: Any, other: Any) -> bool:
    """Whether two writers are known, and not the same."""
    return one is not None and other is not None and one != other


def join_decisions(facts: Iterable[Fact]) -> list[Fact]:
    """The decisions among the facts, each with the verdicts that came beside it."""
    gathering = DecisionJoiner()
    for fact in facts:
        gathering.take(fact)
    return list(gathering.decisions.values())
