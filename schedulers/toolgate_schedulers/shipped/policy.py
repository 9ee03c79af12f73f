"""The shipped scheduler `policy`: allow, deny or ask by ordered rules on tools, arguments and agents.

The first rule that fits a call rules on it; where none does, `default`. Every denial names its rule.
A rule in `mode: observe` never rules: a call that goes on says what that rule would have done to it.
A replacement (phase `verify`) is judged by the same rules as the LLM's own call.
Where an argument that a rule looks at could not be seen (a placeholder, two readings), the rule fits if it
denies or asks, and does not if it allows; `unknown: allow` turns that round.
A sub-agent's call is ruled on as its own and as each agent's above it, and the strictest counts: what
is denied to an agent, it cannot have done by another.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, Field, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import AskUser, Continue, Deny, ToolSelecting, Verdict
from toolgate_bus.protocol.llm import add_selector
from toolgate_bus.protocol.names import MAX_REASON, MAX_RULE
from toolgate_bus.ruling.conditions.conditions import Globs, Truth
from toolgate_bus.ruling.conditions.matching import CallMatcher, Unknown, check_unique, describe_unseen
from toolgate_bus.ruling.merge import ORDER

Action = Literal["allow", "deny", "ask"]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Reason = Annotated[str, Field(min_length=1, max_length=800)]
"""The worker cuts at 1024: there must be room for the rule's name behind it."""
_ONLY_ASK = ("prompt", "options", "timeout_s")
_ALLOWED = Continue()
_DEFAULT = "default"
_WOULD = {"deny": "denied", "ask": "asked a person"}


class PolicyRule(CallMatcher):
    """What happens to the calls that fit. Denials call it by its name, or `rule 1` and so on."""

    tools: Globs
    """One glob or several."""
    action: Action
    """`allow`, `deny` or `ask` (a person)."""
    mode: Literal["enforce", "observe"] = "enforce"
    """`observe`: the rule lets its calls go on to the rules below; if the call runs, the reason of the
    policy's verdict in `toolgate decisions` says what the rule would have done. For `deny` and `ask`. To
    rehearse all rules at once, run a second policy with `--shadow`."""
    unknown: Unknown = "deny"
    """What the rule cannot see counts against the call: it fits if it denies or asks, not if it allows;
    `allow`: the reverse."""
    reason: Reason | None = None
    """Told to the LLM with a denial, at most 800 characters."""
    prompt: Text | None = None
    """The question to the person; for `ask`, as the next two."""
    options: Annotated[tuple[Text, ...], Field(min_length=1, max_length=16)] | None = None
    """What the person may choose from."""
    timeout_s: Annotated[float, Field(gt=0, le=86_400, strict=True)] | None = None
    """Seconds the person has (300 where nothing is said); then the call is denied."""

    @model_validator(mode="after")
    def _consistent(self) -> "PolicyRule":
        given = [field for field in _ONLY_ASK if getattr(self, field) is not None]
        if given and self.action != "ask":
            raise ValueError(f"{given[0]}: only for action: ask, not for {self.action}")
        if self.mode == "observe" and self.action == "allow":
            raise ValueError("mode: observe is for deny and ask: an allow that changes nothing says nothing")
        return self

    def fits(self, truth: Truth) -> bool:
        """Whether it rules on a call that it is about, is not about, or cannot tell."""
        return (self.action == "allow") is (self.unknown == "allow") if truth is None else truth


class PolicyConfig(StrictModel):
    """The file of a policy: `rules`, of which the first that fits counts, and the `default`."""

    rules: Annotated[tuple[PolicyRule, ...], Field(max_length=10_000), AfterValidator(check_unique)] = ()
    """In order: the first that fits rules."""
    default: Action = "allow"
    """For calls that no rule fits: `allow`, `deny` or `ask`."""

    @model_validator(mode="after")
    def _says_something(self) -> "PolicyConfig":
        if not self.model_fields_set:
            raise ValueError("says nothing: give rules, or a default (allow, deny or ask)")
        return self


def rule_on(config: PolicyConfig, call: ToolSelecting) -> Verdict:
    """What the policy says of a call: the strictest of what it says to the agents of its lineage."""
    return explain_ruling(config, call)[0]


def explain_ruling(config: PolicyConfig, call: ToolSelecting) -> tuple[Verdict, tuple[int, ...]]:
    """The verdict on a call, and the numbers (from 0) of the rules that it comes from, observers included.

    The rule that decides stands last; where it is the default, there is none but observers.
    """
    verdict, fired = _rule_for_one(config, call)
    for agent in dict.fromkeys(call.lineage):
        if agent == call.agent or isinstance(verdict, Deny):
            continue
        above, rules = _rule_for_one(config, call.model_copy(update={"agent": agent}))
        if ORDER[above.action] < ORDER[verdict.action]:
            reason = f"{above.reason}, as for {agent}, for whom {call.agent or 'this agent'} works"
            verdict, fired = above.model_copy(update={"reason": reason[:MAX_REASON]}), (*fired, *rules)
    return verdict, fired


def _rule_for_one(config: PolicyConfig, call: ToolSelecting) -> tuple[Verdict, tuple[int, ...]]:
    observed: list[str] = []
    fired: list[int] = []
    for number, rule in enumerate(config.rules):
        truth = rule.about(rule.tools, call)
        if truth is False or not rule.fits(truth):
            continue
        fired.append(number)
        name = name_of(rule, number)
        if rule.mode == "enforce":
            verdict = _verdict(rule, name, call, "" if truth else f"; {describe_unseen(rule, call)}")
            return _add_observations(verdict, observed), tuple(fired)
        observed.append(f"{name} would have {_WOULD[rule.action]}")
    return _add_observations(_default(config.default, call), observed), tuple(fired)


def name_of(rule: PolicyRule, number: int) -> str:
    """What a rule is called, where it stands at this number (from 0)."""
    return rule.name or f"rule {number + 1}"


def _add_observations(verdict: Verdict, observed: Sequence[str]) -> Verdict:
    """The verdict; a call that may run says what observing rules would have done."""
    if not observed or not isinstance(verdict, Continue):
        return verdict
    given = [verdict.reason] if verdict.reason else []
    return Continue(reason="; ".join([*given, *observed]))


def _verdict(rule: PolicyRule, name: str, call: ToolSelecting, unseen: str) -> Verdict:
    if rule.action == "allow":
        return Continue(reason=rule.reason or f"allowed by {name}")
    if rule.action == "deny":
        reason = f"{rule.reason or f'{call.tool_name} is not allowed'} ({name}{unseen})"
        return Deny(reason=reason[:MAX_REASON], rule_name=name[:MAX_RULE])
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
        return Deny(reason=f"no rule allows {call.tool_name} (default)", rule_name=_DEFAULT)
    prompt = f"May {call.tool_name} run? (no rule is about it)"
    return AskUser(prompt=prompt, reason="no rule is about it", rule_name=_DEFAULT)


class Policy:
    """The scheduler of a `PolicyConfig`."""

    name = "policy"
    priority = 0
    tools: tuple[str, ...] = ("*",)
    """And requests to an LLM, where a rule names them (`llm:request`)."""
    config_model: ClassVar[type[BaseModel]] = PolicyConfig

    def __init__(self, config: PolicyConfig) -> None:
        self.config = config
        self.tools = add_selector(self.tools, (glob for rule in config.rules for glob in rule.tools))

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Rule on one call."""
        return rule_on(self.config, call)
