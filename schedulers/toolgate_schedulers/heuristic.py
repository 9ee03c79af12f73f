"""The shipped scheduler `heuristic`: which of interchangeable tools runs, by a simple rule.

    first         the first of the group that is available
    round-robin   one after another, counted over all replicas
    random        any, drawn from the seed and the decision's id: asked twice, it says the same

A tool that is in no group runs as the LLM chose it. A tool that is not available is denied, unless
another of its group can run. With `override_enabled: false` nothing is replaced; denials stay. In
phase `verify` it judges a replacement by its availability alone.
"""

import hashlib
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, field_validator
from toolgate_bus.events import Continue, Deny, Modify, ToolSelecting, Verdict
from toolgate_bus.turns import MemoryTurns, Turns

from toolgate_schedulers.api import SchedulerContext
from toolgate_schedulers.config_file import StrictModel
from toolgate_schedulers.interchangeable import Alternative, Groups, alternatives, group_of, named_once

__all__ = ["Heuristic", "HeuristicConfig", "choices", "choose", "drawn"]

_SHOWN = 20


class HeuristicConfig(StrictModel):
    """The file of a heuristic scheduler."""

    strategy: Literal["first", "round-robin", "random"] = "first"
    groups: Groups = ()
    seed: int = Field(default=0, strict=True)
    """For `random`."""
    override_enabled: bool = Field(default=True, strict=True)
    """False: observe, and deny only what is not available."""

    @field_validator("groups")
    @classmethod
    def _one_group_a_tool(cls, groups: Groups) -> Groups:
        named_once(groups)
        return groups


def choices(config: HeuristicConfig, call: ToolSelecting) -> list[Alternative]:
    """The available tools of the call's group, in the group's order; the call itself among them."""
    group = group_of(config.groups, call.tool_name)
    if group is None or not config.override_enabled or call.phase == "verify":
        return []
    others = {one.tool: one for one in alternatives(config.groups, call)}
    if is_available(call):
        others[call.tool_name] = Alternative(call.tool_name, None)
    return [others[tool] for tool in group.tools if tool in others]


def drawn(seed: int, decision: str) -> int:
    """A number that depends on nothing but these two."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{decision}".encode()).digest()[:8], "big")


def choose(config: HeuristicConfig, call: ToolSelecting, number: int) -> Verdict:
    """What becomes of a call; `number` says which choice, counted round and round."""
    found = choices(config, call)
    if not found:
        return Continue() if is_available(call) else _unavailable(call)
    chosen = found[number % len(found)]
    if chosen.tool == call.tool_name:
        return Continue()
    reason = f"{config.strategy}: {chosen.tool} in place of {call.tool_name}"
    return Modify(tool=chosen.tool, arguments=chosen.arguments, reason=reason)


def is_available(call: ToolSelecting) -> bool:
    """Whether the call's tool can run, as far as the orchestrator told (it tells at most 1024 names)."""
    return not call.available_tools or call.tool_name in call.available_tools or call.truncated


def _unavailable(call: ToolSelecting) -> Deny:
    shown = ", ".join(call.available_tools[:_SHOWN])
    return Deny(reason=f"There is no tool {call.tool_name}. Available: {shown}.")


class Heuristic:
    """The scheduler of a `HeuristicConfig`."""

    name = "heuristic"
    priority = 5
    """Below the router and cost-aware, which know more."""
    tools = ("*",)
    config_model: ClassVar[type[BaseModel]] = HeuristicConfig

    def __init__(self, config: HeuristicConfig) -> None:
        self.config = config
        self.turns: Turns = MemoryTurns()

    async def start(self, context: SchedulerContext) -> None:
        """From now on turns are counted over all replicas."""
        self.turns = context.shared.turns

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Choose for one call; raises TransportError where the count cannot be had."""
        return choose(self.config, call, await self._number(call))

    async def _number(self, call: ToolSelecting) -> int:
        if self.config.strategy == "random":
            return drawn(self.config.seed, call.id)
        if self.config.strategy == "first" or len(choices(self.config, call)) < 2:
            return 0
        group = group_of(self.config.groups, call.tool_name)
        return await self.turns.turn(f"heuristic:{next(iter(group.tools))}", call.id) if group else 0
