"""A policy that is drafted from what is there: its rules, what it could not say, and cases for it. Pure.

A draft only observes. An entry that no rule can say exactly is a comment in the place of its rule. Each
rule brings a call that it fits, and these calls make the cases. The case expects the first rule that fits its
call, as in a policy.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal

from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.ruling.conditions.matching import CallMatcher
from toolgate_bus.telemetry.printable import shorten, visible

Action = Literal["allow", "deny", "ask"]
MAX_PARTS: Final = 1000
"""Maximum number of rules and comments of a draft: each case is tried on all rules above its own."""
MAX_NAME: Final = 120
"""Maximum length of a rule's name, in characters."""
MAX_WORDS: Final = 400
"""Maximum length of a text of others in a comment or reason, in characters."""
_STEPS: Final = (
    "Read every rule before it rules.",
    "  toolgate policy test rules.yaml cases.yaml             hold the rules to cases",
    "  toolgate scheduler run policy --config rules.yaml      observe with them",
    "  toolgate report                                        see what they would have denied",
    "  toolgate policy enforce --config rules.yaml            switch them on",
)
_UNHEARD: Final = "a_tool_of_no_rule"
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*( [A-Za-z0-9_-]+)*")
_RESERVED: Final = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
"""Words that some readers of YAML take for something else than text."""


@dataclass(frozen=True)
class DraftRule:
    """One rule, and a call that it fits."""

    name: str
    tools: tuple[str, ...]
    action: Action
    tool: str
    """Tool of the call that it fits."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of that call."""
    when: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    note: str = ""
    """Words for the person who reads the rule."""

    @cached_property
    def call(self) -> ToolSelecting:
        """Call that it fits, as a question."""
        return ToolSelecting(
            id="0" * 32, tool_name=self.tool, tool_input=dict(self.arguments), labels=dict(self.labels)
        )

    @cached_property
    def _matcher(self) -> CallMatcher:
        return check(CallMatcher, {"when": self.when, "labels": self.labels}, "rule")

    def fits(self, call: ToolSelecting) -> bool:
        """Return whether the rule fits a call, as in a policy. Raise ConfigError if it can be no rule."""
        truth = self._matcher.about(self.tools, call, "all" if self.action == "allow" else "any")
        return truth is True or (truth is None and self.action != "allow")

    def lines(self) -> Iterator[str]:
        """Yield its lines in a policy."""
        if self.note:
            yield f"  # {_comment(self.note)}"
        yield f"  - name: {_scalar(self.name)}"
        yield f"    tools: {_scalar(self.tools[0]) if len(self.tools) == 1 else _flow(self.tools)}"
        for name, value in (("labels", self.labels), ("when", self.when)):
            if value:
                yield f"    {name}: {_flow(value)}"
        yield f"    action: {self.action}"
        if self.reason:
            yield f"    reason: {_scalar(_comment(self.reason))}"


@dataclass
class Draft:
    """A policy in the making."""

    head: Sequence[str]
    """Comment lines at its top."""
    default_note: str = ""
    """Comment beside its default, which is `allow`."""
    parts: list[DraftRule | str] = field(default_factory=list)
    """Rules in order, and comments between them."""
    _names: set[str] = field(default_factory=lambda: {"default"})

    @property
    def rules(self) -> list[DraftRule]:
        """Rules in order."""
        return [part for part in self.parts if isinstance(part, DraftRule)]

    def add(self, rule: DraftRule) -> None:
        """Add a rule, or a comment if it can be none. Raise ConfigError if the draft is full."""
        named = replace(rule, name=self._free_name(rule.name))
        try:
            is_rule = named.fits(named.call)
        except ConfigError as error:
            self.leave_out(rule.name, str(error).partition("\n")[0])
            return
        if is_rule and all(line.isprintable() for line in named.lines()):
            self._append(named)
            self._names.add(named.name)
        else:
            self.leave_out(rule.name, "no condition says this exactly")

    def leave_out(self, entry: str, why: str) -> None:
        """Add a comment for an entry that no rule says. Raise ConfigError if the draft is full."""
        self._append(f"not written: {entry}: {why}")

    def _append(self, part: DraftRule | str) -> None:
        if len(self.parts) >= MAX_PARTS:
            raise ConfigError(f"more than {MAX_PARTS} entries: write a policy for so many by hand")
        self.parts.append(part)

    def summary(self) -> str:
        """Return a sentence for people about what the draft says, and what it could not say."""
        left_out = len(self.parts) - len(self.rules)
        rest = f"; entries that no rule can say: {left_out}, with the reason as a comment" if left_out else ""
        return f"Rules in rules.yaml: {len(self.rules)}{rest}."

    def rules_text(self) -> str:
        """Return the policy, in mode observe."""
        lines = [f"# {line}" for line in (*self.head, *_STEPS)]
        lines += ["mode: observe # or enforce; `toolgate policy enforce` and `policy observe` switch it", ""]
        lines += ["rules:"] if self.rules else ["rules: []"]
        for part in self.parts:
            lines += [f"  # {_comment(part)}"] if isinstance(part, str) else part.lines()
        note = f" # {_comment(self.default_note)}" if self.default_note else ""
        return "\n".join([*lines, "", f"default: allow{note}", ""])

    def cases_text(self) -> str:
        """Return a case for each rule, and one for the default."""
        rules, lines = self.rules, ["# What is expected of rules.yaml once it is enforced.", "cases:"]
        for rule in rules:
            decides = next(one for one in rules if one.fits(rule.call))
            if decides is not rule:
                lines.append(f"  # {_comment(rule.name)}: a rule above it decides this call")
            lines.append(f"  - tool: {_scalar(rule.tool)}")
            lines += [f"    arguments: {_flow(rule.arguments)}"] if rule.arguments else []
            lines += [f"    labels: {_flow(rule.labels)}"] if rule.labels else []
            lines += [f"    expect: {decides.action}", f"    rule: {_scalar(decides.name)}"]
        if not any(one.fits(ToolSelecting(id="0" * 32, tool_name=_UNHEARD)) for one in rules):
            lines.append(f"  - {{tool: {_UNHEARD}, expect: allow, rule: default}}")
        return "\n".join([*lines, ""])

    def _free_name(self, wanted: str) -> str:
        name = base = shorten(visible(wanted), MAX_NAME)
        number = 1
        while name in self._names:
            number += 1
            name = f"{base} {number}"
        return name


def quote_glob(name: str) -> str:
    """Return the glob that fits this name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _comment(text: str) -> str:
    return shorten(visible(text), MAX_WORDS)


def _scalar(text: str) -> str:
    """Return a text as YAML: plain if every reader takes it for this text, else in quotes."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _RESERVED else _flow(text)


def _flow(value: Any) -> str:
    """Return a value as JSON, which is YAML as well."""
    told = json.dumps(value, ensure_ascii=False)
    return told if told.isprintable() else json.dumps(value)
