"""The shipped scheduler `heuristic`: chooses among interchangeable tools or agents by a simple rule.

    first         the first of the group that is available
    round-robin   one after another, counted over all replicas
    random        any, drawn from the seed and the decision's id: asked twice, it says the same

A tool that is in no group runs as the LLM chose it. A tool that is not available is denied, unless
another tool of its group can run. Delegations are chosen in the same way, among the agents of a group.
With `override_enabled: false` nothing is replaced, and only denials remain. In phase `verify` a
replacement only needs to be available.
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
    """Configuration file of a heuristic scheduler."""

    strategy: Literal["first", "round-robin", "random"] = "first"
    """Way to choose: the `first` that is available, one after another (`round-robin`, over all replicas), or
    any (`random`)."""
    groups: Groups = ()
    """Groups, in the form of `alternatives` of cost-aware. A tool or agent of no group is taken as the LLM
    chose it."""
    seed: int = Field(default=0, strict=True)
    """Seed for `random`: the same decision always draws the same choice."""
    override_enabled: bool = Field(default=True, strict=True)
    """False to replace nothing and only deny tools and agents that are not available."""


def choices(config: HeuristicConfig, call: ToolSelecting) -> list[Alternative]:
    """List the possible choices in the group's order, including the call itself.

    They are agents for a delegation to an agent of a group, otherwise tools.
    """
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
    """Return a number that depends only on the seed and the decision's id."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{decision}".encode()).digest()[:8], "big")


def choose(config: HeuristicConfig, call: ToolSelecting, number: int) -> Verdict:
    """Return the verdict on a call; `number`, modulo the number of choices, picks one."""
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
    """Return whether the call's tool and agent are available.

    A list of tools that the orchestrator had to truncate (at 1024) counts as naming them all.
    """
    there = call.available_agents
    return _has_tool(call) and (call.agent_target is None or there is None or call.agent_target in there)


def _has_tool(call: ToolSelecting) -> bool:
    return not call.available_tools or call.tool_name in call.available_tools or call.truncated


class Heuristic:
    """Scheduler that a `HeuristicConfig` configures."""

    name = "heuristic"
    priority = 5
    """Priority below the router and cost-aware, which know more."""
    tools = ("*",)
    config_model: ClassVar[type[BaseModel]] = HeuristicConfig

    def __init__(self, config: HeuristicConfig) -> None:
        self.config = config
        self.turns: SharedCounter = MemoryCounter()

    async def start(self, context: SchedulerContext) -> None:
        """Count turns over all replicas from now on."""
        self.turns = context.shared.turns

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Choose for one call; raise TransportError if the shared count cannot be read."""
        return choose(self.config, call, await self._number(call))

    async def _number(self, call: ToolSelecting) -> int:
        if self.config.strategy == "random":
            return draw_number(self.config.seed, call.id)
        if self.config.strategy == "first" or len(choices(self.config, call)) < 2:
            return 0
        kind = "agent:" if team_of(self.config.groups, call.agent_target) else ""
        return await self.turns.next_for(f"heuristic:{kind}{_order(self.config, call)[0]}", call.id)
