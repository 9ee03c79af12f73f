"""Rules of the decision, in words for people: one for each `why`, and each invalid modify. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolgate_bus.protocol.events import OVERRULED, Why
from toolgate_bus.protocol.names import OPERATOR

_RULES: Final[Mapping[Why, str]] = {
    "agreed": "Nobody objected: where no deny and no modify counts, the LLM's own choice stands.",
    "unasked": "No scheduler was there to ask and none was required: the LLM's own choice stands.",
    "failed_open": "Nobody objected, and {silent} did not answer: silence of an optional scheduler "
    "counts as continue.",
    "modified": "{scheduler} decided: of the valid modifies that of the highest priority wins, and no "
    "deny came.",
    "denied": "{scheduler} decided: a valid deny from any scheduler vetoes, whatever the priorities.",
    "silent": "{scheduler} decided by its silence: it is required, and a required scheduler that gives "
    "no valid answer in time denies.",
    "expired": "{scheduler} decided: a call that is held, or put to a person, is denied when the time "
    "runs out.",
    "refused": "{scheduler} wanted a person asked, and the person refused.",
    "gate_failed": "No rule could read this call, or the gate failed on it, and somebody might have "
    "objected: that denies.",
    "no_approver": "{scheduler} wanted a person asked, and there was nobody to ask: that denies.",
    "bus_down": "The bus was away, and the orchestrator's `on_bus_down` (deny, where a scheduler is "
    "required) decided.",
    "cancelled": "The turn was cancelled before anything was decided.",
    "pending": "{scheduler} wants a person asked, and the question waits: it is decided once somebody "
    "answers it.",
    "void": "A person's answer came with this call, and fits no question that waits: that denies.",
}
RULES: Final[Mapping[str, str]] = {str(why): rule for why, rule in _RULES.items()}
"""Rule behind each `why`. `{scheduler}` is the scheduler that decided, `{silent}` those without an answer."""
PROBLEMS: Final[Mapping[str, str]] = {
    "unavailable_tool": "the agent has no such tool",
    "ambiguous_tool": "two functions of the agent bear that name, and nobody can tell which is meant",
    "not_allowed": "the orchestrator's configuration does not let this scheduler use that tool",
    "schema": "the arguments do not fit the tool's schema",
    "placeholder": "it holds a placeholder that it may not use there",
    "agent": "it delegates to an agent that is not there",
    "phase": "a call that is about to run is not replaced any more",
    OVERRULED: "it is optional, and wanted another call than all required schedulers agreed to",
}
"""Reasons why a modify is set aside."""
UNASKED: Final[Mapping[str, str]] = {
    "incompatible": "it speaks no version of the wire that the agent speaks",
    "phase": "it does not rule on replacements",
}
"""Reasons why an optional scheduler is not asked."""


def rule_of(decision: Mapping[str, Any], counted: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the rule that decided. `counted` are the verdicts that came in time, without shadows."""
    why, decided = decision.get("why"), decision.get("scheduler")
    rule = RULES.get(str(why))
    if rule is None:
        return f"The record says why: {why}."
    if why == "expired":  # a hold ran out, or a person did not answer, if the verdicts tell
        said = {str(one.get("action")) for one in counted if one.get("scheduler") == decided}
        if "ask_user" in said:
            rule = "{scheduler} wanted a person asked, and nobody answered in time: that denies."
        elif "hold" in said:
            rule = "{scheduler} held the call and gave no answer in time: a hold that runs out denies."
    denials = [one for one in counted if one.get("scheduler") == decided and one.get("action") == "deny"]
    if why == "denied" and {one.get("phase") for one in denials} == {"verify"}:
        rule = "{scheduler} denied the replacement: a replacement is a new call, and a deny of it vetoes."
        if any(isinstance(one.get("said"), Mapping) for one in denials):
            rule = "{scheduler} is required and does not agree to the replacement: that denies."
    if why == "denied" and {one.get("phase") for one in denials} == {"admit"}:
        rule = "{scheduler} denied it as it was about to run: what others had given it was given back."
    if why == "denied" and decided == OPERATOR:
        rule = "An operator has stopped the agent: its calls are denied until somebody lifts the stop."
    silent = decision.get("silent")
    names = [str(one) for one in silent] if isinstance(silent, list | tuple) else []
    failed = [str(one.get("scheduler")) for one in counted if one.get("action") == "failed"]
    told = " and ".join(sorted({*names, *failed})) or "somebody"
    return rule.format(scheduler=decided or "A scheduler", silent=told)
