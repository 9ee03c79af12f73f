"""Rules of the schedulers: how each is written in its file, and what it means for a call.

The meaning is the manual's, applied to what the tools do (`readings`). A rule says of a call that it may run,
or may not, given the calls before it. Nothing of Toolgate is imported.
"""

import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol

import readings
from readings import Call, Who

__all__ = [
    "Budget",
    "Guard",
    "Limit",
    "Order",
    "Past",
    "Pool",
    "Route",
    "Rule",
    "RuleList",
    "Test",
    "Trust",
    "Written",
]

_COMPARE: Mapping[str, Callable[[Decimal, Decimal], bool]] = {
    "gt": lambda one, other: one > other,
    "gte": lambda one, other: one >= other,
    "lt": lambda one, other: one < other,
    "lte": lambda one, other: one <= other,
}


class Past(NamedTuple):
    """The calls before one: those that ran, and all."""

    ran: Sequence[Call] = ()
    made: Sequence[Call] = ()


class Written(Protocol):
    """A configuration of one scheduler."""

    @property
    def scheduler(self) -> str:
        """Its name."""

    @property
    def person_agrees(self) -> bool:
        """Whether a person who is asked says yes: only what is denied may not run then."""

    @property
    def redact(self) -> Mapping[str, Any]:
        """What the agent's side keeps to itself: rules see placeholders."""

    def document(self) -> dict[str, Any]:
        """Its file."""

    def may_run(self, call: Call, past: Past) -> bool:
        """Whether a call may run as it is."""


# ---------------------------------------------------------------------- conditions


@dataclass(frozen=True)
class Test:
    """A condition on one argument."""

    kind: str
    given: Any

    def meets(self, leaf: Any) -> bool:
        """Whether a single value meets it, as the tool takes that value."""
        match self.kind:
            case "glob":
                return _glob(self.given).fullmatch(readings.text(leaf)) is not None
            case "matches":
                return re.search(self.given, readings.text(leaf)) is not None
            case "equals":
                return _same(leaf, self.given)
            case "in":
                return any(_same(leaf, one) for one in self.given)
            case "under":
                found = posixpath.normpath(readings.text(leaf))
                return found == self.given or found.startswith(f"{self.given}/")
        found_number = readings.number(leaf)
        return found_number is not None and _COMPARE[self.kind](found_number, Decimal(self.given))


@cache
def _glob(written: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(written), re.DOTALL)


def _fits(glob: str, name: str) -> bool:
    return fnmatch.fnmatchcase(name, glob)


def _same(leaf: Any, given: Any) -> bool:
    """Whether a tool takes a value for the given one: `"5000"` for 5000, `"true"` for true."""
    if isinstance(given, bool) or given is None:
        return leaf is given or leaf == readings.text(given)
    if isinstance(given, int | float):
        return readings.number(leaf) == Decimal(given)
    return bool(readings.text(leaf) == given)


# ---------------------------------------------------------------------- policy, approval


@dataclass(frozen=True)
class Rule:
    """One rule of `policy` or `approval`, or a route's conditions."""

    action: str
    tools: tuple[str, ...]
    when: Mapping[str, Test] = field(default_factory=dict)
    who: Mapping[str, Any] = field(default_factory=dict)
    """`agents`, `sessions`, `labels`, as they are written."""
    more: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As it is written."""
        when = {path: {test.kind: test.given} for path, test in self.when.items()}
        written = {"tools": list(self.tools), "action": self.action, **self.who, **self.more}
        return written | ({"when": when} if when else {})

    def fits(self, call: Call, agent: str) -> bool:
        """Whether it is about a call, made by or for this agent."""
        if not self.is_for(call.who, agent) or not self.names(call.tool):
            return False
        return all(self._holds(path, test, call) for path, test in self.when.items())

    def names(self, tool: str) -> bool:
        """Whether a tool is one of its own: who allows goes by its plain name alone."""
        spelled = (tool,) if self.action == "allow" else (tool, readings.clean_name(tool))
        return any(_fits(glob, name) for name in spelled for glob in self.tools)

    def is_for(self, who: Who, agent: str) -> bool:
        """Whether it is about calls of such an agent."""
        agents, sessions, labels = (self.who.get(name) for name in ("agents", "sessions", "labels"))
        return (
            (agents is None or _fits(agents, agent))
            and (
                sessions is None or any(fnmatch.fnmatchcase(one, sessions) for one in (who.session, who.tree))
            )
            and all(
                fnmatch.fnmatchcase(who.labels.get(name, ""), glob) for name, glob in (labels or {}).items()
            )
        )

    def _holds(self, path: str, test: Test, call: Call) -> bool:
        found = [leaf for value in readings.at(path, call.filled()) for leaf in readings.leaves(value)]
        met = [test.meets(leaf) for leaf in found]
        return bool(met) and all(met) if self.action == "allow" else any(met)


@dataclass(frozen=True)
class RuleList:
    """The file of `policy` or `approval`: the first rule that fits counts, the strictest over the lineage."""

    scheduler: str
    rules: tuple[Rule, ...]
    default: str = "allow"
    person_agrees: bool = False
    redact: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The file."""
        written: dict[str, Any] = {"rules": [rule.document() for rule in self.rules]}
        return written | ({"default": self.default} if self.scheduler == "policy" else {})

    def may_run(self, call: Call, past: Past) -> bool:
        """Whether all agents of the lineage may make it."""
        strict = {"deny"} if self.person_agrees else {"deny", "ask"}
        return not any(self._action(call, agent, past) in strict for agent in call.who.agents)

    def _action(self, call: Call, agent: str, past: Past) -> str:
        for number, rule in enumerate(self.rules):
            if rule.fits(call, agent):
                approved = any(
                    one.is_approved and self._first(one) == number and one.who.session == call.who.session
                    for one in past.made
                )
                return "allow" if approved else rule.action
        return self.default

    def _first(self, call: Call) -> int | None:
        return next((at for at, rule in enumerate(self.rules) if rule.fits(call, call.who.agent)), None)


