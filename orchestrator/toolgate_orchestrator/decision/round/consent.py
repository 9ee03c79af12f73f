"""A modify in the phase `verify`: agreement, a change of the replacement, or a refusal of it.

    same call as asked              agreement: it counts as `continue`
    same tool, first round          a change: it is laid over the replacement, and everyone is asked again
    same tool, last round           a required scheduler denies by it, an optional one is overruled
    another tool                    the same

An optional scheduler is also overruled if it changes what the author of the replacement set with a higher
priority. Otherwise the first round, in which the highest priority wins, would count for nothing. So every
required scheduler has agreed to the call exactly as it runs. Elsewhere are the validity of modifies
(`validation`), how changes are laid over a call (`ProposedCall.lay_over`), and asking again (`gate`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from toolgate_bus.protocol.events import OVERRULED, Continue, Deny, Modify, ReceivedVerdict, Verdict
from toolgate_bus.protocol.names import MAX_REASON
from toolgate_bus.ruling.counterfactual import ProposedCall
from toolgate_bus.telemetry.printable import shorten

ROUNDS: Final = "three rounds"


class JudgedChange(NamedTuple):
    """The way in which a modify of a replacement counts."""

    verdict: Verdict
    problem: str | None = None
    said: Modify | None = None
    """The modify itself, if it counts as something else."""


def judge_other_tool(scheduler: str, modify: Modify, tool: str, *, required: bool) -> JudgedChange:
    """Judge a modify that wants another tool in the place of the replacement."""
    if not required:
        return JudgedChange(modify, OVERRULED)
    words = f"{scheduler} wanted {modify.tool} to run in place of {tool}, which others had chosen"
    return JudgedChange(_deny(words, modify), said=modify)


def judge_change(
    scheduler: str,
    modify: Modify,
    wanted: ProposedCall,
    asked: ProposedCall,
    *,
    required: bool,
    again: bool,
    bound_by: ProposedCall | None,
) -> JudgedChange:
    """Judge a valid modify that keeps the tool; `wanted` is the call that it makes of the one asked about.

    `bound_by` is the LLM's own call where the author of the replacement has the higher priority.
    """
    if wanted.same(asked):
        return agree(modify)
    if not required and (again or (bound_by is not None and _resets(bound_by, asked, wanted))):
        return JudgedChange(modify, OVERRULED)
    if not again:
        return JudgedChange(modify)
    return JudgedChange(_deny(_describe_disagreement([scheduler]), modify), said=modify)


def agree(modify: Modify) -> JudgedChange:
    """Return the agreement that a modify becomes if it leaves the call as it is asked about."""
    return JudgedChange(Continue(reason=modify.reason, priority=modify.priority), said=modify)


def _resets(first: ProposedCall, asked: ProposedCall, wanted: ProposedCall) -> bool:
    """Return whether an argument or agent is changed that was changed before."""
    is_moved = asked.agent != first.agent and wanted.agent != asked.agent
    return is_moved or not {*asked.find_changed(first)}.isdisjoint(wanted.find_changed(asked))


def explain_disagreement(denies: Sequence[ReceivedVerdict]) -> str | None:
    """Return the reason of a denial by several schedulers that disagree; None if it is not such a denial."""
    refusals = [one for one in denies if one.again and isinstance(one.said, Modify)]
    names = [one.scheduler for one in refusals]
    if len(names) < 2 or refusals[0] is not denies[0]:
        return None
    return f"This call was not run: {_describe_disagreement(names)}."


def _describe_disagreement(names: Sequence[str]) -> str:
    verb = "does" if len(names) == 1 else "do"
    return f"{' and '.join(names)} {verb} not agree to it as others have changed it, after {ROUNDS}"


def _deny(words: str, modify: Modify) -> Deny:
    because = f", because: {modify.reason}" if modify.reason else ""
    told = shorten(f"This call was not run: {words}{because}".removesuffix("."), MAX_REASON - 1)
    return Deny(reason=f"{told}.", priority=modify.priority, rule_name=modify.rule_name)
