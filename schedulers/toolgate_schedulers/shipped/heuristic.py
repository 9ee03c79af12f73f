"""The shipped scheduler `heuristic`: chooses among interchangeable tools or agents by a simple rule.

    first         the first of the group that is available
    round-robin   one after another, counted over all replicas
    random        any, drawn from the seed and the decision's id: asked twice, it says the same
    best          the one from which a success comes soonest, by how calls of each go at present

A tool that is in no group runs as the LLM chose it. A tool that is not available is denied, unless
another tool of its group can run. Delegations are chosen in the same way, among the agents of a group.
With `override_enabled: false` nothing is replaced, and only denials remain. In phase `verify` a
replacement only needs to be available.
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import Continue, Deny, Modify, ToolSelecting, Verdict
from toolgate_bus.state.counters import MemoryCounter, SharedCounter

from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.alternatives import (
    Alternative,
    Groups,
    alternatives,
    group_of,
    list_rivals,
    team_of,
)
from toolgate_schedulers.shipped.ejection_reporter import EjectionReporter
from toolgate_schedulers.shipped.facts_from_now import FactsFromNow
from toolgate_schedulers.shipped.score.exploration import Exploration, Explorer
from toolgate_schedulers.shipped.score.outcomes import Outcomes, agent_key
from toolgate_schedulers.shipped.score.score import Option, describe, rank_keys
from toolgate_schedulers.shipped.score.sticky import DECISION, Sticky

_SHOWN = 20


class HeuristicConfig(StrictModel):
    """Configuration file of a heuristic scheduler."""

    strategy: Literal["first", "round-robin", "random", "best"] = "first"
    """Way to choose: the `first` that is available, one after another (`round-robin`, over all replicas), any
    (`random`), or the `best`, from which a success comes soonest at present."""
    groups: Groups = ()
    """Groups, in the form of `alternatives` of cost-aware. A tool or agent of no group is taken as the LLM
    chose it."""
    seed: int = Field(default=0, strict=True)
    """Seed for `random`: the same decision always draws the same choice."""
    override_enabled: bool = Field(default=True, strict=True)
    """False to replace nothing and only deny tools and agents that are not available."""
    sticky: Sticky = DECISION
    """Property that keeps calls together, as in the router. Goes with `strategy: best`."""
    success_by: Sticky = DECISION
    """Property by which success is remembered apart: for example with `label:team`, a tool that fails for one
    team is left by this team's calls alone. Goes with `strategy: best`."""
    explore: Exploration | None = None
    """Share of the calls for which another one than the best is tried, to learn of it. Default: none. Goes
    with `strategy: best`."""

    @model_validator(mode="after")
    def _consistent(self) -> "HeuristicConfig":
        if self.explore is not None and self.strategy != "best":
            raise ValueError("explore: goes with strategy: best")
        for name in ("sticky", "success_by"):
            if getattr(self, name) != DECISION and self.strategy != "best":
                raise ValueError(f"{name}: goes with strategy: best")
        return self


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
    return _verdict_on(call, chosen, config.strategy)


def choose_best(config: HeuristicConfig, call: ToolSelecting, outcomes: Outcomes, now: float) -> Verdict:
    """Return the verdict on a call: the choice from which a success comes soonest."""
    found = {_key_of(one): one for one in choices(config, call)}
    if not found:
        return choose(config, call, 0)
    options = [Option(key, 0, 0, _is_own(call, one)) for key, one in found.items()]
    best = rank_keys(options, outcomes, now, 0, 1, call)[0]
    chosen = found[best.option.key]
    outcomes.expect(call.id, best.option.key, now, explored=best.explored)
    told = describe(chosen.agent or chosen.tool, best)
    if best.explored and best.option.own:
        return Continue(reason=told)
    return _verdict_on(call, chosen, f"best ({told})")


def _key_of(one: Alternative) -> str:
    return one.tool if one.agent is None else agent_key(one.agent)


def _is_own(call: ToolSelecting, one: Alternative) -> bool:
    return (one.tool, one.agent or call.agent_target) == (call.tool_name, call.agent_target)


def _verdict_on(call: ToolSelecting, chosen: Alternative, why: str) -> Verdict:
    if _is_own(call, chosen):
        return Continue()
    instead, own = (chosen.agent, call.agent_target) if chosen.agent else (chosen.tool, call.tool_name)
    reason = f"{why}: {instead} in place of {own}"
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

    def __init__(self, config: HeuristicConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.config, self._clock = config, clock
        self.turns: SharedCounter = MemoryCounter()
        self.outcomes = None
        if config.strategy == "best":
            self.outcomes = Outcomes(
                list_rivals(config.groups),
                sticky=config.sticky,
                success_by=config.success_by,
                explorer=Explorer(config.explore.share) if config.explore is not None else None,
            )
        self._facts: FactsFromNow | None = None
        self._reporter: EjectionReporter | None = None

    async def start(self, context: SchedulerContext) -> None:
        """Count turns over all replicas from now on, and follow how calls go if that decides."""
        self.turns = context.shared.turns
        if self.outcomes is not None:
            self._reporter = EjectionReporter(context)
            self._reporter.start()
            self._facts = FactsFromNow(context.shared.news, self.follow)
            await self._facts.start()

    async def stop(self) -> None:
        """Read no more facts."""
        if self._facts is not None:
            await self._facts.stop()
        if self._reporter is not None:
            await self._reporter.stop()

    def follow(self, fact: Mapping[str, Any]) -> None:
        """Follow how calls go; every replica hears each fact once."""
        if self.outcomes is not None:
            self.outcomes.hear(fact, self._clock())
            if self._reporter is not None:
                self._reporter.take([self.outcomes])

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Choose for one call; raise TransportError if the shared count cannot be read."""
        if self.outcomes is not None:
            return choose_best(self.config, call, self.outcomes, self._clock())
        return choose(self.config, call, await self._number(call))

    async def _number(self, call: ToolSelecting) -> int:
        if self.config.strategy == "random":
            return draw_number(self.config.seed, call.id)
        if self.config.strategy == "first" or len(choices(self.config, call)) < 2:
            return 0
        kind = "agent:" if team_of(self.config.groups, call.agent_target) else ""
        return await self.turns.next_for(f"heuristic:{kind}{_order(self.config, call)[0]}", call.id)