# ---------------------------------------------------------------------- counts


class _Asks:
    """What never asks a person, and is told all."""

    person_agrees: ClassVar[bool] = False
    redact: ClassVar[Mapping[str, Any]] = {}


@dataclass(frozen=True)
class Limit(_Asks):
    """A limit of `rate-limit`: one call in a day."""

    tools: tuple[str, ...]
    per: str
    agents: str | None = None
    scheduler: str = "rate-limit"

    def document(self) -> dict[str, Any]:
        """The file."""
        whose = {} if self.agents is None else {"agents": self.agents}
        return {"limits": [{"tools": list(self.tools), "per": self.per, "rate": "1/day", **whose}]}

    def may_run(self, call: Call, past: Past) -> bool:
        """Whether none ran before of those that it is counted with."""
        return not (self._is_about(call) and any(self._together(call, one) for one in past.ran))

    def _is_about(self, call: Call) -> bool:
        named = any(
            _fits(glob, name) for name in (call.tool, readings.clean_name(call.tool)) for glob in self.tools
        )
        return named and (self.agents is None or bool(self._meant(call.who)))

    def _meant(self, who: Who) -> set[str]:
        return {
            agent for agent in who.agents if self.agents is None or fnmatch.fnmatchcase(agent, self.agents)
        }

    def _together(self, one: Call, other: Call) -> bool:
        if not self._is_about(other):
            return False
        match self.per:
            case "session" | "tree":
                return one.who.tree == other.who.tree
            case "agent":
                return bool(self._meant(one.who) & self._meant(other.who))
            case "tool":
                return readings.clean_name(one.tool) == readings.clean_name(other.tool)
        return True


@dataclass(frozen=True)
class Budget(_Asks):
    """A budget of `cost-aware` that one call uses up."""

    level: str
    scheduler: str = "cost-aware"

    def document(self) -> dict[str, Any]:
        """The file."""
        return {
            "tools": {"pay": {"cost": 1.0}},
            "budgets": [{"name": "one", "level": self.level, "limit": 1.0}],
            "learn": False,
        }

    def may_run(self, call: Call, past: Past) -> bool:
        """Whether nothing is spent by those who share it."""
        return not any(self._together(call.who, one.who) for one in past.ran if one.tool == call.tool)

    def _together(self, one: Who, other: Who) -> bool:
        return self.level == "fleet" or one.tree == other.tree


@dataclass(frozen=True)
class Guard(_Asks):
    """A `loop-guard`: the same call once in a row, or one call of a session."""

    option: str
    scheduler: str = "loop-guard"

    def document(self) -> dict[str, Any]:
        """The file."""
        return {self.option: {"times": 1} if self.option == "same_call" else 1}

    def may_run(self, call: Call, past: Past) -> bool:
        """Whether it was not made just before, or is the first."""
        if self.option == "same_call":
            made = [one for one in past.made if one.who.session == call.who.session]
            return not made or _call(made[-1]) != _call(call)
        return not any(one.who.tree == call.who.tree for one in past.made)


def _call(call: Call) -> Any:
    return readings.clean_name(call.tool), readings.canonical(call.arguments)


