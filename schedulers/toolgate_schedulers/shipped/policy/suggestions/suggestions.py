"""Makes the least rules that fit the calls that ran: one for each tool, and one for all other calls. Pure.

Each rule allows a tool, with a condition for each argument of which enough was seen (`argument_evidence`).
Tools whose rules say the same share one. A person is asked about everything else, by a last rule that only
observes. The rules allow every call that they were made of: a condition that one of them does not meet is
not written.

What is kept is bounded, whatever the calls are: tools, arguments, values, examples.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from toolgate_bus.protocol import placeholders
from toolgate_bus.protocol.names import RESERVED_PREFIXES
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.telemetry.printable import shorten, visible

from toolgate_schedulers.shipped.policy.suggestions.argument_evidence import (
    HIDDEN,
    ArgumentCondition,
    ArgumentEvidence,
    may_be_secret,
)
from toolgate_schedulers.shipped.policy.suggestions.census import Census, Tally

MAX_TOOLS: Final = 500
MAX_ARGUMENTS: Final = 40
"""Maximum number of arguments of a tool of which a rule may say something, nested ones included."""
MAX_DEPTH: Final = 4
MAX_ELEMENTS: Final = 1000
"""Maximum number of elements of a list that are looked at."""
MAX_GLOB: Final = 256
MAX_RULES: Final = 120_000
"""Maximum length of all rules together, as JSON."""
FEW_CALLS: Final = 3
"""Number of calls below which nothing is said about a tool's arguments."""
EXAMPLES: Final = 3
MAX_EXAMPLE: Final = 160
MAX_SHOWN: Final = 40
"""Maximum length of one value in an example."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Name of an argument that is a path with one meaning."""
_GLOB: Final = re.compile(r"([*?\[])")
ELSE: Final[Mapping[str, Any]] = {"name": "everything else", "tools": "*", "action": "ask", "mode": "observe"}


class SeenCall(NamedTuple):
    """Call that ran and succeeded, with its arguments as they are recorded."""

    tool: str
    arguments: Mapping[str, Any]
    session: str = ""


@dataclass(frozen=True, slots=True)
class SuggestedRule:
    """One rule, and what it was made of."""

    rule: Mapping[str, Any]
    """Rule as a policy's file has it."""
    calls: Mapping[str, int]
    """Number of calls by tool; empty for the last rule."""
    sessions: int
    """Number of their sessions, at most `MAX_SESSIONS`."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Reason of each condition, by argument."""
    free: Mapping[str, str] = field(default_factory=dict)
    """Arguments that may have any value, each with the reason."""
    examples: tuple[str, ...] = ()
    is_thin: bool = False
    """True if its tools were called too seldom to say anything about arguments."""


class Suggestions:
    """Calls that ran, and the rules that fit them."""

    def __init__(self) -> None:
        self._tools: dict[str, ToolEvidence] = {}
        self._sessions: set[str] = set()
        """Two of the sessions, to know whether there are several."""
        self.calls = 0
        self.left_out: Counter[str] = Counter()
        """Number of calls that no rule allows, by reason."""

    def add(self, call: SeenCall) -> None:
        """Take a call that ran."""
        if call.tool.startswith(RESERVED_PREFIXES):
            return
        evidence = self._tools.get(call.tool)
        if evidence is None:
            if len(self._tools) >= MAX_TOOLS:
                self.left_out[f"calls of tools beyond {MAX_TOOLS}"] += 1
                return
            if not _can_be_named(call.tool):
                self.left_out["calls of tools whose name no rule can hold"] += 1
                return
            evidence = self._tools[call.tool] = ToolEvidence(call.tool)
        self.calls += 1
        if len(self._sessions) < 2:
            self._sessions.add(call.session)
        evidence.add(call.arguments, call.session)

    def rules(self) -> list[SuggestedRule]:
        """Return the rules: the most frequent first, then those without conditions, then the last one."""
        by_call = len(self._sessions) < 2
        made: dict[str, list[ToolRule]] = {}
        known = dict[str, ArgumentCondition]()
        length = no_room = 0
        tools = sorted(self._tools.values(), key=lambda one: (-one.calls, one.tool))
        for evidence in tools:
            for name, finding in evidence.forms(by_call=by_call):
                known.setdefault(name, finding)
        for evidence in tools:
            rule = evidence.rule(known, by_call=by_call)
            length += len(rule.text) + len(evidence.tool)
            if length > MAX_RULES:
                no_room += evidence.calls
                continue
            made.setdefault(rule.text, []).append(rule)
        if no_room:
            self.left_out["calls of tools for which the file has no room"] = no_room
        names = {str(ELSE["name"])}
        found = [_join(rules, names, is_alone=by_call) for rules in made.values()]
        found.sort(key=lambda one: (one.is_thin, "when" not in one.rule and "schema" not in one.rule))
        return [*found, SuggestedRule(ELSE, {}, 0)]


