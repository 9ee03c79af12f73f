"""Which calls a rule is about, apart from their tool: arguments, agent, session, labels. Pure.

The part that rules of `policy` and routes of `router` have in common; all that is given must hold.
A call that does not say (no label of that name, no agent asked) fits no glob for it. Where an argument
could not be seen, it may be unknown whether a rule is about a call: who restricts takes it to be, unless
the rule says `unknown: allow`; who allows, exempts or routes does not. So it is with lists: who restricts
looks for one element that fits, who allows wants all of them to.

A call is made by an agent, and for each agent above it. Who restricts an agent means also who works for it:
`concerns` asks so of one rule; where rules have an order, they are gone through once `as_each_agent`.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field

from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.conditions import (
    Globs,
    Quantifier,
    Truth,
    When,
    any_glob,
    every,
    holds,
    unknown_in,
)

Unknown = Literal["deny", "allow"]
"""What is to become of a call of which a rule cannot see whether it is about it."""


def _read_schema(written: Any) -> Any:
    # Late: few configurations need what takes a tenth of a second to load.
    from toolgate_bus.ruling.conditions.json_schema import reader

    return written if callable(written) else reader(written)


Schema = Annotated[Callable[[Any], Truth], BeforeValidator(_read_schema)]
"""Written as a JSON-Schema fragment, kept as the function that says whether a value is valid."""
LabelName = Annotated[str, Field(min_length=1, max_length=256)]


class CallMatcher(StrictModel):
    """The conditions of a rule on a call, and what the rule is called."""

    name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Told in its reasons; no two may have the same."""
    when: When = Field(default_factory=dict)
    """Arguments to conditions, see below."""
    schema_: Schema | None = Field(default=None, alias="schema")
    """The arguments are valid by this JSON-Schema fragment, see below."""
    agents: Globs | None = None
    """Names of the agent that makes the call, as globs; `?*` is any that has a name. A sub-agent's call is
    also one of each agent above it: a rule that restricts one of them counts."""
    labels: Annotated[dict[LabelName, Globs], Field(max_length=256)] = Field(default_factory=dict)
    """Label to one glob or several: each of these labels is there, and matches."""
    sessions: Globs | None = None
    """Ids of the session, or of the root of its tree, as globs: so its sub-agents are meant as well."""
    agent_targets: Globs | None = None
    """For a delegation: the agent that it asks, as globs."""

    def about(self, tools: Globs, call: ToolSelecting, elements: Quantifier = "any") -> Truth:
        """Tell whether a call is of one of these tools, and all conditions hold for it and its agent."""
        return self._about(tools, call, (call.agent,), elements)

    def concerns(self, tools: Globs, call: ToolSelecting, elements: Quantifier = "any") -> Truth:
        """Tell the same of a call by its agent, or by any agent above: for a rule that restricts."""
        return self._about(tools, call, (call.agent, *call.lineage), elements)

    @cached_property
    def wording(self) -> str:
        """All that it says, as a text: for what is kept of a rule by its words, and not by its place."""
        return f"{self.model_dump_json(exclude={'schema_'})}{self.schema_ or ''}"

    def _about(
        self, tools: Globs, call: ToolSelecting, agents: tuple[str, ...], elements: Quantifier
    ) -> Truth:
        named = globs.fits(tools, call.tool_name)
        if named is False:
            return False
        concerned = self._matches(call, agents, elements)
        return concerned if named else every((None, concerned))

    def _matches(self, call: ToolSelecting, agents: tuple[str, ...], elements: Quantifier) -> Truth:
        if self._asks_who and not (
            _any(self.agents, *agents)
            and _any(self.agent_targets, call.agent_target)
            and _any(self.sessions, call.session, call.root_session)
            and all(_any(globs, call.labels.get(name)) for name, globs in self.labels.items())
        ):
            return False
        held = holds(self.when, call.tool_input, elements)
        if held is False or self.schema_ is None:
            return held
        return every((held, self.schema_(call.tool_input)))

    @cached_property
    def _asks_who(self) -> bool:
        """Whether anything but the tool and its arguments is looked at."""
        return bool(self.agents or self.agent_targets or self.sessions or self.labels)


def as_each_agent(call: ToolSelecting) -> Iterator[ToolSelecting]:
    """Give the call as its own agent's, then as that of each other agent of its lineage."""
    yield call
    for agent in dict.fromkeys(call.lineage):
        if agent != call.agent:
            yield call.model_copy(update={"agent": agent})


def describe_unseen(rule: CallMatcher, call: ToolSelecting) -> str:
    """What of a call could not be seen, for whoever made it."""
    paths = [path[:_SHOWN] for path in unknown_in(rule.when, call.tool_input)[:3]]
    what = ", ".join(paths) or ("its arguments" if rule.schema_ is not None else "its name")
    return f"{what} could not be seen whole: too long, hidden, or written so that it can be read in two ways"


_SHOWN = 100
Rule = TypeVar("Rule", bound=CallMatcher)


def check_unique(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules, if no two have the same name; raises ValueError that says which have."""
    seen: dict[str, int] = {}
    for number, rule in enumerate(rules):
        if rule.name is not None and seen.setdefault(rule.name, number) != number:
            raise ValueError(f"{seen[rule.name]} and {number} (from 0) have the same name, {rule.name}")
    return rules


def _any(globs: Globs | None, *names: str | None) -> bool:
    return globs is None or any(any_glob(globs, name) for name in names if name is not None)
