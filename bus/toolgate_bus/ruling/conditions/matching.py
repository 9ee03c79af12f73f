"""Matches calls with rules by everything but their tool: arguments, agent, session, labels. Pure.

Rules of `policy` and routes of `router` share these conditions; all that are given must hold. A call without
a value (no label of that name, no agent asked) fits no glob for it. If an argument could not be seen, it may
be unknown whether a rule matches a call. Then a rule that restricts counts as matching, unless it says
`unknown: allow`; one that allows, exempts or routes does not. So it is with lists: a rule that restricts
looks for one element that fits, one that allows needs all of them to fit.

A call is made by an agent, and for each agent above it. A rule that restricts an agent also restricts the
agents that work for it. `concerns` checks that for one rule; rules with an order are gone through once
`as_each_agent`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final, Literal, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, Field

from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import ToolQuestion, ToolSelecting
from toolgate_bus.protocol.names import MAX_REASON, MAX_SESSION_LABELS
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.conditions import (
    Globs,
    Quantifier,
    Truth,
    When,
    any_glob,
    every,
    unknown_in,
)
from toolgate_bus.ruling.conditions.when_matcher import WhenMatcher

AnyQuestion = ToolSelecting | ToolQuestion
"""A question as a scheduler reads it, or as a gate writes it."""
Asked = TypeVar("Asked", bound=AnyQuestion)
Unknown = Literal["deny", "allow"]
"""Treatment of a call if a rule cannot see whether it matches."""


def _read_schema(written: Any) -> Any:
    # Loaded late: it takes a tenth of a second, and few configurations need it.
    from toolgate_bus.ruling.conditions.json_schema import reader

    return written if callable(written) else reader(written)


Schema = Annotated[Callable[[Any], Truth], BeforeValidator(_read_schema)]
"""JSON-Schema fragment, kept as the function that tells whether a value is valid."""
LabelName = Annotated[str, Field(min_length=1, max_length=256)]


class CallMatcher(StrictModel):
    """Conditions of a rule on a call, and the rule's name."""

    name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Name of the rule, shown in its reasons; no two rules may have the same."""
    when: When = Field(default_factory=dict)
    """Conditions by argument path, see below."""
    schema_: Schema | None = Field(default=None, alias="schema")
    """JSON-Schema fragment by which the arguments must be valid, see below."""
    agents: Globs | None = None
    """Names of the agent that makes the call, as globs; `?*` is any agent with a name. A sub-agent's call
    also counts as a call of each agent above it, for a rule that restricts."""
    labels: Annotated[dict[LabelName, Globs], Field(max_length=256)] = Field(default_factory=dict)
    """Labels that the call must have, each with one glob or several for its value."""
    sessions: Globs | None = None
    """Ids of the session, or of the root of its tree, as globs. A root's id also covers its sub-agents."""
    agent_targets: Globs | None = None
    """Names of the agent that a delegation asks, as globs."""

    def about(self, tools: Globs, call: AnyQuestion, elements: Quantifier = "any") -> Truth:
        """Return whether a call is of one of these tools, and all conditions hold for it and its agent."""
        return self._about(tools, call, (call.agent,), elements)

    def about_tool(self, named: Truth, call: AnyQuestion, elements: Quantifier) -> Truth:
        """Return the same where it is known whether the rule is about the tool (`named`)."""
        concerned = self._matches(call, (call.agent,), elements)
        return concerned if named else every((None, concerned))

    def concerns(self, tools: Globs, call: AnyQuestion, elements: Quantifier = "any") -> Truth:
        """Return the same for the call's agent or any agent above it, for a rule that restricts."""
        return self._about(tools, call, (call.agent, *call.lineage), elements)

    def covers(self, tools: Globs, call: AnyQuestion) -> Truth:
        """Return whether the rule is about each call of this tool by this agent, whatever the arguments.

        None if that depends on the arguments.
        """
        named = globs.fits(tools, call.tool_name)
        if named is False or not self._is_by(call, (call.agent,)):
            return False
        if named is None or self.when or self.schema_ is not None or self.agent_targets:
            return None
        return True

    @cached_property
    def wording(self) -> str:
        """The whole rule as a text, to identify it by its words instead of its place."""
        return f"{self.model_dump_json(exclude={'schema_'})}{self.schema_ or ''}"

    def _about(self, tools: Globs, call: AnyQuestion, agents: tuple[str, ...], elements: Quantifier) -> Truth:
        named = globs.fits(tools, call.tool_name)
        if named is False:
            return False
        concerned = self._matches(call, agents, elements)
        return concerned if named else every((None, concerned))

    def _matches(self, call: AnyQuestion, agents: tuple[str, ...], elements: Quantifier) -> Truth:
        if self._asks_who and not (self._is_by(call, agents) and _any(self.agent_targets, call.agent_target)):
            return False
        held = self._conditions.holds(call.tool_input, elements) if self.when else True
        if held is False or self.schema_ is None:
            return held
        return every((held, self.schema_(call.tool_input)))

    def _is_by(self, call: AnyQuestion, agents: tuple[str, ...]) -> bool:
        return (
            _any(self.agents, *agents)
            and _any(self.sessions, call.session, call.root_session)
            and all(_any(globs, call.labels.get(name)) for name, globs in self.labels.items())
        )

    @cached_property
    def is_unconditional(self) -> bool:
        """True if the rule is about every call of its tools, whoever makes it and with any arguments."""
        return not (self._asks_who or self.when or self.schema_ is not None)

    @property
    def conditions(self) -> WhenMatcher | None:
        """Conditions on the arguments, if nothing else decides whether a call of its tools fits."""
        return None if self._asks_who or self.schema_ is not None else self._conditions

    @cached_property
    def asks_agent_only(self) -> bool:
        """True if nothing but the tool, its arguments and the agent's name decides whether a call fits."""
        others = self.agent_targets or self.sessions or self.labels or self.schema_ is not None
        return bool(self.agents) and not others

    def conditions_of(self, agent: str) -> WhenMatcher | None:
        """Return the conditions on arguments of calls by this agent, for a rule that `asks_agent_only`.

        None if the rule is about none of them.
        """
        return self._conditions if _any(self.agents, agent) else None

    @cached_property
    def _conditions(self) -> WhenMatcher:
        return WhenMatcher(self.when)

    @cached_property
    def _asks_who(self) -> bool:
        """True if anything but the tool and its arguments is checked."""
        return bool(self.agents or self.agent_targets or self.sessions or self.labels)


