"""Rule on a call by the rules of a policy that are about calls. Pure.

The first rule that fits counts. If a rule looks at something that could not be seen, the rules below are
looked at, too, and the strictest verdict counts. `result_ruling` finds the denial or question about a result
in the same way.
"""

from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from toolgate_bus.protocol.events import (
    AskUser,
    Continue,
    Deny,
    Hold,
    Mask,
    Modify,
    Replace,
    ToolSelecting,
    Verdict,
)
from toolgate_bus.protocol.names import MAX_REASON, MAX_RULE
from toolgate_bus.ruling.conditions.conditions import Truth
from toolgate_bus.ruling.conditions.matching import as_each_agent, describe_unseen, explain_lineage
from toolgate_bus.ruling.local_table import DEFAULT_RULE, deny_by_default, deny_by_rule
from toolgate_bus.ruling.merge import ORDER
from toolgate_bus.ruling.observed import Observation, ObservedAction, add_observations

from toolgate_schedulers.shipped.policy.rules import Action, NumberedRules, PolicyConfig, PolicyRule, name_of
from toolgate_schedulers.shipped.policy.verdicts import UNKNOWN, Past, check_order

ALLOWED: Final = Continue()
ACTIONS: Final[Mapping[type, ObservedAction]] = MappingProxyType(
    {Deny: "deny", AskUser: "ask", Hold: "hold", Mask: "mask", Modify: "mask", Replace: "mask"}
)
"""What a verdict does, in the words of an observation."""
STRICTNESS: Final[Mapping[str, float]] = MappingProxyType({**ORDER, "hold": 0.5})
Ruled = tuple[Verdict, tuple[int, ...]]
"""A verdict, and the numbers (from 0) of the rules behind it: those that observe, and last the one that
decides."""


def rule_on_call(config: PolicyConfig, call: ToolSelecting, past: Past = UNKNOWN) -> Ruled:
    """Return the verdict on a call before it runs, and the rules behind it."""
    return rule_for_each(config.rules_for(call.tool_name), call, past, config.default)


def rule_for_each(rules: NumberedRules, call: ToolSelecting, past: Past, default: Action) -> Ruled:
    """Return the strictest verdict of these rules for any agent of the call's lineage."""
    verdict, fired = _rule_for_one(rules, call, past, default)
    for one in islice(as_each_agent(call), 1, None):
        if isinstance(verdict, Deny):
            break
        above, numbers = _rule_for_one(rules, one, past, default)
        if STRICTNESS[above.action] < STRICTNESS[verdict.action]:
            words = explain_lineage(above.reason or "", call.agent, one.agent)
            verdict, fired = above.model_copy(update={"reason": words}), (*fired, *numbers)
    return verdict, fired


def _rule_for_one(rules: NumberedRules, call: ToolSelecting, past: Past, default: Action) -> Ruled:
    observed: list[Observation] = []
    fired: list[int] = []
    strictest: Ruled | None = None
    """Strictest verdict so far, from rules that fit for certain, unseen, or by one element of a list."""
    is_certain = False
    for number, rule in rules:
        truth = rule.about(rule.tools, call, rule.elements)
        if truth is False or not rule.fits(truth):
            continue
        name = name_of(rule, number)
        verdict = _apply_rule(rule, name, call, truth, past)
        if verdict is None:
            continue
        if rule.mode != "enforce":
            fired.append(number)
            observed.append(Observation(name, ACTIONS[type(verdict)]))
            continue
        if strictest is None or STRICTNESS[verdict.action] < STRICTNESS[strictest[0].action]:
            strictest = verdict, (number,)
        if isinstance(verdict, Deny):
            break
        if truth or rule.unknown == "allow":
            is_certain = True
            if rule.action != "ask" or rule.about(rule.tools, call, "all") is not False:
                break
    if strictest is None or not (is_certain or isinstance(strictest[0], Deny)):
        otherwise = _default(default, call)
        if strictest is None or STRICTNESS[otherwise.action] < STRICTNESS[strictest[0].action]:
            strictest = otherwise, ()
    verdict, decided = strictest
    return _add_observations(verdict, observed), (*fired, *decided)


def _apply_rule(rule: PolicyRule, name: str, call: ToolSelecting, truth: Truth, past: Past) -> Verdict | None:
    """Return the verdict of a rule that is, or may be, about the call; None passes the call to the rules
    below."""
    if rule.is_ordered:
        barrier = check_order(rule, name, call, past, rule.reason)
        if barrier is not None:
            return barrier
        if rule.action is None or (rule.mode == "observe" and rule.action == "allow"):
            return None
        if rule.action == "allow" and rule.about(rule.tools, call, "all") is not True:
            return None
    return _verdict(rule, name, call, "" if truth else f"; {_describe_unseen(rule, call)}")


def reason_to_allow(rule: PolicyRule, name: str) -> str:
    """Return the reason of a rule that allows."""
    return rule.reason or f"allowed by {name}"


def _describe_unseen(rule: PolicyRule, call: ToolSelecting) -> str:
    if rule.on == "call":
        words = describe_unseen(rule, call)
        if rule.when_session and call.session_labels is None:
            return "the labels of its session are not known"
        return words
    paths = [path[:_SHOWN] for path in rule.unknown_paths(call)[:3]]
    return f"{', '.join(paths) or 'a part of it'} could not be seen whole"


_SHOWN: Final = 100


def _add_observations(verdict: Verdict, observed: list[Observation]) -> Verdict:
    """Add the actions of observing rules to the reason, if the call may run."""
    if not observed or not isinstance(verdict, Continue):
        return verdict
    return Continue(reason=add_observations(verdict.reason, observed))


def observe(verdict: Verdict, rule: str) -> Continue:
    """Return the verdict that lets the call go on and says what this rule would have done."""
    return Continue(reason=add_observations(None, [Observation(rule, ACTIONS[type(verdict)])]))


_WHAT: Final = {
    "call": ("{} is not allowed", "{} needs approval", "May {} run?"),
    "result": (
        "nobody may see what {} gave",
        "what {} gave needs approval",
        "May the agent see what {} gave?",
    ),
    "input": (
        "these words may not reach the agent",
        "the user's words need approval",
        "May the agent read this?",
    ),
    "output": ("this answer may not be given", "the answer needs approval", "May this answer be given?"),
}
"""Reason of a denial, reason of a question, and the question, by what a rule is on."""


def _verdict(rule: PolicyRule, name: str, call: ToolSelecting, unseen: str) -> Verdict:
    denied, needs, may = (words.format(call.tool_name) for words in _WHAT[rule.on])
    if rule.action == "allow":
        return Continue(reason=reason_to_allow(rule, name))
    if rule.action == "deny":
        return deny_by_rule(call.tool_name, name, rule.reason or denied, unseen)
    optional: dict[str, Any] = {
        field: value for field in ("options", "timeout_s") if (value := getattr(rule, field)) is not None
    }
    return AskUser(
        prompt=rule.prompt or f"{may} ({name})",
        reason=f"{rule.reason or needs} ({name}{unseen})"[:MAX_REASON],
        rule_name=name[:MAX_RULE],
        **optional,
    )


def _default(action: Action, call: ToolSelecting) -> Verdict:
    if action == "allow":
        return ALLOWED
    if action == "deny":
        return deny_by_default(call.tool_name)
    prompt = f"May {call.tool_name} run? (no rule is about it)"
    return AskUser(prompt=prompt, reason="no rule is about it", rule_name=DEFAULT_RULE)
