"""The shipped scheduler `policy`: allows, denies or asks by ordered rules on tools, arguments and agents.

The first rule that fits a call rules on it; if none does, `default` counts. Every denial names its rule.
A rule in `mode: observe` never rules: the verdict on a call that goes on says what the rule would have done.
A policy in `mode: observe` lets every call go on, and says what enforcing it would have done.
A replacement (phase `verify`) is judged by the same rules as the LLM's own call.
If a rule looks at an argument that could not be seen (a placeholder, two readings), the rule fits if it
denies or asks, and does not fit if it allows; `unknown: allow` is the reverse. Toolgate then also looks at
the rules below, and the strictest verdict counts: a hidden value brings no advantage.
A sub-agent's call is ruled on for the sub-agent and for each agent above it, and the strictest verdict
counts: an agent cannot have another do what is denied to it.
A rule may look at earlier calls (`after`, `unless_after`, `at_most`). If they are not as the rule wants,
the call is denied, or waits; if they are, the rule's action counts. Only a policy with such rules reads
facts.
"""

from collections.abc import Mapping
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BaseModel, Field, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Hold, Phase, ToolSelecting, Verdict
from toolgate_bus.protocol.llm import add_selector
from toolgate_bus.protocol.names import MAX_REASON, MAX_RULE
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.conditions import Quantifier, Truth
from toolgate_bus.ruling.conditions.matching import (
    Unknown,
    as_each_agent,
    check_unique,
    describe_unseen,
    explain_lineage,
)
from toolgate_bus.ruling.local_table import (
    DEFAULT_RULE,
    Answer,
    deny_by_default,
    deny_by_rule,
    describe_conditions,
    encode_table,
    list_concerns,
)
from toolgate_bus.ruling.merge import ORDER
from toolgate_bus.ruling.observed import Observation, ObservedAction, add_observations

from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.policy.claims import QueuePositions
from toolgate_schedulers.shipped.policy.keeper import OrderKeeper
from toolgate_schedulers.shipped.policy.needs import OrderMatcher, find_circle
from toolgate_schedulers.shipped.policy.order import new_history
from toolgate_schedulers.shipped.policy.peers import PeerNotes
from toolgate_schedulers.shipped.policy.verdicts import UNKNOWN, Past, check_order

Action = Literal["allow", "deny", "ask"]
Mode = Literal["enforce", "observe"]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Reason = Annotated[str, Field(min_length=1, max_length=800)]
"""Reason of a rule. The worker cuts reasons at 1024 characters, so this leaves room for the rule's name."""
_ONLY_ASK = ("prompt", "options", "timeout_s")
_ALLOWED = Continue()
_ACTIONS: Final[Mapping[type, ObservedAction]] = {Deny: "deny", AskUser: "ask", Hold: "hold"}
_UNKNOWN_ORDER = "not knowing the calls before it"
"""Rule of an observation for calls whose past an `OrderKeeper` did not know in time."""
_STRICTNESS: Final[Mapping[str, float]] = MappingProxyType({**ORDER, "hold": 0.5})
MAX_TOLD: Final = 8
MAX_NAMES: Final = 4096
"""Maximum number of tool names whose rules are cached."""


