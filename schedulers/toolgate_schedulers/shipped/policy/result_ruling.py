"""Rule on the result of a call, on the user's words, and on the agent's answer. Pure.

The first rule that fits decides whether it is denied, asked about or let through. Every mask and every label
that fits applies. One verdict says all of it: a denial, or a mask with all its parts, with the labels.

A person who releases a result must not release what a rule masks. If both fit, the masked result replaces
the first one, and then comes round again for the person. Words and answers do not come round, so they are
denied.
"""

from collections.abc import Iterable
from typing import Any, Final

from toolgate_bus.protocol import placeholders
from toolgate_bus.protocol.events import (
    AskUser,
    Continue,
    Deny,
    Mask,
    MaskedPart,
    Modify,
    Replace,
    ToolSelecting,
    Verdict,
)
from toolgate_bus.protocol.names import MAX_REASON, MAX_RULE
from toolgate_bus.ruling.conditions.json_texts import MAX_TEXT
from toolgate_bus.ruling.conditions.matching import as_each_agent
from toolgate_bus.ruling.observed import Observation, add_observations
from toolgate_bus.ruling.results import mask_parts

from toolgate_schedulers.shipped.policy.call_ruling import Ruled, rule_for_each
from toolgate_schedulers.shipped.policy.fields import find_fields
from toolgate_schedulers.shipped.policy.masks import SearchBudget, TooMuchWork, bound, find_parts, list_names
from toolgate_schedulers.shipped.policy.rules import (
    NumberedRules,
    On,
    PolicyConfig,
    PolicyRule,
    name_of,
)
from toolgate_schedulers.shipped.policy.verdicts import UNKNOWN

TEXT: Final = "text"
"""Argument that has the user's words, or the answer."""
TOO_LONG: Final = "it cannot be searched for what must be masked: it is too long, or the rules are too many"
UNSEEN: Final = "it cannot be searched for what must be masked: it could not be seen whole"
AFTER: Final = "it must be masked, and somebody has changed it since"
BOTH: Final = "it must be masked, and a person must be asked about it, and both cannot be done"
_ON: Final[dict[str, On]] = {"turn:input": "input", "turn:output": "output"}


def find_subject(call: ToolSelecting) -> On:
    """Return what a question is about: the kind of rules that count."""
    return "result" if call.phase == "result" else _ON.get(call.tool_name, "call")


def rule_on_result(config: PolicyConfig, call: ToolSelecting) -> Ruled:
    """Return the verdict on a result, on words or on an answer, and the rules behind it."""
    rules = config.rules_for(call.tool_name, find_subject(call))
    deciding = tuple((number, rule) for number, rule in rules if rule.action is not None)
    verdict, fired = rule_for_each(deciding, call, UNKNOWN, "allow")
    fitting = [(number, rule) for number, rule in rules if rule.action is None and _fits(rule, call)]
    labels = _join_labels(rule for _, rule in fitting)
    fired = (*(number for number, rule in fitting if rule.label), *fired)
    masking = tuple((number, rule) for number, rule in fitting if rule.mask)
    if isinstance(verdict, Deny) or not masking:
        return _label(verdict, labels), fired
    return _mask(config, call, verdict, fired, masking, labels)


def _mask(
    config: PolicyConfig,
    call: ToolSelecting,
    verdict: Verdict,
    fired: tuple[int, ...],
    masking: NumberedRules,
    labels: dict[str, Any],
) -> Ruled:
    """Return the verdict with what the masks hide."""
    is_result = call.phase == "result"
    value = call.result if is_result else call.tool_input.get(TEXT, "")
    budget, parts = SearchBudget(), list[MaskedPart]()
    hiding: list[tuple[int, PolicyRule]] = []
    observed: list[Observation] = []
    for number, rule in masking:
        name = name_of(rule, number)
        if not is_result and (type(value) is not str or placeholders.hides(value) or _is_unseen(call)):
            return _withhold(name, UNSEEN, labels), (*fired, number)
        try:
            found = find_parts(value, rule.finder, budget, is_cut=call.result_cut)
            found += find_fields(value, rule.masked_fields, config.marks, budget).parts
        except TooMuchWork:
            return _withhold(name, TOO_LONG, labels), (*fired, number)
        if not found:
            continue
        if rule.mode == "observe":
            fired = (*fired, number)
            observed.append(Observation(name, "mask"))
            continue
        parts += found
        hiding.append((number, rule))
    if observed and not parts and isinstance(verdict, Continue):
        verdict = Continue(reason=add_observations(verdict.reason, observed))
    if not parts:
        return _label(verdict, labels), fired
    name = ", ".join(name_of(rule, number) for number, rule in hiding)
    told: dict[str, Any] = {
        "reason": f"{hiding[0][1].reason or ', '.join(list_names(parts))} ({name})"[:MAX_REASON],
        "rule_name": name_of(hiding[0][1], hiding[0][0])[:MAX_RULE],
        "session_labels": labels or None,
    }
    fired = (*fired, *(number for number, _ in hiding))
    is_asked = isinstance(verdict, AskUser)
    if is_result and not is_asked:
        return Mask(parts=tuple(bound(parts)), **told), fired
    masked = mask_parts(value, bound(parts)).value
    if is_result and not call.again:
        return Replace(result=masked, **told), fired
    if is_asked or call.phase != "select":
        return _withhold(name, BOTH if is_asked else AFTER, labels), fired
    return Modify(tool=call.tool_name, arguments={TEXT: masked}, **told), fired


def list_unread(config: PolicyConfig, call: ToolSelecting) -> list[str]:
    """Return the rules whose fields hide nothing, because the result is a text that holds no JSON."""
    if type(call.result) is not str or len(call.result) > MAX_TEXT:
        return []
    return [
        name_of(rule, number)
        for number, rule in config.rules_for(call.tool_name, find_subject(call))
        if rule.masked_fields
        and _fits(rule, call)
        and not find_fields(call.result, rule.masked_fields, (), SearchBudget()).is_read
    ]


def _is_unseen(call: ToolSelecting) -> bool:
    return placeholders.stands_for_all(call.tool_input)


def _fits(rule: PolicyRule, call: ToolSelecting) -> bool:
    """Return whether a mask or a label applies, for the call's agent or any agent above it."""
    return any(rule.fits(rule.about(rule.tools, one, rule.elements)) for one in as_each_agent(call))


def _join_labels(rules: Iterable[PolicyRule]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for rule in rules:
        for name, values in (rule.label or {}).items():
            found.setdefault(name, {}).update(dict.fromkeys(values))
    return {name: tuple(values) for name, values in found.items()}


def _label(verdict: Verdict, labels: dict[str, Any]) -> Verdict:
    return verdict.model_copy(update={"session_labels": labels}) if labels else verdict


def _withhold(name: str, why: str, labels: dict[str, Any]) -> Deny:
    return Deny(
        reason=f"{why} ({name})"[:MAX_REASON], rule_name=name[:MAX_RULE], session_labels=labels or None
    )
