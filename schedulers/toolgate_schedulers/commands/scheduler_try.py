"""Do the work of `toolgate scheduler try`: ask one scheduler about calls written by hand, without a bus.

The scheduler is made as in `scheduler run`, and asked as in an author's test (`toolgate_schedulers.testing`).
Several calls are asked about on the same state, one after the other.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Final

from pydantic import ValidationError
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.terminal import console
from toolgate_bus.config.check import check, explain
from toolgate_bus.config.document import Document
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import (
    AskUser,
    Continue,
    Deny,
    Failure,
    Hold,
    Modify,
    ToolSelecting,
    Verdict,
)
from toolgate_bus.protocol.json_values import UnreadableJson, read_json
from toolgate_bus.ruling.conditions.conditions import Truth
from toolgate_bus.ruling.conditions.matching import CallMatcher, describe_unseen
from toolgate_bus.ruling.rule_doubts import Place
from toolgate_bus.telemetry.printable import visible

from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.shipped.approval.config import ApprovalConfig, find_rule
from toolgate_schedulers.shipped.policy.result_ruling import find_subject
from toolgate_schedulers.shipped.policy.rules import POINTS
from toolgate_schedulers.shipped.policy.scheduler import PolicyConfig, explain_ruling, name_of
from toolgate_schedulers.shipped.provenance import ProvenanceConfig, rule_on
from toolgate_schedulers.shipped.rate_limit import RateLimitConfig
from toolgate_schedulers.shipped.rule_listing import CONFIGS
from toolgate_schedulers.shipped.slots.config import SlotsConfig, find_pools
from toolgate_schedulers.testing import Answer, NoAnswerError, NotAsked, question, trial

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
    on = find_subject(call)
    about = [] if on == "call" else [f"on: {on}"]
    about += [] if on in POINTS else [f"tools: {json.dumps(call.tool_name, ensure_ascii=False)}"]
    allow = f"{{{', '.join(about)}, action: allow}}"
    if isinstance(answer, AskUser):
        yield "a person approves it"
    if number is None:
        yield f"a rule that allows it: {allow}"
        return
    rule, name = config.rules[number], name_of(config.rules[number], number)
    seen, _ = _sight(rule, rule.tools, call)
    then = _without(config, call, number)
    if rule.mask:  # it applies whatever the rules above say
        yield f"`when` or `unless` in {name} that does not fit it{then}"
        return
    if isinstance(answer, Hold) or (rule.is_ordered and answer.action == "deny"):
        yield "first do what the reason asks for"
    elif seen is False:
        yield f"write the call so that {name} can see its values, and does not fit it{then}"
        yield f"`unknown: allow` in {name}: values that it cannot see count for the call{then}"
    elif written := list(_written_conditions(rule, document, ("rules", number))):
        others = "another result, or other arguments" if on == "result" else "other arguments"
        yield f"{others}, which {name} does not fit ({', '.join(written)}){then}"
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
    named = [number for number, sink in enumerate(config.sinks or ()) if sink.name == verdict.rule_name]
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


MAX_CALL: Final = 1 << 20
SPELLINGS: Final = {"tool": "tool_name", "arguments": "tool_input"}
_REPLACERS: Final = ("heuristic", "router")
SAMPLE: Final = '\'{"tool": "delete_file", "arguments": {"path": "a.txt"}}\''


@dataclass(frozen=True, slots=True)
class TriedCall:
    """Call with the scheduler's answer."""

    call: ToolSelecting
    answer: Answer | None
    """Last answer; None if there was none."""
    missing: str = ""
    """Reason that there was no answer."""
    asked: bool = True
    """True if an orchestrator would ask the scheduler about this tool."""


class ReasonFinder:
    """Finder of the rule of a configuration that decided."""

    def __init__(self, spec: str, document: Document | None) -> None:
        self._spec, self._document = spec, document

    def find(self, tried: TriedCall) -> RulingReason | None:
        """Return the reason of a ruling; None if it cannot be told."""
        return explain_answer(self._spec, self._document, tried.call, tried.answer)

    def where(self, reason: RulingReason) -> str:
        """Return file and line of the rule."""
        return self._document.where(reason.place) if self._document is not None else ""

    def hint(self, tried: TriedCall) -> str:
        """Return what the call lacks to be replaced, in words; empty if it lacks nothing."""
        listed = "available_tools" in tried.call.model_fields_set
        if self._spec not in _REPLACERS or listed or not isinstance(tried.answer, Continue):
            return ""
        return '`"available_tools": […]` in the call says which tools may replace it'