@dataclass(frozen=True)
class Pool(_Asks):
    """Pools of `slots`: one call at a time, none of which ends here."""

    rule: Rule
    key: str | None = None
    crowd: int = 0
    """Pools before it that the calls fit as well, each with room for all."""
    scheduler: str = "slots"

    def document(self) -> dict[str, Any]:
        """The file."""
        written = {name: one for name, one in self.rule.document().items() if name != "action"}
        pool = {**written, "name": "last", "limit": 1, "wait_s": 0}
        if self.key is not None:
            pool["key"] = self.key
        before = [
            {"name": f"p{at}", "tools": list(self.rule.tools), "limit": 1000, "wait_s": 0}
            for at in range(self.crowd)
        ]
        return {"pools": [*before, pool]}

    def may_run(self, call: Call, past: Past) -> bool:
        """Whether no call that it shares a place with is under way."""
        return not (self._fits(call) and any(self._fits(one) and self._clash(call, one) for one in past.ran))

    def _fits(self, call: Call) -> bool:
        return any(self.rule.fits(call, agent) for agent in call.who.agents)

    def _clash(self, one: Call, other: Call) -> bool:
        return self.key is None or not set(self._keys(one)).isdisjoint(self._keys(other))

    def _keys(self, call: Call) -> Iterator[str]:
        path, _, part = (self.key or "").removeprefix("$.").partition("#")
        for value in readings.at(path, call.filled()):
            for leaf in readings.leaves(value):
                written = readings.text(leaf)
                yield readings.host(written) if part else readings.place(written)


# ---------------------------------------------------------------------- order


@dataclass(frozen=True)
class Order(_Asks):
    """A rule of `policy` on what came before: `at_most` one call, or no `send_mail` once a key was read."""

    option: str
    scope: str | None = None
    who: Mapping[str, Any] = field(default_factory=dict)
    scheduler: str = "policy"
    SECRET: ClassVar[Test] = Test("glob", "*.pem")

    def document(self) -> dict[str, Any]:
        """The file."""
        scope = {} if self.scope is None else {"scope": self.scope}
        need: dict[str, Any] = {"n": 1, **scope}
        if self.option == "unless_after":
            need = {
                "tool": "read_file",
                "when": {"path": {"glob": self.SECRET.given}},
                "success": None,
                **scope,
            }
        return {"rules": [{"tools": "send_mail", self.option: need, **self.who}], "default": "allow"}

    def may_run(self, call: Call, past: Past) -> bool:
        """Whether nothing stands against it in the tree."""
        agents = self.who.get("agents")
        if call.tool != "send_mail" or (agents is not None and agents not in call.who.agents):
            return True
        before = [one for one in past.ran if self._together(one.who, call.who)]
        if self.option == "at_most":
            return not any(
                one.tool == "send_mail" and (agents is None or agents in one.who.agents) for one in before
            )
        read = [one for one in before if one.tool == "read_file"]
        leaves = (
            leaf for one in read for at in readings.at("path", one.filled()) for leaf in readings.leaves(at)
        )
        return not any(self.SECRET.meets(leaf) for leaf in leaves)

    def _together(self, one: Who, other: Who) -> bool:
        if self.scope is not None and self.scope.startswith("label:"):
            name = self.scope.removeprefix("label:")
            mine, its = one.labels.get(name), other.labels.get(name)
            return mine is None or its is None or mine == its
        return one.tree == other.tree


# ---------------------------------------------------------------------- where it goes


@dataclass(frozen=True)
class Trust(_Asks):
    """A sink of `provenance`: addressees or hosts that are trusted, or named by the request."""

    tool: str
    argument: str
    trusted: tuple[str, ...]
    scheduler: str = "provenance"

    def document(self) -> dict[str, Any]:
        """The file."""
        sink = {"tools": self.tool, "to": self.argument, "action": "deny"}
        return {"sinks": [sink], "trusted": list(self.trusted)}

    def may_run(self, call: Call, past: Past) -> bool:
        """Whether all that it goes to is trusted or named."""
        found = list(readings.at(self.argument, call.filled()))
        if self.argument == "url":
            hosts = [readings.host(readings.text(leaf)) for value in found for leaf in readings.leaves(value)]
            known = {one.partition("/")[0] for one in self.trusted}
            known |= {readings.host(word) for word in call.who.request.split()}
            return all(one in known for one in hosts if one)
        domains = {readings.ascii_host(one.removeprefix("*@")) for one in self.trusted}
        named = set(readings.addresses(call.who.request.replace(" ", ",")))
        goes = [one for value in found for one in readings.addresses(value)]
        return all(one in named or one.rpartition("@")[2] in domains for one in goes)


@dataclass(frozen=True)
class Route(_Asks):
    """A route of `router`: what fits goes to a safe tool."""

    rule: Rule
    to: str = "sandbox"
    scheduler: str = "router"

    def document(self) -> dict[str, Any]:
        """The file."""
        written = self.rule.document()
        kept = {name: one for name, one in written.items() if name not in ("action", "tools")}
        return {"routes": [{**kept, "from": written["tools"], "to": self.to}]}

    def may_run(self, call: Call, past: Past) -> bool:
        """Whether it went there, if it is about the call."""
        return call.tool == self.to or not any(self.rule.fits(call, agent) for agent in call.who.agents)