class PolicyRule(OrderMatcher):
    """Action for the calls that fit. Denials give the rule's name, or `rule 1` and so on."""

    action: Action | None = None
    """`allow`, `deny` or `ask` (a person). Not needed with `after`, `unless_after` or `at_most`: calls that
    they let pass go on to the rules below."""
    mode: Mode = "enforce"
    """`observe`: the rule lets its calls go on to the rules below. If the call runs, the reason of the
    policy's verdict in `toolgate decisions` says what the rule would have done. For `deny` and `ask`. The
    policy's own `mode` observes with all rules at once."""
    unknown: Unknown = "deny"
    """`deny`: a value that the rule cannot see counts against the call, so the rule fits if it denies or
    asks, not if it allows. `allow`: the reverse."""
    reason: Reason | None = None
    """Reason that the LLM is told with a denial, at most 800 characters."""
    prompt: Text | None = None
    """Question to the person. For `ask` only."""
    options: Annotated[tuple[Text, ...], Field(min_length=1, max_length=16)] | None = None
    """Choices for the person. For `ask` only."""
    timeout_s: Annotated[float, Field(gt=0, le=86_400, strict=True)] | None = None
    """Seconds the person has (300 by default); then the call is denied. For `ask` only."""

    @model_validator(mode="after")
    def _says_when(self) -> "PolicyRule":
        if self.action is None and not self.is_ordered:
            raise ValueError("action: is required: allow, deny or ask")
        if self.action == "deny" and self.is_ordered:
            raise ValueError(
                "action: after, unless_after and at_most deny by themselves: give allow or ask for the calls "
                "that they let pass, or no action"
            )
        if self.mode == "observe" and self.wait_s is not None:
            raise ValueError("wait_s: a rule that only observes cannot make a call wait")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> "PolicyRule":
        given = [field for field in _ONLY_ASK if getattr(self, field) is not None]
        if given and self.action != "ask":
            raise ValueError(f"{given[0]}: only for action: ask, not for {self.action}")
        if self.mode == "observe" and self.action == "allow" and not self.is_ordered:
            raise ValueError("mode: observe is for deny and ask: observing an allow would show nothing")
        return self

    def fits(self, truth: Truth) -> bool:
        """Return whether the rule applies, given whether it is about the call (None: not certain)."""
        allows = self.action == "allow" and not self.is_ordered
        return allows is (self.unknown == "allow") if truth is None else truth

    @cached_property
    def elements(self) -> Quantifier:
        """Elements of a list that must fit: any if the rule restricts, all if it allows."""
        return "all" if self.action == "allow" and not self.is_ordered else "any"


class PolicyConfig(StrictModel):
    """Configuration file of a policy: the first of the `rules` that fits counts, else the `default`."""

    rules: Annotated[tuple[PolicyRule, ...], Field(max_length=10_000), AfterValidator(check_unique)] = ()
    """Rules in order; the first one that fits a call counts."""
    default: Action = "allow"
    """Action for calls that no rule fits: `allow`, `deny` or `ask`."""
    mode: Mode = "enforce"
    """`observe`: every call goes on, whatever rules and `default` say. The reason of the policy's verdict
    says what they would have done, and `toolgate report` counts it. `toolgate policy enforce` and `toolgate
    policy observe` switch it."""

    @model_validator(mode="after")
    def _says_something(self) -> "PolicyConfig":
        if self.model_fields_set <= {"mode"}:
            raise ValueError("is empty: give rules, or a default (allow, deny or ask)")
        if circle := sorted(find_circle([rule for rule in self.rules if rule.mode == "enforce"])):
            names = ", ".join(circle[:MAX_TOLD])
            raise ValueError(
                f"rules: after: {names} could never run: each may run only after one of them. Let one run "
                "first: put a rule without `after` above, or give its rule conditions (`when`, `agents` ...)"
            )
        return self

    @cached_property
    def order_rules(self) -> "tuple[PolicyRule, ...]":
        """Rules that look at earlier calls."""
        return tuple(rule for rule in self.rules if rule.is_ordered)

    @cached_property
    def _by_tool(self) -> dict[str, tuple[tuple[int, PolicyRule], ...]]:
        return {}

    def rules_for(self, tool: str) -> tuple[tuple[int, PolicyRule], ...]:
        """Return the rules that may be about a tool, with their numbers (from 0)."""
        found = self._by_tool.get(tool)
        if found is None:
            found = tuple(
                (number, rule)
                for number, rule in enumerate(self.rules)
                if globs.fits(rule.tools, tool) is not False
            )
            if len(tool) <= globs.SHORT:
                if len(self._by_tool) >= MAX_NAMES:
                    self._by_tool.clear()
                self._by_tool[tool] = found
        return found


def rule_on(config: PolicyConfig, call: ToolSelecting, past: Past = UNKNOWN) -> Verdict:
    """Return the verdict on a call, by the policy's mode."""
    verdict, fired = explain_ruling(config, call, past)
    if config.mode == "enforce" or isinstance(verdict, Continue):
        return verdict
    rule = getattr(verdict, "rule_name", None) or name_of(config.rules[fired[-1]], fired[-1])
    return _observe(verdict, rule)


