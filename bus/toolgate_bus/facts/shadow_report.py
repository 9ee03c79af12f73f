"""Compares decisions of the record with the verdicts of shadows, to find what a shadow would have changed.

A shadow rules on the same question as in earnest, with placeholders for redacted values. The record hides
redacted values anew in everything that it keeps, so all placeholders are taken for equal. Decisions with
placeholders are counted, and so are decisions that cannot be compared at all.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError
from toolgate_bus.facts.record import read_verdict
from toolgate_bus.protocol.events import Modify, ReceivedVerdict
from toolgate_bus.ruling.counterfactual import (
    Change,
    ChangeCounts,
    DecisionRecord,
    ProposedCall,
    actual,
    change,
    with_shadow,
)

Fact = Mapping[str, Any]

_PLACEHOLDER: Final = re.compile(r"⟦toolgate:\w+:[0-9a-f]+⟧")
_ANY: Final = "⟦toolgate:placeholder⟧"
_MAX_DEPTH: Final = 64


class Disagreement(NamedTuple):
    """A change that one shadow would have made to one decision."""

    scheduler: str
    change: Change
    tool: str
    """Tool that would have run, or that the shadow would have asked about."""
    arguments: Any
    reason: str | None
    verified: bool
    """False for a replacement that other schedulers would have been asked about; their answer is unknown."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields for scripts."""
        return self._asdict()


@dataclass(slots=True)
class ShadowTotals(ChangeCounts):
    """Figures of one shadow, over all decisions with a verdict of it."""

    heard: int = 0
    unverified: int = 0
    """Number of replaced calls that were not verified by the other schedulers."""
    redacted: int = 0
    """Number of decisions whose arguments stand in the record as placeholders."""
    unreadable: int = 0
    """Number of decisions that cannot be compared: too long for the record, or malformed."""

    @property
    def disagreement_count(self) -> int:
        """Number of decisions that it would have changed."""
        return self.heard - self.same - self.unreadable

    def as_json(self) -> dict[str, int]:
        """Return the figures for scripts."""
        return {**asdict(self), "disagreed": self.disagreement_count}


def record_of(fact: Fact) -> DecisionRecord:
    """Return a `decision` of the record, with the verdicts that came after it. Raises CodecError."""
    if fact.get("cut"):
        raise CodecError("oversize", "the decision was too long for the record")
    original = ProposedCall(fact["tool_name"], _plain(fact["tool_input"]), fact.get("agent_target"))
    final_tool, final_input = fact.get("final_tool"), fact.get("final_input")
    final = ProposedCall(
        final_tool if isinstance(final_tool, str) else original.tool,
        original.arguments if final_input is None else _plain(final_input),
        fact.get("final_agent"),
    )
    return DecisionRecord(
        original,
        final,
        fact["outcome"],
        fact["why"],
        tuple(normalize(read_verdict(one)) for one in fact["verdicts"]),
        tuple(one for one in fact.get("silent") or () if isinstance(one, str)),
        fact.get("scheduler"),
        fact.get("reason"),
    )


def shadows_of(fact: Fact) -> set[str]:
    """Return the shadows that gave a verdict on a decision."""
    return {
        str(one.get("scheduler"))
        for one in fact["verdicts"]
        if isinstance(one, Mapping) and one.get("shadow") is True
    }


def disagreements(fact: Fact) -> list[Disagreement]:
    """Return the change that each shadow would have made to a decision, by name. Raises CodecError."""
    names = sorted(shadows_of(fact))
    if not names:
        return []
    ruled = record_of(fact)
    before, found = actual(ruled), []
    for name in names:
        after = with_shadow(ruled, name)
        if changed := change(before, after):
            tool, arguments = after.call.tool, after.call.arguments
            found.append(Disagreement(name, changed, tool, arguments, after.reason, after.verified))
    return found


def shadow_totals(decisions: Iterable[Fact]) -> dict[str, ShadowTotals]:
    """Return each shadow's figures over these decisions, by name."""
    totals: dict[str, ShadowTotals] = {}
    for fact in decisions:
        add_to_totals(totals, fact)
    return dict(sorted(totals.items()))


def add_to_totals(totals: dict[str, ShadowTotals], fact: Fact) -> None:
    """Add one more decision to the figures."""
    names = shadows_of(fact)
    if not names:
        return
    try:
        changed = {one.scheduler: one for one in disagreements(fact)}
    except CodecError:
        changed = None
    for name in names:
        one = totals.setdefault(name, ShadowTotals())
        one.heard += 1
        one.redacted += is_redacted(fact["tool_input"])
        if changed is None:
            one.unreadable += 1
        else:
            found = changed.get(name)
            one.count(found.change if found else None)
            one.unverified += found is not None and not found.verified


def normalize(heard: ReceivedVerdict) -> ReceivedVerdict:
    """Return a verdict whose arguments can be compared with those of the record."""
    if not isinstance(heard.verdict, Modify) or heard.verdict.arguments is None:
        return heard
    arguments = _plain(heard.verdict.arguments)
    return heard._replace(verdict=heard.verdict.model_copy(update={"arguments": arguments}))


def is_redacted(value: Any) -> bool:
    """Return whether a placeholder stands anywhere in a value."""
    return "⟦toolgate:" in str(value)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return the value with the same text for all placeholders."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(_ANY, value) if "⟦toolgate:" in value else value
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, dict):
        return {key: _plain(child, depth + 1) for key, child in value.items()}
    return [_plain(child, depth + 1) for child in value] if isinstance(value, list) else value