class ToolEvidence:
    """Calls of one tool."""

    def __init__(self, tool: str) -> None:
        self.tool, self.calls = tool, 0
        self.sessions = Tally()
        self.examples: list[str] = []
        self._arguments: dict[str, ArgumentEvidence] = {}
        self._names = Census[frozenset[str]](MAX_ARGUMENTS)
        """Sets of names that calls had."""
        self._is_hidden = False
        """True if all arguments of a call were hidden: then no condition can be seen to hold."""
        self._has_dots = False
        """True if a name has a dot in it: then a path into an argument can be read in two ways."""

    def add(self, arguments: Mapping[str, Any], session: str) -> None:
        """Take the arguments of one call."""
        self.calls += 1
        self.sessions.add(session)
        if len(self.examples) < EXAMPLES:
            example = describe_example(self.tool, arguments)
            if example not in self.examples:
                self.examples.append(example)
        if placeholders.stands_for_all(arguments):
            self._is_hidden = True
            return
        if len(arguments) > MAX_ARGUMENTS or not all(_is_plain(name) for name in arguments):
            self._names.close()
        else:
            self._names.add(frozenset(arguments), session)
        for name, value in arguments.items():
            if self._is_step(name):
                self._visit(name, [value], session)

    def forms(self, *, by_call: bool) -> Iterator[tuple[str, ArgumentCondition]]:
        """Give the forms of texts that are no chance, by the last name of their argument."""
        for path, evidence in self._arguments.items():
            finding = evidence.find(by_call=by_call) if evidence.is_sure else None
            if finding is not None and finding.is_shape:
                yield _last(path), finding

    def rule(self, known: Mapping[str, ArgumentCondition], *, by_call: bool) -> "ToolRule":
        """Return the rule that allows these calls. `known` are forms of arguments by name, of all tools."""
        if self._is_hidden or self.calls < FEW_CALLS:
            free = {"all": "some calls hid them"} if self._is_hidden else {}
            return ToolRule(self, {}, {}, {}, free, is_thin=self.calls < FEW_CALLS)
        when, properties = dict[str, Any](), dict[str, Any]()
        reasons, free = dict[str, str](), dict[str, str]()
        for path, evidence in sorted(self._arguments.items()):
            finding = evidence.find(by_call=by_call, known=known.get(_last(path)))
            if finding is None:
                if evidence.free != _OBJECTS:
                    free[path] = evidence.why_free()
                continue
            is_always = evidence.calls == self.calls and not evidence.has_gaps and not evidence.may_be_null
            if is_always and not ("." in path and self._has_dots):
                when[path], reasons[path] = finding.condition, finding.words
            elif (fragment := _fragment(path, evidence, finding)) is not None:
                properties[path], reasons[path] = fragment, f"{finding.words}; not in every call"
            else:
                free[path] = "not in every call"
        schema: dict[str, Any] = {}
        if names := self._all_names(by_call=by_call):
            schema["propertyNames"] = {"enum": names}
        if properties:
            schema["properties"] = properties
        return ToolRule(self, when, schema, reasons, free)

    def _all_names(self, *, by_call: bool) -> list[str]:
        """Return the names of all arguments, if others are unlikely; else none."""
        if not self._names.has_all(by_call=by_call):
            return []
        found = {name for names in self._names for name in names}
        return sorted(found)

    def _visit(
        self, path: str, values: Sequence[Any], session: str, depth: int = 1, *, has_gaps: bool = False
    ) -> None:
        """Take the values that one call has at a path: one, or one of each element of a list."""
        evidence = self._arguments.get(path)
        if evidence is None:
            if len(self._arguments) >= MAX_ARGUMENTS:
                return
            evidence = self._arguments[path] = ArgumentEvidence(path)
        items: list[Any] = []
        for value in values:
            if isinstance(value, list | tuple):
                evidence.has_lists = True
                has_gaps = has_gaps or not value
                items += value[: MAX_ELEMENTS + 1]
            elif value is None:
                evidence.nulls.add(session)
            else:
                evidence.has_scalars = True
                items.append(value)
        evidence.has_gaps = evidence.has_gaps or has_gaps
        if len(items) > MAX_ELEMENTS or any(isinstance(item, list | tuple) for item in items):
            evidence.free = "lists in lists, or long ones"
            return
        if not any(isinstance(item, Mapping) for item in items):
            evidence.add(items, session)
            return
        evidence.free = _OBJECTS
        evidence.calls += 1
        if depth < MAX_DEPTH and not evidence.has_gaps:
            self._visit_objects(path, items, session, depth)

    def _visit_objects(self, path: str, items: Sequence[Any], session: str, depth: int) -> None:
        objects = [item for item in items if isinstance(item, Mapping)]
        for name in dict.fromkeys(name for one in objects for name in one):
            if self._is_step(name):
                values = [one[name] for one in objects if name in one]
                has_gaps = self._arguments[path].has_gaps or len(values) < len(items)
                self._visit(f"{path}.{name}", values, session, depth + 1, has_gaps=has_gaps)

    def _is_step(self, name: str) -> bool:
        """Return whether a path may lead through this name. Note dots, which make paths ambiguous."""
        self._has_dots = self._has_dots or "." in name
        return _NAME.fullmatch(name) is not None


