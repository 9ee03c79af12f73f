"""The file of `approval`: which calls need a person. Pure.

The first rule that fits a call counts. A rule may also say that its calls need nobody, so that later
ones may be wide. A rule that fits only as it could not see the call makes it ask, and gives it nothing:
no standing approval, and no word of a rule below that its calls need nobody. A sub-agent's call is also
that of each agent above it: it needs a person where one of them does.
"""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.ruling.conditions.conditions import Globs, Truth
from toolgate_bus.ruling.conditions.matching import (
    CallMatcher,
    Unknown,
    as_each_agent,
    check_unique,
    describe_unseen,
)

from toolgate_schedulers.shipped.durability import DurabilityConfig

Text = Annotated[str, Field(min_length=1, max_length=800)]
MAX_PROMPT = 2000
_ASKING = ("via", "prompt", "options", "expires_s", "always")


class ApprovalRule(CallMatcher):
    """Calls that need a person, or expressly need none."""

    tools: Globs
    """One glob or several."""
    action: Literal["ask", "allow"] = "ask"
    """`ask` a person, or `allow`: these calls need nobody."""
    unknown: Unknown = "deny"
    """What the rule cannot see makes it ask, and not allow; `allow`: the reverse."""
    via: Literal["hold", "ask_user"] = "hold"
    """`hold`: the call waits for `toolgate approvals`. `ask_user`: the app asks whoever sits at it."""
    prompt: Text | None = None
    """The question to the person."""
    options: Annotated[tuple[Text, ...], Field(min_length=2, max_length=16)] | None = None
    """Choices that the app offers; `ask_user` only."""
    expires_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 900.0
    """Seconds the person has; then the call is denied. An orchestrator's `max_hold_s` may be less."""
    always: Annotated[bool, Field(strict=True)] = True
    """Whether a person may let later calls of the session pass (`approve --always`); `hold` only."""

    @model_validator(mode="after")
    def _consistent(self) -> "ApprovalRule":
        given = [field for field in _ASKING if field in self.model_fields_set]
        if self.action == "allow" and given:
            raise ValueError(f"{given[0]}: only for action: ask; these calls need nobody")
        if self.via == "hold" and self.options is not None:
            raise ValueError("options: only for via: ask_user; `toolgate approvals` has commands instead")
        if self.via == "ask_user" and "always" in self.model_fields_set:
            raise ValueError("always: only for via: hold; the app asks about each call")
        return self

    def fits(self, call: ToolSelecting) -> Truth:
        """Tell whether this rule is about the call; None where it counts, and cannot be seen to fit."""
        truth = self.about(self.tools, call, "all" if self.action == "allow" else "any")
        if truth is not None:
            return truth
        return None if (self.action == "allow") is (self.unknown == "allow") else False


class ApprovalConfig(StrictModel):
    """The whole file: `rules`, of which the first that fits counts; other calls need nobody."""

    rules: Annotated[
        tuple[ApprovalRule, ...], Field(min_length=1, max_length=10_000), AfterValidator(check_unique)
    ]
    durability: DurabilityConfig | None = None
    """`replicas` that must have a call that waits, or a person's answer, before it counts; `timeout_ms`."""


class ApprovalNeed(NamedTuple):
    """A rule by which a call needs a person."""

    rule: ApprovalRule
    called: str
    """Its name, or `rule 1` and so on."""
    unseen: str = ""
    """What of the call could not be seen, in words, where that is why it needs a person."""
    is_whole: bool = True
    """Whether all of the call is what the rule is about, and not one element of a list alone."""

    @property
    def always(self) -> bool:
        """Whether a standing approval may let the call pass."""
        return self.rule.always and self.is_whole and not self.unseen

    @property
    def prompt(self) -> str | None:
        """The question to the person, with what could not be seen."""
        if not self.unseen:
            return self.rule.prompt
        said = f"{self.rule.prompt} " if self.rule.prompt else ""
        return f"{said}({self.unseen})"[:MAX_PROMPT]

    @property
    def key(self) -> str:
        """What "always for this session" is bound to: not the rule's place, but what it says."""
        return hashlib.sha256(self.rule.wording.encode("utf-8", "replace")).hexdigest()[:16]


def find_rule(config: ApprovalConfig, call: ToolSelecting) -> ApprovalNeed | None:
    """Return the rule by which a call needs a person; None if it needs nobody."""
    return next(iter(find_rules(config, call)), None)


def find_rules(config: ApprovalConfig, call: ToolSelecting) -> Sequence[ApprovalNeed]:
    """List the rules by which a call needs a person: for its agent, and for each agent above."""
    found = (_find_for_one(config, one) for one in as_each_agent(call))
    return tuple({need.called: need for need in found if need is not None}.values())


def _find_for_one(config: ApprovalConfig, call: ToolSelecting) -> ApprovalNeed | None:
    unseen: ApprovalNeed | None = None
    for number, rule in enumerate(config.rules, start=1):
        fits = rule.fits(call)
        if fits is False:
            continue
        if rule.action == "allow":
            return unseen
        whole = not rule.always or rule.about(rule.tools, call, "all") is True
        need = ApprovalNeed(rule, rule.name or f"rule {number}", is_whole=whole)
        if fits:
            return need if unseen is None else need._replace(unseen=unseen.unseen)
        unseen = unseen or need._replace(unseen=describe_unseen(rule, call))
    return unseen


def tools_of(config: ApprovalConfig) -> Sequence[str]:
    """The globs of all calls that can need a person: it is not asked about others."""
    return tuple(dict.fromkeys(glob for rule in config.rules if rule.action == "ask" for glob in rule.tools))
