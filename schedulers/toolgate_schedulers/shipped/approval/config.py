"""Configure `approval`: find the rule that sends a call to a person. Pure.

The first rule that fits a call counts. A rule may also allow its calls without a person, so that later
rules may be wide. A rule may fit only because a value of the call could not be seen. The call is then asked
about: no standing approval and no later `allow` rule lets it pass. A sub-agent's call also counts as a call
of each agent above it, and needs a person if it does for any of them.
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
from toolgate_bus.ruling.local_table import describe_conditions, encode_table

from toolgate_schedulers.shipped.durability import DurabilityConfig

Text = Annotated[str, Field(min_length=1, max_length=800)]
MAX_PROMPT = 2000
_ASKING = ("via", "prompt", "options", "expires_s", "always")


class ApprovalRule(CallMatcher):
    """Rule for calls that need a person, or that expressly need none."""

    tools: Globs
    """Tools the rule is about: one glob or several."""
    action: Literal["ask", "allow"] = "ask"
    """`ask` a person, or `allow` the calls without asking anybody."""
    unknown: Unknown = "deny"
    """`deny`: a call that the rule cannot fully see is asked about and never allowed. `allow`: the
    reverse."""
    via: Literal["hold", "ask_user"] = "hold"
    """`hold`: the call waits for `toolgate approvals`. `ask_user`: the app asks the person who uses it."""
    prompt: Text | None = None
    """Question to the person."""
    options: Annotated[tuple[Text, ...], Field(min_length=2, max_length=16)] | None = None
    """Choices that the app offers. For `ask_user` only."""
    expires_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 900.0
    """Seconds the person has; then the call is denied. The `max_hold_s` of an orchestrator may be shorter."""
    always: Annotated[bool, Field(strict=True)] = True
    """True if a person may let later calls of the session pass (`approve --always`). For `hold` only."""

    @model_validator(mode="after")
    def _consistent(self) -> "ApprovalRule":
        given = [field for field in _ASKING if field in self.model_fields_set]
        if self.action == "allow" and given:
            raise ValueError(f"{given[0]}: only for action: ask; a rule that allows asks nobody")
        if self.via == "hold" and self.options is not None:
            raise ValueError("options: only for via: ask_user; `toolgate approvals` has commands instead")
        if self.via == "ask_user" and "always" in self.model_fields_set:
            raise ValueError("always: only for via: hold; the app asks about each call")
        return self

    def fits(self, call: ToolSelecting) -> Truth:
        """Return whether the rule is about the call.

        None: a value could not be seen, and `unknown` makes that count.
        """
        truth = self.about(self.tools, call, "all" if self.action == "allow" else "any")
        if truth is not None:
            return truth
        return None if (self.action == "allow") is (self.unknown == "allow") else False


class ApprovalConfig(StrictModel):
    """Configuration file of `approval`: the first of the `rules` that fits a call counts. Other calls are not
    asked about."""

    rules: Annotated[
        tuple[ApprovalRule, ...], Field(min_length=1, max_length=10_000), AfterValidator(check_unique)
    ]
    durability: DurabilityConfig | None = None
    """Number of `replicas` that must have a waiting call, or a person's answer, before it counts, and
    `timeout_ms`."""


class ApprovalNeed(NamedTuple):
    """Rule that sends a call to a person."""

    rule: ApprovalRule
    called: str
    """Name of the rule, or `rule 1` and so on."""
    unseen: str = ""
    """Values that could not be seen, in words, if they are the reason to ask."""
    is_whole: bool = True
    """True if the rule fits the whole call, not just one element of a list."""

    @property
    def always(self) -> bool:
        """True if a standing approval may let the call pass."""
        return self.rule.always and self.is_whole and not self.unseen

    @property
    def prompt(self) -> str | None:
        """Question to the person, with the values that could not be seen."""
        if not self.unseen:
            return self.rule.prompt
        said = f"{self.rule.prompt} " if self.rule.prompt else ""
        return f"{said}({self.unseen})"[:MAX_PROMPT]

    @property
    def key(self) -> str:
        """Key of "always for this session": a hash of the rule's text, independent of its place."""
        return hashlib.sha256(self.rule.wording.encode("utf-8", "replace")).hexdigest()[:16]


def find_rule(config: ApprovalConfig, call: ToolSelecting) -> ApprovalNeed | None:
    """Return the first rule that sends the call to a person; None if it needs nobody."""
    return next(iter(find_rules(config, call)), None)


def find_rules(config: ApprovalConfig, call: ToolSelecting) -> Sequence[ApprovalNeed]:
    """List the rules that send the call to a person: for its own agent, and for each agent above."""
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
    """Return the globs of all tools whose calls can need a person. Other calls are not asked about."""
    return tuple(dict.fromkeys(glob for rule in config.rules if rule.action == "ask" for glob in rule.tools))


def compile_table(config: ApprovalConfig) -> bytes:
    """Return the local table: calls that no rule sends to a person need not be asked about."""
    rules = [
        {
            "tools": rule.tools,
            **describe_conditions(rule),
            "answer": "ask" if rule.action == "ask" else "continue",
        }
        for rule in config.rules
    ]
    return encode_table(rules, "continue")