def explain_ruling(
    config: PolicyConfig, call: ToolSelecting, past: Past = UNKNOWN
) -> tuple[Verdict, tuple[int, ...]]:
    """Return the verdict of an enforced policy, and the numbers (from 0) of the rules behind it.

    The verdict is the strictest for any agent of the call's lineage. The numbers include those of rules that
    observe. The rule that decides is last. If the default decides, only observers are listed.
    """
    verdict, fired = _rule_for_one(config, call, past)
    for one in islice(as_each_agent(call), 1, None):
        if isinstance(verdict, Deny):
            break
        above, rules = _rule_for_one(config, one, past)
        if _STRICTNESS[above.action] < _STRICTNESS[verdict.action]:
            words = explain_lineage(above.reason or "", call.agent, one.agent)
            verdict, fired = above.model_copy(update={"reason": words}), (*fired, *rules)
    return verdict, fired


def _rule_for_one(config: PolicyConfig, call: ToolSelecting, past: Past) -> tuple[Verdict, tuple[int, ...]]:
    observed: list[Observation] = []
    fired: list[int] = []
    strictest: tuple[Verdict, tuple[int, ...]] | None = None
    """Strictest verdict so far, from rules that fit for certain, unseen, or by one element of a list."""
    is_certain = False
    for number, rule in config.rules_for(call.tool_name):
        truth = rule.about(rule.tools, call, rule.elements)
        if truth is False or not rule.fits(truth):
            continue
        name = name_of(rule, number)
        verdict = _apply_rule(rule, name, call, truth, past)
        if verdict is None:
            continue
        if rule.mode != "enforce":
            fired.append(number)
            observed.append(Observation(name, _ACTIONS[type(verdict)]))
            continue
        if strictest is None or _STRICTNESS[verdict.action] < _STRICTNESS[strictest[0].action]:
            strictest = verdict, (number,)
        if isinstance(verdict, Deny):
            break
        if truth or rule.unknown == "allow":
            is_certain = True
            if rule.action != "ask" or rule.about(rule.tools, call, "all") is not False:
                break
    if strictest is None or not (is_certain or isinstance(strictest[0], Deny)):
        default = _default(config.default, call)
        if strictest is None or _STRICTNESS[default.action] < _STRICTNESS[strictest[0].action]:
            strictest = default, ()
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
    return _verdict(rule, name, call, "" if truth else f"; {describe_unseen(rule, call)}")


def name_of(rule: PolicyRule, number: int) -> str:
    """Return the name of the rule at this number (from 0)."""
    return rule.name or f"rule {number + 1}"


def _reason_to_allow(rule: PolicyRule, name: str) -> str:
    return rule.reason or f"allowed by {name}"


def _add_observations(verdict: Verdict, observed: list[Observation]) -> Verdict:
    """Add the actions of observing rules to the reason, if the call may run."""
    if not observed or not isinstance(verdict, Continue):
        return verdict
    return Continue(reason=add_observations(verdict.reason, observed))


def _observe(verdict: Verdict, rule: str) -> Continue:
    """Return the verdict that lets the call go on and says what this rule would have done."""
    return Continue(reason=add_observations(None, [Observation(rule, _ACTIONS[type(verdict)])]))


def _verdict(rule: PolicyRule, name: str, call: ToolSelecting, unseen: str) -> Verdict:
    if rule.action == "allow":
        return Continue(reason=_reason_to_allow(rule, name))
    if rule.action == "deny":
        return deny_by_rule(call.tool_name, name, rule.reason, unseen)
    optional: dict[str, Any] = {
        field: value for field in ("options", "timeout_s") if (value := getattr(rule, field)) is not None
    }
    return AskUser(
        prompt=rule.prompt or f"May {call.tool_name} run? ({name})",
        reason=f"{rule.reason or f'{call.tool_name} needs approval'} ({name}{unseen})"[:MAX_REASON],
        rule_name=name[:MAX_RULE],
        **optional,
    )


