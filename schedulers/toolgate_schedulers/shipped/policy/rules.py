"""Define the rules of a policy, and its configuration file. Pure.

`call_ruling` and `result_ruling` say what the rules do.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.protocol.names import LABEL_PATTERN, MAX_SESSION_LABELS
from toolgate_bus.ruling.conditions import globs, patterns
from toolgate_bus.ruling.conditions.arguments import path_names
from toolgate_bus.ruling.conditions.conditions import Condition, Quantifier, Truth, every, holds_at, opposite
from toolgate_bus.ruling.conditions.matching import AnyQuestion, Unknown, check_unique
from toolgate_bus.ruling.conditions.result_paths import (
    ReadableResult,
    ResultPath,
    WhenOrResult,
    names_result,
)
from toolgate_bus.ruling.conditions.when_matcher import WhenMatcher
from toolgate_bus.ruling.results import mark_of

from toolgate_schedulers.shipped.policy.fields import Field as ResultField
from toolgate_schedulers.shipped.policy.fields import field_of
from toolgate_schedulers.shipped.policy.kinds import MARKS, Kind
from toolgate_schedulers.shipped.policy.masks import Finder, MaskSource
from toolgate_schedulers.shipped.policy.needs import OrderMatcher, find_circle
from toolgate_schedulers.shipped.policy.secrets_detector import find_secrets

Action = Literal["allow", "deny", "ask"]
Mode = Literal["enforce", "observe"]
On = Literal["call", "result", "input", "output"]
POINTS: Final[Mapping[str, str]] = {"input": "turn:input", "output": "turn:output"}
"""Call that a rule on the user's words, or on the answer, is about."""
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Reason = Annotated[str, Field(min_length=1, max_length=800)]
"""Reason of a rule. The worker cuts reasons at 1024 characters, so this leaves room for the rule's name."""
_ONLY_ASK = ("prompt", "options", "timeout_s")
MAX_TOLD: Final = 8
MAX_NAMES: Final = 4096
"""Maximum number of tool names whose rules are cached."""


def _one_or_more(written: Any) -> Any:
    return [written] if isinstance(written, str | Mapping) else written


SessionLabel = Annotated[str, Field(pattern=LABEL_PATTERN)]
SessionValues = Annotated[
    tuple[SessionLabel, ...],
    Field(min_length=1, max_length=MAX_SESSION_LABELS),
    BeforeValidator(_one_or_more),
]


class MaskLine(StrictModel):
    """One line of `mask`: a named kind (`api keys`), a pattern, or fields; with a name for the mark in its
    place."""

    kind: Kind | None = None
    """Named kind. A text alone is a kind: `api keys` is `{kind: api keys}`."""
    pattern: Annotated[str, Field(min_length=1, max_length=patterns.MAX_PATTERN)] | None = None
    """Regular expression: what it matches is hidden."""
    fields: (
        Annotated[
            tuple[ResultPath, ...],
            Field(min_length=1, max_length=64),
            BeforeValidator(_one_or_more),
        ]
        | None
    ) = None
    """Paths below `$result`, such as `$result.user.ssn`: what stands there is hidden, whatever it is. For
    `on: result` only."""
    name: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """Name in the mark: `[withheld: customer number]`. Default: that of the kind, or of the field."""

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, written: Any) -> Any:
        return {"kind": written} if isinstance(written, str) else written

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            patterns.compile_pattern(pattern)
        return pattern

    @model_validator(mode="after")
    def _says_one_thing(self) -> "MaskLine":
        if [self.kind, self.pattern, self.fields].count(None) != 2:
            raise ValueError(f"give one of {', '.join(MARKS)}, {{pattern: …, name: …}} or {{fields: […]}}")
        return self

    @property
    def mark(self) -> str:
        """Name in the mark for a kind or a pattern."""
        return self.name or (MARKS[self.kind] if self.kind is not None else "text")

    @property
    def paths(self) -> "tuple[ResultField, ...]":
        """Fields that it hides."""
        return tuple(field_of(path, self.name) for path in self.fields or ())


