"""The authors' code of a simulated world: schedulers that say what the plan has them say about each call."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from simulation_plan import PATIENCE, TOOLS, Plan, SchedulerPlan, behaviour, draw
from toolgate_bus.errors import TransportError
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Hold, Modify, ToolSelecting
from toolgate_schedulers import Scheduler
from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware

Says = Callable[[str, ToolSelecting, Any], None]
"""Told of each answer as an author gives it: scheduler, question, verdict."""


def make_scheduler(plan: Plan, one: SchedulerPlan, person: Callable[..., None], says: Says) -> Scheduler:
    """A scheduler as its plan says; `person` is told of each call that lies at the desk."""
    made = _make(plan, one, person)
    return replace(made, decide=(_tell_each if made.streams else _tell)(made, says))


def _tell(made: Scheduler, says: Says) -> Callable[[ToolSelecting], Any]:
    async def decide(call: ToolSelecting) -> Any:
        verdict = await made.decide(call)  # type: ignore[misc]
        says(made.name, call, verdict)
        return verdict

    return decide


def _tell_each(made: Scheduler, says: Says) -> Callable[[ToolSelecting], AsyncIterator[Any]]:
    async def decide(call: ToolSelecting) -> AsyncIterator[Any]:
        async for verdict in made.decide(call):  # type: ignore[union-attr]
            says(made.name, call, verdict)
            yield verdict

    return decide


def _make(plan: Plan, one: SchedulerPlan, person: Callable[..., None]) -> Scheduler:
    fields = {"name": one.name, "priority": one.priority, "shadow": one.shadow}
    if one.kind == "cost":
        cost = CostAware(
            CostAwareConfig.model_validate(
                {
                    "tools": {tool: {"cost": price / 1_000_000} for tool, price in TOOLS.items()},
                    "budgets": [{"name": "all", "limit": plan.limit / 1_000_000}],
                    "learn": False,
                }
            )
        )
        return Scheduler(**fields, decide=cost.decide, start=cost.start, stop=cost.stop)  # type: ignore[arg-type]
    if one.kind == "keeper":
        return Scheduler(**fields, decide=_keeper(plan, one), streams=True)  # type: ignore[arg-type]
    if one.kind == "desk":
        desk = _Desk(plan, one, person)
        return Scheduler(**fields, decide=desk.decide, start=desk.start)  # type: ignore[arg-type]
    return Scheduler(**fields, decide=_decider(plan, one))  # type: ignore[arg-type]


def _number(call: ToolSelecting) -> str:
    return str(call.tool_input["n"])


def _decider(plan: Plan, one: SchedulerPlan) -> Callable[[ToolSelecting], Any]:
    async def decide(call: ToolSelecting) -> Any:
        what = behaviour(plan, one.kind, one.name, _number(call), call.phase)
        share = draw(plan.seed, one.name, _number(call), "share")
        if what == "raise":
            raise RuntimeError("as planned")
        if what in ("late", "silent"):
            await asyncio.sleep(PATIENCE * (1.1 if what == "late" else 6) + share)
            return Deny(reason="too late") if share < 0.5 else Modify(tool="search")
        if share < 0.4:
            await asyncio.sleep(share / 20)
        if what == "deny":
            return Deny(reason="as planned", priority=-100 if share < 0.5 else None)
        if what == "ask":
            return AskUser(prompt="May it?")
        if what == "nonsense":
            return None
        if what.startswith("modify"):
            tool = "nowhere" if what == "modify wrongly" else list(TOOLS)[int(share * len(TOOLS))]
            own = 50 if what == "modify high" else None
            return Modify(tool=tool, arguments={"n": _number(call), "by": one.name}, priority=own)
        return Continue()

    return decide


def _keeper(plan: Plan, one: SchedulerPlan) -> Callable[[ToolSelecting], AsyncIterator[Any]]:
    async def decide(call: ToolSelecting) -> AsyncIterator[Any]:
        what = behaviour(plan, one.kind, one.name, _number(call), call.phase)
        share = draw(plan.seed, one.name, _number(call), "share")
        if what.startswith("hold"):
            yield Hold(seconds=0.2 + share)
            await asyncio.sleep(0.05 + share / 5)
            if what == "hold twice":
                yield Hold(seconds=60)
                await asyncio.sleep(0.3 if share < 0.7 else 5)
            if what == "hold for ever":
                await asyncio.sleep(5)
            yield Deny(reason="after a while") if what == "hold, deny" else Continue()
        else:
            yield Continue()

    return decide


class _Desk:
    """Holds in the store, which any replica may answer."""

    def __init__(self, plan: Plan, one: SchedulerPlan, person: Callable[..., None]) -> None:
        self._plan, self._one, self._person = plan, one, person

    async def start(self, context: SchedulerContext) -> None:
        """Know where holds are."""
        self._context = context

    async def decide(self, call: ToolSelecting) -> Any:
        """Hold what the plan says."""
        what = behaviour(self._plan, self._one.kind, self._one.name, _number(call), call.phase)
        if not what.startswith("hold"):
            return Continue()
        share = draw(self._plan.seed, self._one.name, _number(call), "share")
        if what != "hold for ever":
            verdict = Deny(reason="a person said no") if what == "hold, deny" else Continue()
            self._person(self._one.name, call.id, call.phase, verdict, 0.1 + share / 2)
        return Hold(seconds=0.5 + share * 2)


async def answer_hold(scheduler: Scheduler, id_: str, phase: Any, verdict: Any) -> None:
    """Have one replica answer a hold."""
    desk = scheduler.start.__self__  # type: ignore[attr-defined]
    try:
        await desk._context.holds.answer(id_, verdict, phase)
    except TransportError:
        return