def parse_call(text: str) -> ToolSelecting:
    """Read a call from JSON: `tool`, `arguments`, and any other field of a question; raise ConfigError."""
    if len(text) > MAX_CALL:
        raise ConfigError(f"--call: longer than {MAX_CALL // 1024} KiB")
    try:
        given = read_json(text)
    except UnreadableJson as error:
        raise ConfigError(f"--call: is not JSON: {error}; write it as {SAMPLE}") from None
    if not isinstance(given, dict):
        raise ConfigError(f"--call: must be an object, as {SAMPLE}")
    fields: dict[str, Any] = {SPELLINGS.get(str(name), str(name)): value for name, value in given.items()}
    tool, arguments = fields.pop("tool_name", ""), fields.pop("tool_input", {})
    if not isinstance(tool, str) or not tool or not isinstance(arguments, Mapping):
        raise ConfigError(f"--call: must name a `tool`, and its `arguments` by name, as {SAMPLE}")
    try:
        return question(tool, arguments, **fields)
    except ValidationError as error:
        lines = (
            f"--call: {'.'.join(map(str, loc))}: {words}" for loc, words in explain(error, ToolSelecting)
        )
        raise ConfigError("\n".join(lines)) from None


async def try_calls(
    scheduler: Scheduler, calls: Sequence[ToolSelecting], timeout_s: float
) -> list[TriedCall]:
    """Ask about the calls, one after the other; each gets `timeout_s` seconds, its holds included."""
    tried = []
    async with trial(scheduler) as asker:
        for call in calls:
            if call.phase not in scheduler.phases:
                phases = " and ".join(scheduler.phases)
                why = f"{scheduler.name} rules in the phase {phases}, not in {call.phase}"
                to_do = f'add `"phase": "{scheduler.phases[0]}"` to the call'
                tried.append(TriedCall(call, None, f"{why}: {to_do}", asked=False))
                continue
            fields = call.model_dump(exclude={"tool_name", "tool_input", "ttl_ms"}, exclude_unset=True)
            try:
                asked = asker.pose(call.tool_name, call.tool_input, timeout_s=timeout_s, **fields)
            except NotAsked as error:
                tried.append(TriedCall(call, None, str(error), asked=False))
                continue
            try:
                tried.append(TriedCall(call, await asked.final(timeout_s)))
            except NoAnswerError:
                asker.withdraw(asked)
                held = asked.answers[-1] if asked.answers else None
                tried.append(TriedCall(call, held, "" if held else f"no answer within {timeout_s:g} s"))
    return tried


def show(tried: TriedCall, name: str, reasons: ReasonFinder) -> None:
    """Print the call, the verdict, the reason, and changes that would allow the call."""
    call = tried.call
    arguments = json.dumps(call.tool_input, ensure_ascii=False)
    console.print(f"{escape(call.tool_name)} {escape(arguments)}", soft_wrap=True)
    word, why = _words(tried)
    console.print(f"  {escape(name)}: [bold]{word}[/]{escape(f': {why}') if why else ''}", soft_wrap=True)
    if hint := reasons.hint(tried):
        console.print(f"  {escape(hint)}", soft_wrap=True)
    reason = reasons.find(tried)
    if reason is None:
        return
    sight = {True: ", which saw all arguments that it checks", False: f", unseen: {reason.unseen}", None: ""}
    place = f" ({reasons.where(reason)})" if reason.place else ""
    told = visible(f"{reason.rule}{place}{sight[reason.seen]}")
    console.print(f"  decided by {escape(told)}", soft_wrap=True)
    for way in reason.ways:
        console.print(f"  to allow it: {escape(visible(way))}", soft_wrap=True)


def _words(tried: TriedCall) -> tuple[str, str]:
    answer = tried.answer
    match answer:
        case None:
            return ("no answer" if tried.asked else "not asked"), tried.missing
        case Modify():
            arguments = (
                "" if answer.arguments is None else f" {json.dumps(answer.arguments, ensure_ascii=False)}"
            )
            to = f" for {answer.agent_target}" if answer.agent_target else ""
            return "modify", visible(f"{answer.tool}{arguments}{to}; {answer.reason or 'no reason given'}")
        case AskUser():
            asks = f"{answer.prompt!r}, {' or '.join(answer.options)}, within {answer.timeout_s:g} s"
            return "ask_user", visible(f"{asks}; {answer.reason or 'no reason given'}")
        case Hold():
            return "hold", visible(f"for {answer.seconds:g} s; {answer.reason or 'no reason given'}")
        case _:
            return answer.action, visible(answer.reason or "")


def as_json(tried: TriedCall, name: str, reasons: ReasonFinder) -> dict[str, Any]:
    """Return the result for scripts."""
    reason = reasons.find(tried)
    answer = tried.answer
    verdict = "none" if tried.asked else "not_asked"
    return {
        "scheduler": name,
        "tool": tried.call.tool_name,
        "arguments": tried.call.tool_input,
        "verdict": answer.action if answer else verdict,
        **({} if answer else {"reason": tried.missing}),
        **(answer.model_dump(exclude={"action"}, exclude_none=True) if answer else {}),
        **({} if reason is None else _reason_record(reason, reasons.where(reason))),
    }


def _reason_record(reason: RulingReason, where: str) -> dict[str, Any]:
    decided = {"rule": reason.rule, "where": where, "seen": reason.seen, "unseen": reason.unseen or None}
    return {"decided_by": decided, "to_allow": list(reason.ways)}