def _check_label(glob: str) -> str:
    if odd := _NO_LABEL.search(glob):
        raise ValueError(
            f"{glob}: no label of a session has {odd[0]!r}: letters, digits and _ . : / @ - only"
        )
    return glob


_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9_.:/@*?\[\]!-]")
SessionLabelGlobs = Annotated[
    dict[
        Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_check_label)],
        Annotated[Globs, AfterValidator(lambda globs: tuple(map(_check_label, globs)))],
    ],
    Field(max_length=MAX_SESSION_LABELS),
]


class SessionMatcher(CallMatcher):
    """Conditions of a rule on a call, and on the labels that its session bears."""

    when_session: SessionLabelGlobs = Field(default_factory=dict)
    """Labels that the session must bear, such as `{source: untrusted}`, each with one glob or several for
    its value. Rules on results give them (`label`). If they are not known, that counts against the call."""

    def covers(self, tools: Globs, call: AnyQuestion) -> Truth:
        """Return whether the rule is about each call of this tool by this agent, whatever the arguments."""
        whole = super().covers(tools, call)
        return None if whole and self.when_session else whole

    @cached_property
    def is_unconditional(self) -> bool:
        """True if the rule is about every call of its tools, whoever makes it and with any arguments."""
        return not self.when_session and super().is_unconditional

    @property
    def conditions(self) -> WhenMatcher | None:
        """Conditions on the arguments, if nothing else decides whether a call of its tools fits."""
        return None if self.when_session else super().conditions

    @cached_property
    def asks_agent_only(self) -> bool:
        """True if nothing but the tool, its arguments and the agent's name decides whether a call fits."""
        return not self.when_session and super().asks_agent_only

    def _matches(self, call: AnyQuestion, agents: tuple[str, ...], elements: Quantifier) -> Truth:
        if not self.when_session:
            return super()._matches(call, agents, elements)
        borne = session_bears(self.when_session, call.session_labels, elements)
        if borne and elements == "all" and not session_bears(self.when_session, call.required_labels):
            return False  # (an optional scheduler's label may restrict, but is no reason to allow)
        return borne if borne is False else every((borne, super()._matches(call, agents, elements)))


def session_bears(
    wanted: Mapping[str, Globs], labels: Mapping[str, Sequence[str]] | None, elements: Quantifier = "any"
) -> Truth:
    """Return whether a session bears these labels; None if its labels are unknown.

    A label may have several values. Like elements of a list, one must fit, or all of them if the rule allows.
    """
    if labels is None:
        return None
    for name, values in wanted.items():
        fitting = [any_glob(values, value) for value in labels.get(name, ())]
        if not fitting or not (all(fitting) if elements == "all" else any(fitting)):
            return False
    return True


def as_each_agent(call: Asked) -> Iterator[Asked]:
    """Yield the call as its own agent's, then as that of each other agent of its lineage."""
    yield call
    for agent in dict.fromkeys(call.lineage):
        if agent != call.agent:
            if isinstance(call, ToolQuestion):
                yield cast("Asked", call._replace(agent=agent))
            else:
                yield cast("Asked", call.model_copy(update={"agent": agent}))


def explain_lineage(reason: str, agent: str, above: str) -> str:
    """Return the reason of a denial that holds for an agent `above` the one that calls."""
    works = f"{agent or 'this agent'}, which works for {above}"
    return f"{reason}; this holds for {works}"[:MAX_REASON]


def describe_unseen(rule: CallMatcher, call: ToolSelecting) -> str:
    """Return a text for the caller about the parts of a call that could not be seen."""
    paths = [path[:_SHOWN] for path in unknown_in(rule.when, call.tool_input)[:3]]
    what = ", ".join(paths) or ("its arguments" if rule.schema_ is not None else "its name")
    return f"{what} could not be seen whole: too long, hidden, or written so that it can be read in two ways"


_SHOWN = 100
Rule = TypeVar("Rule", bound=CallMatcher)


def check_unique(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the rules if no two have the same name. Raises ValueError that names two that have."""
    seen: dict[str, int] = {}
    for number, rule in enumerate(rules):
        if rule.name is not None and seen.setdefault(rule.name, number) != number:
            raise ValueError(f"{seen[rule.name]} and {number} (from 0) have the same name, {rule.name}")
    return rules


def _any(globs: Globs | None, *names: str | None) -> bool:
    return globs is None or any(any_glob(globs, name) for name in names if name is not None)
