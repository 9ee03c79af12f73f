"""Joins decisions and the verdicts that came after them, out of facts in any order. Pure.

A shadow's verdict may come before its decision (between the phases) or long after it. A decision that waits
for a person counts as a decision while it waits (outcome `ask`). Another process than the one that asked may
make the final decision: its `asker` names the one that asked.

What schedulers ruled on the result of the call stands in the decision's `result`: the fields of its fact, and
verdicts on it that came later. These are no verdicts on the call.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolgate_bus.protocol.fact_events import TOLD_AS_DECISION, TOOL_ANSWERED, TOOL_DEFERRED, TOOL_RESULT

Fact = dict[str, Any]

_MAX_BESIDE: Final = 1024
"""Maximum number of verdicts of one decision: a writer of more of them floods its readers."""
_ANSWERED: Final = ("answer", "answered_by", "answered_after", "asker")
_ENVELOPE: Final = frozenset({"event", "id", "seq", "at", "orchestrator", "entry"})
_OF_RESULT: Final = frozenset(
    {
        *("outcome", "why", "reason", "scheduler", "seconds", "size", "cut", "digest"),
        *("silent", "failed_open", "disagreeing", "at"),
    }
)
"""Fields of the fact about a result that its decision does not have."""


class DecisionJoiner:
    """Joins decisions with their verdicts. It remembers the newest `most` decisions."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self.decisions: OrderedDict[str, Fact] = OrderedDict()
        """Decisions by id, in the order in which they were made."""
        self._early: OrderedDict[str, list[tuple[Any, Fact]]] = OrderedDict()
        self._early_results: OrderedDict[str, list[Mapping[str, Any]]] = OrderedDict()

    def take(self, fact: Mapping[str, Any]) -> Fact | None:
        """Return the decision that this fact is or adds to, with all verdicts so far; None without one."""
        if fact["event"] == TOOL_ANSWERED:
            return self._note_answer(fact)
        if fact["event"] == TOOL_RESULT or (fact["event"] == "verdict" and fact.get("phase") == "result"):
            return self._take_result(fact)
        key = fact.get("id")
        if not isinstance(key, str):
            return None
        writer, known = fact.get("orchestrator"), self.decisions.get(key)
        if known is not None and _differ(known.get("orchestrator"), writer) and not _continues(fact, known):
            return None  # it is another writer's decision, and stays as that one wrote it
        if fact["event"] in TOLD_AS_DECISION:
            if known is not None and known["event"] == "decision" and fact["event"] != "decision":
                return known
            decision = self.decisions[key] = dict(fact)
            decision.pop("result", None)  # its fact has none
            self.decisions.move_to_end(key)
            early = self._early.pop(key, ())
            decision["verdicts"] = [
                *decision["verdicts"],
                *(one for by, one in early if not _differ(by, writer)),
            ]
            if known is not None and "result" in known:
                decision["result"] = known["result"]
            for one in self._early_results.pop(key, ()):
                if not _differ(one.get("orchestrator"), writer):
                    _add_result(decision, one)
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

    def _take_result(self, fact: Mapping[str, Any]) -> Fact | None:
        """Note on a decision what schedulers ruled on the result of its call, or one verdict on that."""
        key = fact.get("decision_id") if fact["event"] == TOOL_RESULT else fact.get("id")
        if not isinstance(key, str):
            return None
        known = self.decisions.get(key)
        if known is None:
            early = self._early_results.setdefault(key, [])
            if len(early) < _MAX_BESIDE:
                early.append(fact)
            self._forget(self._early_results)
            return None
        if _differ(known.get("orchestrator"), fact.get("orchestrator")):
            return None
        _add_result(known, fact)
        return known

    def _note_answer(self, fact: Mapping[str, Any]) -> Fact | None:
        """Note on a waiting decision that somebody goes on with it."""
        key = fact.get("decision_id")
        known = self.decisions.get(key) if isinstance(key, str) else None
        if known is None or known["event"] == "decision":
            return None
        known |= {name: fact[name] for name in _ANSWERED if name in fact}
        return known

    def _forget(self, kept: OrderedDict[str, Any]) -> None:
        if self._most is not None and len(kept) > self._most:
            kept.popitem(last=False)


def _add_result(decision: Fact, fact: Mapping[str, Any]) -> None:
    result = decision.setdefault("result", {"verdicts": []})
    if fact["event"] == TOOL_RESULT:
        late = result["verdicts"]
        told = fact.get("verdicts")
        result |= {name: fact[name] for name in _OF_RESULT if name in fact}
        result["verdicts"] = [*(told if isinstance(told, list) else ()), *late]
    elif len(result["verdicts"]) < _MAX_BESIDE:
        result["verdicts"].append({name: value for name, value in fact.items() if name not in _ENVELOPE})


def _continues(fact: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Return whether the fact goes on with the known decision, or the other way round.

    A verdict may come from either of the two writers.
    """
    if fact["event"] == "verdict":
        return known.get("asker") == fact.get("orchestrator")
    later, earlier = (known, fact) if known["event"] == "decision" else (fact, known)
    return earlier["event"] == TOOL_DEFERRED and later.get("asker") == earlier.get("orchestrator")


def _differ(one: Any, other: Any) -> bool:
    """Return whether both writers are known and different."""
    return one is not None and other is not None and one != other


def join_decisions(facts: Iterable[Fact]) -> list[Fact]:
    """Return the decisions among the facts, each with the verdicts that came beside it."""
    gathering = DecisionJoiner()
    for fact in facts:
        gathering.take(fact)
    return list(gathering.decisions.values())
