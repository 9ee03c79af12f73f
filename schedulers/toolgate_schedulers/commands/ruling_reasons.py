"""Find the rule that decided a call, whether it saw all it needs, and changes that would allow the call.

For `scheduler try`, and shipped schedulers: the scheduler rules, and this module reads its configuration.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Final

from toolgate_bus.config.check import check
from toolgate_bus.config.document import Document
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Failure, Hold, ToolSelecting, Verdict
from toolgate_bus.ruling.conditions.conditions import Truth
from toolgate_bus.ruling.conditions.matching import CallMatcher, describe_unseen
from toolgate_bus.ruling.rule_doubts import Place

from toolgate_schedulers.shipped.approval.config import ApprovalConfig, find_rule
from toolgate_schedulers.shipped.policy.scheduler import PolicyConfig, explain_ruling, name_of
from toolgate_schedulers.shipped.provenance import ProvenanceConfig, rule_on
from toolgate_schedulers.shipped.rate_limit import RateLimitConfig
from toolgate_schedulers.shipped.rule_listing import CONFIGS
from toolgate_schedulers.shipped.slots.config import SlotsConfig, find_pools

DEFAULT: Final = "default"
_MAX_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class RulingReason:
    """Reason of a ruling."""

    rule: str
    """Name of the rule, or `rule 1` and so on; `default` if no rule is about the call."""
    place: Place
    seen: bool | None = None
    """True if the rule saw all arguments that it looks at; None if it looks at none."""
    unseen: str = ""
    """Values that could not be seen, in words."""
    ways: tuple[str, ...] = ()
    """Changes that would allow the call, each by itself."""


def explain_answer(
    spec: str, document: Document | None, call: ToolSelecting, answer: Verdict | Failure | None
) -> RulingReason | None:
    """Return the reason of a ruling; None if it cannot be told."""
    model = CONFIGS.get(spec)
    if model is None or document is None or answer is None or isinstance(answer, Failure):
        return None
    return _explain(check(model, document.mapping(), document), document, call, answer)


@singledispatch
def _explain(
    _config: Any, _document: Document, _call: ToolSelecting, _answer: Verdict
) -> RulingReason | None:
    return None


@_explain.register
def _(config: PolicyConfig, document: Document, call: ToolSelecting, answer: Verdict) -> RulingReason:
    number = _policy_rule(config, call, answer)
    ways = () if isinstance(answer, Continue) else tuple(_policy_ways(config, document, call, answer, number))
    if number is None:
        return RulingReason(DEFAULT, ("default",), None, "", ways)
    rule = config.rules[number]
    seen, unseen = _sight(rule, rule.tools, call)
    return RulingReason(name_of(rule, number), ("rules", number), seen, unseen, ways)


def _policy_rule(config: PolicyConfig, call: ToolSelecting, answer: Verdict) -> int | None:
    """Return the number of the rule that decided; None for the default."""
    verdict, fired = explain_ruling(config, call)
    if config.mode == "enforce" and verdict.action != answer.action:  # its reason names a rule on order
        said = answer.reason or ""
        return next((at for at, rule in enumerate(config.rules) if f"({name_of(rule, at)}" in said), None)
    return fired[-1] if fired and config.rules[fired[-1]].mode == "enforce" else None


def _policy_ways(
    config: PolicyConfig, document: Document, call: ToolSelecting, answer: Verdict, number: int | None
) -> Iterator[str]:
    allow = f"{{tools: {json.dumps(call.tool_name, ensure_ascii=False)}, action: allow}}"
    if isinstance(answer, AskUser):
        yield "a person approves it"
    if number is None:
        yield f"a rule that allows it: {allow}"
        return
    rule, name = config.rules[number], name_of(config.rules[number], number)
    seen, _ = _sight(rule, rule.tools, call)
    then = _without(config, call, number)
    if isinstance(answer, Hold) or (rule.is_ordered and answer.action == "deny"):
        yield "first do what the reason asks for"
    elif seen is False:
        yield f"write the call so that {name} can see its values, and does not fit it{then}"
        yield f"`unknown: allow` in {name}: values that it cannot see count for the call{then}"
    elif written := list(_written_conditions(rule, document, ("rules", number))):
        yield f"other arguments, which {name} does not fit ({', '.join(written)}){then}"
    yield f"a rule above {name} that allows it: {allow}"


def _without(config: PolicyConfig, call: ToolSelecting, number: int) -> str:
    """Return the verdict of the other rules, in words; empty if they allow the call."""
    left = [(at, rule) for at, rule in enumerate(config.rules) if at != number]
    rules = tuple(rule.model_copy(update={"name": name_of(rule, at)}) for at, rule in left)
    verdict, _ = explain_ruling(PolicyConfig.model_construct(rules=rules, default=config.default), call)
    if isinstance(verdict, Continue):
        return ""
    does = "asks about" if isinstance(verdict, AskUser) else "denies"
    return f"; but {getattr(verdict, 'rule_name', None) or 'another rule'} {does} it then"


def _written_conditions(rule: CallMatcher, document: Document, place: Place) -> Iterator[str]:
    """List the conditions of a rule as they are written."""
    value: Any = document.value
    for step in (*place, "when"):
        value = value[step] if not isinstance(value, Mapping) else value.get(step, {})
    for path in rule.when:
        written = value.get(path) if isinstance(value, Mapping) else None
        yield f"{path}: {json.dumps(written, ensure_ascii=False, default=repr)[:_MAX_SHOWN]}"


@_explain.register
def _(
    config: ApprovalConfig, _document: Document, call: ToolSelecting, answer: Verdict
) -> RulingReason | None:
    need = find_rule(config, call)
    if need is None or isinstance(answer, Continue):
        return None
    seen, unseen = _sight(need.rule, need.rule.tools, call)
    ways = ["a person approves it (`toolgate approvals approve`)"]
    if seen is False:
        ways += [f"write the call so that {need.called} can see its values, and does not fit it"]
    ways += [f"a rule above {need.called} with `action: allow`"]
    return RulingReason(need.called, ("rules", config.rules.index(need.rule)), seen, unseen, tuple(ways))


@_explain.register
def _(config: SlotsConfig, _document: Document, call: ToolSelecting, answer: Verdict) -> RulingReason | None:
    pools = find_pools(config, call)
    if not pools or isinstance(answer, Continue):
        return None
    seen, unseen = _sight(pools[0], pools[0].tools, call)
    ways = ("another call gives its slot back", f"a higher limit for {pools[0].name}")
    return RulingReason(pools[0].name, ("pools", config.pools.index(pools[0])), seen, unseen, ways)


@_explain.register
def _(
    config: RateLimitConfig, _document: Document, _call: ToolSelecting, answer: Verdict
) -> RulingReason | None:
    called = [limit.name or f"limit {number}" for number, limit in enumerate(config.limits, start=1)]
    said = answer.reason or ""
    number = next((at for at, name in enumerate(called) if f"({name})" in said), None)
    if not isinstance(answer, Deny) or number is None:
        return None
    words = config.limits[number].rate.words
    ways = ("a pause, as the reason says", f"a higher rate than {words}, or a burst")
    return RulingReason(called[number], ("limits", number), None, "", ways)


@_explain.register
def _(
    config: ProvenanceConfig, _document: Document, call: ToolSelecting, answer: Verdict
) -> RulingReason | None:
    verdict = rule_on(config, call)
    if not isinstance(verdict, Deny | AskUser) or verdict.rule_name is None:
        return None
    named = [number for number, sink in enumerate(config.sinks) if sink.name == verdict.rule_name]
    place: Place = ("sinks", named[0]) if named else ("sinks",)
    ways = ["a request of the user that names what the reason says (`request` of the call)"]
    ways += ["the addressee in `trusted`"]
    ways += ["a person approves it"] if isinstance(answer, AskUser) else []
    return RulingReason(verdict.rule_name, place, None, "", tuple(ways))


def _sight(rule: CallMatcher, tools: Sequence[str], call: ToolSelecting) -> tuple[bool | None, str]:
    """Return whether a rule saw that it is about a call, and the values that it could not see."""
    agents = dict.fromkeys((call.agent, *call.lineage))
    truths: set[Truth] = {
        rule.about(tuple(tools), call.model_copy(update={"agent": agent})) for agent in agents
    }
    if True in truths:
        return True if rule.when or rule.schema_ is not None else None, ""
    if None not in truths:
        return None, ""
    return False, describe_unseen(rule, call)
