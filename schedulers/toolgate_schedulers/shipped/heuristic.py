"""The shipped scheduler `heuristic`: which of interchangeable tools or agents runs, by a simple rule.

    first         the first of the group that is available
    round-robin   one after another, counted over all replicas
    random        any, drawn from the seed and the decision's id: asked twice, it says the same

A tool that is in no group runs as the LLM chose it. A tool that is not available is denied, unless
another of its group can run. A delegation goes to one of its agent's group in the same way. With
`override_enabled: false` nothing is replaced; denials stay. In phase `verify` it judges a replacement
by its availability alone.
"""

import hashlib
from typing import ClassVar, Literal

from pydantic import BaseModel, Field
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import Continue, Deny, Modify, ToolSelecting, Verdict
from toolgate_bus.state.counters import MemoryCounter, SharedCounter

from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.alternatives import Alternative, Groups, alternatives, group_of, team_of

_SHOWN = 20


class HeuristicConfig(StrictModel):
    """The file of a heuristic scheduler."""

    strategy: Literal["first", "round-robin", "random"] = "first"
    """`first` that is available, one after another (`round-robin`, over all replicas), or any (`random`)."""
    groups: Groups = ()
    """As `alternatives` of a cost-aware; a tool or agent of no group is taken as it was chosen."""
    seed: int = Field(default=0, strict=True)
    """Of `random`: the same decision is always drawn the same."""
    override_enabled: bool = Field(default=True, strict=True)
    """False replaces nothing: it only denies tools and agents that are not available."""


def choices(config: HeuristicConfig, call: ToolSelecting) -> list[Alternative]:
    """What may run, in the group's order, the call itself among it: agents of a delegation, else tools."""
    order = _order(config, call)
    if not order or not config.override_enabled or call.phase == "verify":
        return []
    delegates = team_of(config.groups, call.agent_target) is not None
    found = alternatives(config.groups, call)
    others = {one.agent or one.tool: one for one in found if (one.agent is not None) == delegates}
    if is_available(call):
        own = call.agent_target if delegates else None
        others[own or call.tool_name] = Alternative(call.tool_name, None, own)
    return [others[name] for name in order if name in others]


def _order(config: HeuristicConfig, call: ToolSelecting) -> tuple[str, ...]:
    team, group = team_of(config.groups, call.agent_target), group_of(config.groups, call.tool_name)
    if team is not None and team.agents:
        return team.agents
    return tuple(group.tools) if group is not None and group.tools else ()


def draw_number(seed: int, decision: str) -> int:
    """A number that depends on nothing but these two."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{decision}".encode()).digest()[:8], "big")


def choose(config: HeuristicConfig, call: ToolSelecting, number: int) -> Verdict:
    """What becomes of a call; `number` says which choice, counted round and round."""
    found = choices(config, call)
    if not found and is_available(call):
        return Continue()
    if not found:
        kind, name, there = "tool", call.tool_name, call.available_tools
        if _has_tool(call):
            kind, name, there = "agent", call.agent_target or "", call.available_agents or ()
        return Deny(reason=f"There is no {kind} {name}. Available: {', '.join(there[:_SHOWN])}.")
    chosen = found[number % len(found)]
    if (chosen.tool, chosen.agent or call.agent_target) == (call.tool_name, call.agent_target):
        return Continue()
    instead, own = (chosen.agent, call.agent_target) if chosen.agent else (chosen.tool, call.tool_name)
    reason = f"{config.strategy}: {instead} in place of {own}"
    return Modify(tool=chosen.tool, arguments=chosen.arguments, agent_target=chosen.agent, reason=reason)


def is_available(call: ToolSelecting) -> bool:
    """Whether tool and agent are there, as far as the orchestrator told (it tells at most 1024 tools)."""
    there = call.available_agents
    return _has_tool(call) and (call.agent_target is None or there is None or call.agent_target in there)


def _has_tool(call: ToolSelecting) -> bool:
    return not call.available_tools or call.tool_name in call.available_tools or call.truncated


class Heuristic:
    """The scheduler of a `HeuristicConfig`."""

    name = "heuristic"
    priority = 5
    """Below the router and cost-aware, which know more."""
    tools = ("*",)
    config_model: ClassVar[type[BaseModel]] = HeuristicConfig

    def __init__(self, config: HeuristicConfig) -> None:
        self.config = config
        self.turns: SharedCounter = MemoryCounter()

    async def start(self, context: SchedulerContext) -> None:
        """From now on turns are counted over all replicas."""
        self.turns = context.shared.turns

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Choose for one call; raises TransportError where the count cannot be had."""
        return choose(self.config, call, await self._number(call))

    async def _number(self, call: ToolSelecting) -> int:
        if self.config.strategy == "random":
            return draw_number(self.config.seed, call.id)
        if self.config.strategy == "first" or len(choices(self.config, call)) < 2:
            return 0
        kind = "agent:" if team_of(self.config.groups, call.agent_target) else ""
        return await self.turns.next_for(f"heuristic:{kind}{_order(self.config, call)[0]}", call.id)