class PolicyRule(OrderMatcher):
    """Action for the calls that fit. Denials give the rule's name, or `rule 1` and so on."""

    on: On = "call"
    """What the rule is about: a `call` before it runs, the `result` of a call before anybody sees it, the
    user's words (`input`), or the agent's answer (`output`). See below."""
    when: WhenOrResult = Field(default_factory=dict)
    """Conditions by argument path, see below."""
    unless: WhenOrResult = Field(default_factory=dict)
    """Conditions like those of `when`. Where all of them hold, the rule does not fit. Not for calls."""
    success: Annotated[bool, Field(strict=True)] | None = None
    """True: only results of calls that ended well. False: only errors. For `on: result` only."""
    action: Action | None = None
    """`allow`, `deny` or `ask` (a person). A result that is denied is withheld. Not needed with `after`,
    `unless_after` or `at_most`: calls that they let pass go on to the rules below; nor with `mask` or
    `label`."""
    mask: (
        Annotated[tuple[MaskLine, ...], Field(min_length=1, max_length=64), BeforeValidator(_one_or_more)]
        | None
    ) = None
    """What is hidden: named kinds, `{pattern: …, name: …}`, or `{fields: [$result.user.ssn]}`. See below. Not
    for calls."""
    label: (
        Annotated[dict[SessionLabel, SessionValues], Field(min_length=1, max_length=MAX_SESSION_LABELS)]
        | None
    ) = None
    """Labels that the session bears from then on, such as `{source: untrusted}`. Not for calls."""
    mode: Mode = "enforce"
    """`observe`: the rule lets its calls go on to the rules below. If the call runs, the reason of the
    policy's verdict in `toolgate decisions` says what the rule would have done. For `deny`, `ask` and `mask`.
    The policy's own `mode` observes with all rules at once."""
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

    @model_validator(mode="before")
    @classmethod
    def _names_its_point(cls, written: Any) -> Any:
        on = written.get("on") if isinstance(written, Mapping) else None
        if not isinstance(on, str) or on not in POINTS:
            return written
        if "tools" in written:
            raise ValueError(f"tools: a rule on {on} is about no tool; leave it out")
        return {**written, "tools": [POINTS[on]]}

    @model_validator(mode="after")
    def _fits_what_it_is_on(self) -> "PolicyRule":
        if self.on == "call":
            for field in ("mask", "label", "unless"):
                if getattr(self, field):
                    raise ValueError(f"{field}: is for results: give on: result, input or output")
        elif self.is_ordered:
            raise ValueError("after, unless_after and at_most are for calls, not for on: " + self.on)
        if self.on == "result":
            for point, tool in POINTS.items():
                if tool in self.tools:
                    raise ValueError(f"tools: {tool} gives no result: give on: {point} in a rule of its own")
        else:
            if self.success is not None:
                raise ValueError("success: is for results: give on: result")
            fields = (path for line in self.mask or () for path in line.fields or ())
            for path in filter(names_result, (*self.when, *self.unless, *fields)):
                raise ValueError(f"{path}: only a rule with on: result sees a result")
            for path in (*self.when, *self.unless) if self.on in POINTS else ():
                if path_names(path)[0][0] != "text":
                    raise ValueError(f"{path}: a rule on {self.on} sees `text`, and nothing else")
        if (self.mask or self.label) and self.action is not None:
            raise ValueError("action: goes with neither mask nor label: write two rules")
        if self.mode == "observe" and self.label:
            raise ValueError("mode: observe is for deny, ask and mask: observing a label would show nothing")
        return self

    @model_validator(mode="after")
    def _says_when(self) -> "PolicyRule":
        if self.action is None and not (self.is_ordered or self.mask or self.label):
            other = "" if self.on == "call" else ", or give mask or label"
            raise ValueError(f"action: is required: allow, deny or ask{other}")
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

    @cached_property
    def finder(self) -> Finder:
        """Finder of what `mask` hides."""
        lines = [one for one in self.mask or () if one.fields is None]
        sources = [MaskSource(one.mark, one.kind, one.pattern or "") for one in lines]
        return Finder(sources, find_secrets if any(one.kind == "secrets" for one in lines) else None)

    @cached_property
    def masked_fields(self) -> "tuple[ResultField, ...]":
        """Fields that `mask` hides."""
        return tuple(field for line in self.mask or () for field in line.paths)

    def unknown_paths(self, call: ToolSelecting) -> list[str]:
        """Return the paths of conditions that cannot be checked."""
        result = ReadableResult(call.result, is_cut=call.result_cut)
        return [
            path
            for path, condition in self.when.items()
            if (
                result.holds(path, condition)
                if names_result(path)
                else holds_at(path, condition, call.tool_input)
            )
            is None
        ]

    @cached_property
    def _conditions(self) -> WhenMatcher:
        return WhenMatcher({path: one for path, one in self.when.items() if not names_result(path)})

    def _matches(self, call: AnyQuestion, agents: tuple[str, ...], elements: Quantifier) -> Truth:
        matched = super()._matches(call, agents, elements)
        if self.on == "call" or matched is False or not isinstance(call, ToolSelecting):
            return matched
        return every((matched, self._matches_result(call, elements)))

    def _matches_result(self, call: ToolSelecting, elements: Quantifier) -> Truth:
        if self.success not in (None, call.success):
            return False
        if not (self.unless or any(map(names_result, self.when))):
            return True
        result = ReadableResult(call.result, is_cut=call.result_cut) if self.on == "result" else None
        whole = _holds(self.when, call, result, elements, with_arguments=False)
        if whole is False or not self.unless:
            return whole
        others: Quantifier = "any" if elements == "all" else "all"
        return every((whole, opposite(_holds(self.unless, call, result, others))))


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
        labels: dict[str, set[str]] = {}
        for rule in self.rules:
            for name, values in (rule.label or {}).items():
                labels.setdefault(name, set()).update(values)
        if max(map(len, (labels, *labels.values()))) > MAX_SESSION_LABELS:
            raise ValueError(
                f"rules: label: a session can bear {MAX_SESSION_LABELS} labels, and as many values of each"
            )
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
    def needs_results(self) -> bool:
        """True if a rule is about results, or looks at what earlier calls gave."""
        return "result" in self.rules_on or any(
            need.needs_result for rule in self.order_rules for need in rule.needs
        )

    @cached_property
    def rules_on(self) -> frozenset[On]:
        """What the rules are about."""
        return frozenset(rule.on for rule in self.rules)

    @cached_property
    def reads_session_labels(self) -> bool:
        """True if a rule tests the labels of sessions."""
        return any(rule.when_session for rule in self.rules)

    @cached_property
    def marks(self) -> frozenset[str]:
        """Texts that stand for fields which the rules have hidden."""
        return frozenset(mark_of(field.mark) for rule in self.rules for field in rule.masked_fields)

    @cached_property
    def _by_tool(self) -> "dict[tuple[str, On], NumberedRules]":
        return {}

    def rules_for(self, tool: str, on: On = "call") -> "NumberedRules":
        """Return the rules that may be about a tool's call or result, with their numbers (from 0)."""
        found = self._by_tool.get((tool, on))
        if found is None:
            found = tuple(
                (number, rule)
                for number, rule in enumerate(self.rules)
                if rule.on == on and globs.fits(rule.tools, tool) is not False
            )
            if len(tool) <= globs.SHORT:
                if len(self._by_tool) >= MAX_NAMES:
                    self._by_tool.clear()
                self._by_tool[tool, on] = found
        return found


NumberedRules = tuple[tuple[int, PolicyRule], ...]


def name_of(rule: PolicyRule, number: int) -> str:
    """Return the name of the rule at this number (from 0)."""
    return rule.name or f"rule {number + 1}"


def _holds(
    when: Mapping[str, Condition],
    call: ToolSelecting,
    result: ReadableResult | None,
    elements: Quantifier,
    *,
    with_arguments: bool = True,
) -> Truth:
    """Return whether these conditions hold for a result, and for the arguments of its call."""
    return every(
        result.holds(path, condition, elements)
        if result is not None and names_result(path)
        else holds_at(path, condition, call.tool_input, elements)
        for path, condition in when.items()
        if with_arguments or names_result(path)
    )
