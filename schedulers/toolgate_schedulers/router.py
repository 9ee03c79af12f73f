"""The shipped scheduler `router`: sends a tool's calls to another tool, mapping the arguments.

The first route that fits a call, whose target is available and which would change something, wins.
A source that the call does not have leaves its target argument out. In phase `verify` it always
continues: a replacement is not replaced again.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field, field_validator
from toolgate_bus.events import Continue, Modify, ToolSelecting, Verdict

from toolgate_schedulers.conditions import MISSING, Globs, When, any_glob, find, holds, same
from toolgate_schedulers.config_file import StrictModel

__all__ = ["Literally", "Route", "Router", "RouterConfig", "route"]

Text = Annotated[str, Field(min_length=1, max_length=2000)]
Name = Annotated[str, Field(min_length=1, max_length=256)]


class Literally(StrictModel):
    """An argument given as it is: `{value: 10}`."""

    value: Any


class Route(StrictModel):
    """Which calls go to which tool, with what arguments."""

    from_: Globs = Field(alias="from")
    to: Name
    when: When = Field(default_factory=dict)
    arguments: Annotated[dict[Name, str | Literally], Field(max_length=256)] | None = None
    """Target argument to source: `$.path` in the call's own, `$` for all of them, or `{value: …}`."""
    reason: Text | None = None
    agent: Name | None = None
    """For a delegation: the agent to ask instead."""

    @field_validator("from_", mode="before")
    @classmethod
    def _one_or_more(cls, globs: Any) -> Any:
        return [globs] if isinstance(globs, str) else globs

    @field_validator("arguments", mode="before")
    @classmethod
    def _sources(cls, arguments: Any) -> Any:
        for name, source in arguments.items() if isinstance(arguments, Mapping) else ():
            literal = isinstance(source, Literally) or (
                isinstance(source, Mapping) and set(source) == {"value"}
            )
            if not literal and not (isinstance(source, str) and _is_path(source)):
                raise ValueError(
                    f"{name}: must be $ (all arguments), $.path (one of them), or {{value: …}} for a literal"
                )
        return arguments

    def fits(self, call: ToolSelecting) -> bool:
        """Whether this route is about the call, and its target can be had."""
        return (
            any_glob(self.from_, call.tool_name)
            and self.to in call.available_tools
            and (self.agent is None or call.available_agents is None or self.agent in call.available_agents)
            and holds(self.when, call.tool_input)
        )

    def changes(self, call: ToolSelecting, arguments: dict[str, Any] | None) -> bool:
        """Whether the call that the route makes differs from the one it is given."""
        return (
            self.to != call.tool_name
            or (arguments is not None and not same(arguments, call.tool_input))
            or (self.agent is not None and self.agent != call.agent_target)
        )


class RouterConfig(StrictModel):
    """The file of a router: `routes`, of which the first that fits counts."""

    routes: Annotated[tuple[Route, ...], Field(min_length=1, max_length=10_000)]


def route(config: RouterConfig, call: ToolSelecting) -> Verdict:
    """Where the router sends a call."""
    for one in config.routes if call.phase == "select" else ():
        if not one.fits(call):
            continue
        arguments = None if one.arguments is None else mapped(one.arguments, call.tool_input)
        if one.changes(call, arguments):
            reason = one.reason or f"routed from {call.tool_name} to {one.to}"
            return Modify(tool=one.to, arguments=arguments, agent_target=one.agent, reason=reason)
    return Continue()


def mapped(sources: Mapping[str, str | Literally], arguments: dict[str, Any]) -> dict[str, Any]:
    """The target's arguments; a source that is not there leaves its argument out."""
    found = {name: _source(source, arguments) for name, source in sources.items()}
    return {name: value for name, value in found.items() if value is not MISSING}


def _is_path(source: str) -> bool:
    return source == "$" or (source.startswith("$.") and len(source) > len("$."))


def _source(source: str | Literally, arguments: dict[str, Any]) -> Any:
    if isinstance(source, Literally):
        return source.value
    return arguments if source == "$" else find(source.removeprefix("$."), arguments)


class Router:
    """The scheduler of a `RouterConfig`; it is only asked about tools that a route begins at."""

    name = "router"
    priority = 10
    config_model: ClassVar[type[BaseModel]] = RouterConfig

    def __init__(self, config: RouterConfig) -> None:
        self.config = config
        self.tools = tuple(dict.fromkeys(glob for one in config.routes for glob in one.from_))

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Route one call."""
        return route(self.config, call)