_OBJECTS: Final = "objects"


class ToolRule:
    """Rule for one tool, before tools with equal rules are joined."""

    def __init__(
        self,
        evidence: ToolEvidence,
        when: Mapping[str, Any],
        schema: Mapping[str, Any],
        reasons: Mapping[str, str],
        free: Mapping[str, str],
        *,
        is_thin: bool = False,
    ) -> None:
        self.evidence, self.when, self.schema = evidence, when, schema
        self.reasons, self.free, self.is_thin = reasons, free, is_thin
        self.text = json.dumps([when, schema, is_thin], sort_keys=True)
        """Text that is the same for rules that can be joined."""


def describe_example(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return a call on one line that is safe to show, its values shortened, hidden ones left out."""
    shown = {
        visible(shorten(str(name), MAX_SHOWN)): "(hidden)" if may_be_secret(str(name)) else _show(value)
        for name, value in list(arguments.items())[:MAX_ARGUMENTS]
        if name != placeholders.WHOLE
    }
    words = f"{tool} {json.dumps(shown, ensure_ascii=False)}" if shown else tool
    return shorten(visible(words), MAX_EXAMPLE)


def _show(value: Any) -> Any:
    if isinstance(value, str):
        return "(hidden)" if HIDDEN in value else shorten(value, MAX_SHOWN)
    if isinstance(value, list | tuple):
        return [_show(one) for one in value[:EXAMPLES]]
    if isinstance(value, Mapping):
        pairs = list(value.items())[:EXAMPLES]
        return {
            shorten(str(name), MAX_SHOWN): "(hidden)" if may_be_secret(str(name)) else _show(one)
            for name, one in pairs
        }
    return value


def _fragment(path: str, evidence: ArgumentEvidence, finding: ArgumentCondition) -> Mapping[str, Any] | None:
    """Return a finding in JSON Schema, which says nothing of calls without the argument."""
    if "." in path or finding.fragment is None or (evidence.has_lists and evidence.has_scalars):
        return None
    fragment = {"type": "array", "items": finding.fragment} if evidence.has_lists else finding.fragment
    return {"anyOf": [{"type": "null"}, fragment]} if evidence.may_be_null else fragment


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _can_be_named(tool: str) -> bool:
    """Return whether a glob fits this tool for certain. Other spellings of a name may fit in part."""
    is_plain = tool.isprintable() and unicodedata.normalize("NFKC", tool) == tool
    return is_plain and len(_glob(tool)) <= MAX_GLOB and globs.fits((_glob(tool),), tool) is True


def _glob(tool: str) -> str:
    """Return the glob that fits a tool by its name, taken literally."""
    return _GLOB.sub(r"[\1]", tool)


def _is_plain(name: str) -> bool:
    return isinstance(name, str) and len(name) <= MAX_GLOB and name.isprintable()


def _join(rules: Sequence[ToolRule], names: set[str], *, is_alone: bool) -> SuggestedRule:
    """Return one rule for tools whose rules say the same."""
    first, tools = rules[0], [one.evidence.tool for one in rules]
    rule: dict[str, Any] = {
        "name": _name(first, tools, names),
        "tools": _glob(tools[0]) if len(tools) == 1 else [_glob(tool) for tool in tools],
    }
    rule |= {key: value for key, value in (("when", first.when), ("schema", first.schema)) if value}
    free: dict[str, str] = {}
    for one in rules if not first.is_thin else ():
        free |= {
            f"{one.evidence.tool}.{name}" if len(rules) > 1 else name: why for name, why in one.free.items()
        }
    return SuggestedRule(
        rule={**rule, "action": "allow"},
        calls={one.evidence.tool: one.evidence.calls for one in rules},
        sessions=max(1 if is_alone else len(one.evidence.sessions.sessions) for one in rules),
        reasons=first.reasons,
        free=free,
        examples=tuple(_examples(rules)),
        is_thin=first.is_thin,
    )


def _examples(rules: Sequence[ToolRule]) -> Iterator[str]:
    """Give the examples of one tool, or one example of each of several."""
    if len(rules) == 1:
        yield from rules[0].evidence.examples
    else:
        yield from (one.evidence.examples[0] for one in rules[:EXAMPLES])


def _name(rule: ToolRule, tools: Sequence[str], names: set[str]) -> str:
    """Return a name that no other rule has."""
    if rule.is_thin:
        wanted = "seldom seen"
    elif len(tools) > 1 and not (rule.when or rule.schema):
        wanted = "any arguments"
    else:
        wanted = shorten(tools[0], 80) + (f" and {len(tools) - 1} more" if len(tools) > 1 else "")
    name, number = wanted, 2
    while name in names:
        name, number = f"{wanted} ({number})", number + 1
    names.add(name)
    return name
