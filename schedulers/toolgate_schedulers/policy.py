"""The shipped scheduler `policy`: allow, deny or ask by ordered rules on tool names and arguments.

The first rule that fits a call rules on it; where none does, `default`. Every denial names its rule.
It judges a replacement (phase `verify`) by the same rules as the LLM's own call.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator, model_validator
from toolgate_bus.events import AskUser, Continue, Deny, ToolSelecting, Verdict

from toolgate_schedulers.conditions import Globs, When, any_glob, holds
from toolgate_schedulers.config_file import StrictModel

__all__ = ["Policy", "PolicyConfig", "Rule", "rule_on"]

Action = Literal["allow", "deny", "ask"]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
_ONLY_ASK = ("prompt", "options", "timeout_s")


class Rule(StrictModel):
    """What happens to the calls that fit."""

    name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    tools: Globs
    when: When = Field(default_factory=dict)
    action: Action
    reason: Text | None = None
    """Told to the LLM when the call is denied."""
    prompt: Text | None = None
    """The question to the person; `ask` only, as the next two."""
    options: Annotated[tuple[Text, ...], Field(min_length=1, max_length=16)] | None = None
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Seconds the person has; then the call is denied."""

    @field_validator("tools", mode="before")
    @classmethod
    def _one_or_more(cls, tools: Any) -> Any:
        return [tools] if isinstance(tools, str) else tools

    @model_validator(mode="after")
    def _ask_only(self) -> "Rule":
        given = [field for field in _ONLY_ASK if getattr(self, field) is not None]
        if given and self.action != "ask":
            raise ValueError(f"{given[0]}: only for action: ask, not for {self.action}")
        return self

    def fits(self, call: ToolSelecting) -> bool:
        """Whether this rule is about the call."""
        return any_glob(self.tools, call.tool_name) and holds(self.when, call.tool_input)


class PolicyConfig(StrictModel):
    """The file of a policy: `rules`, of which the first that fits counts, and the `default`."""

    rules: Annotated[tuple[Rule, ...], Field(max_length=10_000)] = ()
    default: Action = "allow"

    @model_validator(mode="after")
    def _says_something(self) -> "PolicyConfig":
        if not self.model_fields_set:
            raise ValueError("says nothing: give rules, or a default (allow, deny or ask)")
        return self


def rule_on(config: PolicyConfig, call: ToolSelecting) -> Verdict:
    """What the policy says of a call."""
    for number, rule in enumerate(config.rules, start=1):
        if rule.fits(call):
            return _verdict(rule, rule.name or f"rule {number}", call)
    return _default(config.default, call)


def _verdict(rule: Rule, name: str, call: ToolSelecting) -> Verdict:
    if rule.action == "allow":
        return Continue(reason=rule.reason or f"allowed by {name}")
    if rule.action == "deny":
        return Deny(reason=f"{rule.reason or f'{call.tool_name} is not allowed'} ({name})")
    optional: dict[str, Any] = {
        field: value for field in ("options", "timeout_s") if (value := getattr(rule, field)) is not None
    }
    return AskUser(
        prompt=rule.prompt or f"May {call.tool_name} run? ({name})",
        reason=f"{rule.reason or f'{call.tool_name} needs approval'} ({name})",
        **optional,
    )


def _default(action: Action, call: ToolSelecting) -> Verdict:
    if action == "allow":
        return Continue()
    if action == "deny":
        return Deny(reason=f"no rule allows {call.tool_name} (default)")
    return AskUser(prompt=f"May {call.tool_name} run? (no rule is about it)", reason="no rule is about it")


class Policy:
    """The scheduler of a `PolicyConfig`."""

    name = "policy"
    priority = 0
    tools = ("*",)
    config_model: ClassVar[type[BaseModel]] = PolicyConfig

    def __init__(self, config: PolicyConfig) -> None:
        self.config = config

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Rule on one call."""
        return rule_on(self.config, call)