def _default(action: Action, call: ToolSelecting) -> Verdict:
    if action == "allow":
        return _ALLOWED
    if action == "deny":
        return deny_by_default(call.tool_name)
    prompt = f"May {call.tool_name} run? (no rule is about it)"
    return AskUser(prompt=prompt, reason="no rule is about it", rule_name=DEFAULT_RULE)


_ANSWERS: Final[Mapping[Action, Answer]] = MappingProxyType(
    {"allow": "continue", "deny": "deny", "ask": "ask"}
)


def compile_table(config: PolicyConfig) -> bytes:
    """Return the local table of a configuration; empty without one.

    Rules that look at earlier calls, ask a person or observe have the policy asked about their calls, and a
    policy that observes is asked about all. The calls that rules look back at are asked about, too: other
    calls may depend on one while it is being decided, and facts tell only of decided calls.
    """
    if config.mode == "observe":
        return b""
    rules: list[dict[str, Any]] = []
    for number, rule in enumerate(config.rules):
        is_certain = rule.mode == "enforce" and not rule.is_ordered and rule.action is not None
        answer: Answer = _ANSWERS[rule.action] if is_certain and rule.action is not None else "ask"
        told = {"tools": rule.tools, **describe_conditions(rule), "name": name_of(rule, number)}
        if answer == "deny" and rule.reason is not None:
            told["reason"] = rule.reason
        elif answer == "continue":
            told["reason"] = _reason_to_allow(rule, name_of(rule, number))
        rules.append({**told, "answer": answer})
    default = _ANSWERS[config.default]
    answers = [*(rule["answer"] for rule in rules), default]
    if "continue" in answers:  # a denied call never counts: above the first continue nothing is missed
        at = answers.index("continue")
        rules[at:at] = list_concerns(one for rule in config.order_rules for one in rule.list_watched())
    return encode_table(rules, default)


class Policy:
    """Scheduler that a `PolicyConfig` configures."""

    name = "policy"
    priority = 0
    tools: tuple[str, ...] = ("*",)
    """Globs of its tools; requests to an LLM as well, if a rule names them (`llm:request`)."""
    config_model: ClassVar[type[BaseModel]] = PolicyConfig

    def __init__(self, config: PolicyConfig) -> None:
        self.config = config
        self.tools = add_selector(self.tools, (glob for rule in config.rules for glob in rule.tools))
        self.local_table = compile_table(config)
        self._keeper: OrderKeeper | None = None

    async def start(self, context: SchedulerContext) -> None:
        """Follow the facts, if a rule looks at earlier calls."""
        ordered = self.config.order_rules
        if not ordered:
            return
        history = new_history(ordered)
        longest = max(rule.wait_s or 0.0 for rule in ordered)
        notes = PeerNotes(context.store, context.name, ordered)
        places = QueuePositions(context.shared.claims, context.name, ordered, history)
        self._keeper = OrderKeeper(context, history, self._rule, longest, notes, places)
        await self._keeper.start()

    async def stop(self) -> None:
        """Read no more facts."""
        if self._keeper is not None:
            await self._keeper.stop()

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Rule on one call."""
        keeper = self._keeper
        if keeper is None:
            return rule_on(self.config, call)
        ordered = [rule for _, rule in self.config.rules_for(call.tool_name) if rule.is_ordered]
        if ordered:
            enforces = self.config.mode == "enforce"
            # Under these rules a call may run as long as nothing is known: read all facts first.
            is_final = enforces and all(
                rule.unless_after is None and rule.at_most is None for rule in ordered
            )
            verdict = await keeper.decide(call, is_final)
            # The keeper itself denies a call whose past it cannot know in time.
            return verdict if enforces or isinstance(verdict, Continue) else _observe(verdict, _UNKNOWN_ORDER)
        keeper.note(call)
        verdict = rule_on(self.config, call)
        if isinstance(verdict, Deny):
            keeper.note_denied(call)
        return verdict

    async def withdraw(self, decision: str, phase: Phase) -> None:
        """Forget a call whose answer nobody waits for."""
        if self._keeper is not None:
            self._keeper.withdraw(decision, phase)

    def _rule(self, call: ToolSelecting, past: Past) -> Verdict:
        return rule_on(self.config, call, past)
