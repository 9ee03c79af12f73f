"""Define groups of tools or agents that can replace one another, and map the arguments between them.

    groups:
      - tools: [search_direct_flight, search_onestop_flight]      # the same arguments
      - tools:                                                    # arguments of their own names
          web_search: {arguments: {query: $.q}}
          cheap_search: {arguments: {q: $.query, limit: {value: 10}}}
      - agents: [senior, junior]      # a delegation to one may go to another

`arguments` maps each argument of the tool to its source in the replaced call. Sources have the same form as
in the router. If there are several, the first that the call has counts.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, field_validator, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.ruling.conditions.arguments import LiteralArgument, is_source, map_arguments

from toolgate_schedulers.shipped.score.outcomes import agent_key

Name = Annotated[str, Field(min_length=1, max_length=256)]
Source = str | LiteralArgument
Sources = Source | Annotated[tuple[Source, ...], Field(min_length=1, max_length=64)]
_FORMS = "must be $ (all arguments), $.path (one of them), {value: …} for a literal, or a list of these"


class Alternative(NamedTuple):
    """Tool that can run in place of a call, with its arguments; or another agent."""

    tool: str
    arguments: dict[str, Any] | None
    """Arguments for the tool; None keeps those of the call."""
    agent: str | None = None
    """Agent to ask instead, for a delegation; None keeps that of the call."""


class Interchangeable(StrictModel):
    """Tool of a group."""

    arguments: Annotated[dict[Name, Sources], Field(max_length=256)] | None = None
    """Mapping of each argument to one or several sources. Default: the call's arguments, unchanged."""

    @field_validator("arguments", mode="before")
    @classmethod
    def _sources(cls, arguments: Any) -> Any:
        for name, source in arguments.items() if isinstance(arguments, Mapping) else ():
            if not all(map(is_source, source if isinstance(source, list | tuple) else [source])):
                raise ValueError(f"{name}: {_FORMS}")
        return arguments


class AlternativeGroup(StrictModel):
    """Tools or agents that can replace one another, in order of preference."""

    tools: Annotated[dict[Name, Interchangeable], Field(min_length=2, max_length=64)] | None = None
    agents: Annotated[tuple[Name, ...], Field(min_length=2, max_length=64)] | None = None
    """Names of agents that calls delegate to."""

    @field_validator("tools", mode="before")
    @classmethod
    def _as_mapping(cls, tools: Any) -> Any:
        if isinstance(tools, list | tuple):
            names = [name for name in tools if isinstance(name, str)]
            if len(names) != len(tools) or len(set(names)) != len(names):
                raise ValueError("must be a list of different tool names, or a mapping of names to arguments")
            return {name: {} for name in names}
        if isinstance(tools, Mapping):
            return {name: {} if member is None else member for name, member in tools.items()}
        return tools

    @model_validator(mode="after")
    def _of_one_kind(self) -> "AlternativeGroup":
        if (self.tools is None) == (self.agents is None):
            raise ValueError("give either tools or agents")
        if self.agents is not None and len(set(self.agents)) != len(self.agents):
            raise ValueError("agents: must be different")
        return self


def _named_once(groups: tuple[AlternativeGroup, ...]) -> tuple[AlternativeGroup, ...]:
    """Return the groups unchanged; raise ValueError if a tool or agent is in two of them."""
    for kind in ("tool", "agent"):
        seen: set[str] = set()
        for group in groups:
            members = (group.tools if kind == "tool" else group.agents) or ()
            twice = sorted(seen.intersection(members))
            if twice:
                raise ValueError(f"{twice[0]} is in two groups: put each {kind} into one group only")
            seen.update(members)
    return groups


Groups = Annotated[tuple[AlternativeGroup, ...], Field(max_length=1024), AfterValidator(_named_once)]


def group_of(groups: Iterable[AlternativeGroup], tool: str) -> AlternativeGroup | None:
    """Return the group that a tool belongs to, if any."""
    return next((group for group in groups if tool in (group.tools or ())), None)


def team_of(groups: Iterable[AlternativeGroup], agent: str | None) -> AlternativeGroup | None:
    """Return the group that an agent belongs to, if any."""
    return next((group for group in groups if agent in (group.agents or ())), None)


def list_rivals(groups: Iterable[AlternativeGroup]) -> list[list[str]]:
    """List the keys of the tools and agents of each group, by which their outcomes are remembered."""
    return [
        list(group.tools) if group.tools else [agent_key(agent) for agent in group.agents or ()]
        for group in groups
    ]


def alternatives(groups: Iterable[AlternativeGroup], call: ToolSelecting) -> list[Alternative]:
    """List the available members of the call's group that could run instead, in the group's order.

    For a delegation, calls to other agents come first, then other tools.
    """
    groups = list(groups)
    here = not call.available_tools or call.tool_name in call.available_tools
    team = team_of(groups, call.agent_target) if here else None
    group = group_of(groups, call.tool_name)
    agents = [
        Alternative(call.tool_name, None, agent)
        for agent in (team.agents if team is not None else None) or ()
        if agent != call.agent_target and agent in (call.available_agents or ())
    ]
    tools = [
        Alternative(tool, arguments_for(member, call.tool_input))
        for tool, member in ((group.tools if group is not None else None) or {}).items()
        if tool != call.tool_name and tool in call.available_tools
    ]
    return [*agents, *tools]


def arguments_for(member: Interchangeable, given: dict[str, Any]) -> dict[str, Any] | None:
    """Return the tool's arguments, mapped from those of the call that it replaces."""
    if member.arguments is None:
        return None
    found: dict[str, Any] = {}
    for name, sources in member.arguments.items():
        for source in sources if isinstance(sources, tuple) else (sources,):
            one = map_arguments({name: source}, given)
            if one:
                found.update(one)
                break
    return found
