"""Explain in words the rule behind a decision, and why a modify was invalid. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolgate_bus.protocol.events import OVERRULED, Why
from toolgate_bus.protocol.names import OPERATOR

_RULES: Final[Mapping[Why, str]] = {
    "agreed": "Nobody objected: where no deny and no modify counts, the LLM's own choice stands.",
    "unasked": "No scheduler was alive to ask, and none was required: the LLM's own choice stands.",
    "failed_open": "Nobody objected, and {silent} did not answer: silence of an optional scheduler "
    "counts as continue.",
    "modified": "{scheduler} decided: the valid modify with the highest priority wins, and no deny came.",
    "denied": "{scheduler} decided: a valid deny from any scheduler vetoes, whatever the priorities.",
    "silent": "{scheduler} decided by its silence: it is required, and a required scheduler that gives "
    "no valid answer in time denies.",
    "expired": "{scheduler} decided: a call that is held, or put to a person, is denied when the time "
    "runs out.",
    "refused": "{scheduler} wanted a person asked, and the person refused.",
    "gate_failed": "No rule could read this call, or the gate failed on it, and a scheduler might have "
    "objected: the call is denied.",
    "no_approver": "{scheduler} wanted a person asked, and there was nobody to ask: the call is denied.",
    "bus_down": "The bus was away, and the orchestrator's `on_bus_down` (deny, if a scheduler is "
    "required) decided.",
    "cancelled": "The turn was cancelled before anything was decided.",
    "pending": "{scheduler} wants a person asked: the call is decided once somebody answers the question.",
    "void": "A person's answer came with this call, but matches no open question: the call is denied.",
}
RULES: Final[Mapping[str, str]] = {str(why): rule for why, rule in _RULES.items()}
"""Rule behind each `why`. `{scheduler}` is the scheduler that decided, `{silent}` those without an answer."""
PROBLEMS: Final[Mapping[str, str]] = {
    "unavailable_tool": "the agent has no such tool",
    "ambiguous_tool": "two functions of the agent have that name, so it is not clear which is meant",
    "not_allowed": "the orchestrator's configuration does not let this scheduler use that tool",
    "schema": "the arguments do not fit the tool's schema",
    "placeholder": "it contains a placeholder that is not allowed there",
    "agent": "it delegates to an agent that does not exist",
    "phase": "a call that is about to run can no longer be replaced",
    OVERRULED: "it is optional, and wanted another call than all required schedulers agreed to",
}
"""Reasons why a modify is set aside."""
UNASKED: Final[Mapping[str, str]] = {
    "incompatible": "it speaks no version of the wire that the agent speaks",
    "phase": "it does not rule on replacements",
}
"""Reasons why an optional scheduler is not asked."""


def rule_of(decision: Mapping[str, Any], counted: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the rule that decided, as a text. `counted` are the verdicts in time, except of shadows."""
    why, decided = decision.get("why"), decision.get("scheduler")
    rule = RULES.get(str(why))
    if rule is None:
        return f"The record says why: {why}."
    if why == "expired":  # a hold ran out, or a person did not answer, if the verdicts tell
        said = {str(one.get("action")) for one in counted if one.get("scheduler") == decided}
        if "ask_user" in said:
            rule = "{scheduler} wanted a person asked, and nobody answered in time: the call is denied."
        elif "hold" in said:
            rule = "{scheduler} held the call and gave no answer in time: a hold that runs out denies."
    denials = [one for one in counted if one.get("scheduler") == decided and one.get("action") == "deny"]
    if why == "denied" and {one.get("phase") for one in denials} == {"verify"}:
        rule = "{scheduler} denied the replacement: a replacement is a new call, and a deny of it vetoes."
        if any(isinstance(one.get("said"), Mapping) for one in denials):
            rule = "{scheduler} is required and does not agree to the replacement: the call is denied."
    if why == "denied" and {one.get("phase") for one in denials} == {"admit"}:
        rule = "{scheduler} denied it as it was about to run: what others had granted was given back."
    if why == "denied" and decided == OPERATOR:
        rule = "An operator has stopped the agent: its calls are denied until somebody lifts the stop."
    silent = decision.get("silent")
    names = [str(one) for one in silent] if isinstance(silent, list | tuple) else []
    failed = [str(one.get("scheduler")) for one in counted if one.get("action") == "failed"]
    told = " and ".join(sorted({*names, *failed})) or "somebody"
    return rule.format(scheduler=decided or "A scheduler", silent=told)
