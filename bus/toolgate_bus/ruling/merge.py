"""Reduces many verdicts to one ruling: a pure function of the set.

Order and duplicates do not matter. Late verdicts, shadow verdicts, holds and invalid modifies are set aside
before anything is compared. From one scheduler the most restrictive answer counts: deny > ask_user > modify >
continue. Of several denies or modifies the highest priority stands first (tie: alphabetically first
scheduler, then the digest of the body). A round of the phase `verify` has no winner among its modifies: all
of them are laid over the call that was asked about (`ProposedCall.lay_over`).

Answers that stop or delay a call are `RESTRICTIVE`: a round takes them whenever they are read. The tables
here are the only ones: `round`, `counterfactual` and the gate use them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from toolgate_bus.protocol.events import ReceivedVerdict

ORDER: Final[Mapping[str, int]] = {"deny": 0, "ask_user": 1, "modify": 2, "continue": 3}
"""Final answers, the most restrictive first."""
RESTRICTIVE: Final = frozenset(("deny", "ask_user", "hold", "mask"))
"""Actions that stop a call, keep it waiting, or hide a part of its result."""


@dataclass(frozen=True, slots=True)
class MergeResult:
    """Result of the verdicts of one round."""

    action: Literal["deny", "modify", "continue"]
    winner: ReceivedVerdict | None = None
    """Deny whose reason the LLM is told, or modify that wins; None for continue."""
    denies: tuple[ReceivedVerdict, ...] = ()
    asks: tuple[ReceivedVerdict, ...] = ()
    """Verdicts that want a person asked, the highest priority first."""
    modifies: tuple[ReceivedVerdict, ...] = ()
    """Verdicts that want another call, the highest priority first; empty if any denies."""


NOTHING: Final = MergeResult("continue")
"""Result if all verdicts say continue."""


def rank(heard: ReceivedVerdict) -> tuple[int, str, bytes, str, bool]:
    """Return the sort key: the highest priority first, then name, digest of the body, revision, round."""
    return (-heard.priority, heard.scheduler, heard.digest, heard.revision, heard.again)


def counts(heard: ReceivedVerdict) -> bool:
    """Return whether a verdict may influence the outcome at all."""
    return not (heard.late or heard.shadow or heard.problem) and heard.verdict.action in ORDER


def merge(heard: Iterable[ReceivedVerdict]) -> MergeResult:
    """Reduce the verdicts of one round to one ruling."""
    standing: dict[str, ReceivedVerdict] = {}
    for one in heard:
        action = one.verdict.action
        if action == "continue" or not counts(one):
            continue
        other = standing.get(one.scheduler)
        if other is None or _order(one) < _order(other):
            standing[one.scheduler] = one
    if not standing:
        return NOTHING
    ranked = sorted(standing.values(), key=rank) if len(standing) > 1 else list(standing.values())
    denies = tuple(one for one in ranked if one.verdict.action == "deny")
    asks = tuple(one for one in ranked if one.verdict.action == "ask_user")
    if denies:
        return MergeResult("deny", denies[0], denies, asks)
    modifies = tuple(one for one in ranked if one.verdict.action == "modify")
    if not modifies:
        return MergeResult("continue", None, (), asks)
    return MergeResult("modify", modifies[0], (), asks, modifies)


def _order(heard: ReceivedVerdict) -> tuple[int, int, str, bytes, str, bool]:
    return (ORDER[heard.verdict.action], *rank(heard))
