"""What the user of a plan should know about its bus before the first turn.

A scheduler that holds a budget and is not required lets calls pass whenever it is silent: that is told,
never refused, as the plan may mean it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from toolgate_bus.errors import TransportError
from toolgate_bus.ports import Member
from toolgate_bus.redis_link import RedisCommands
from toolgate_bus.roster import Roster

from toolgate_orchestrator.host.plan import Plan

__all__ = ["unrequired_budgets", "warnings_for"]

BUDGETS: Final = "cost-aware"


async def warnings_for(plan: Plan) -> list[str]:
    """The warnings for a plan with a bus (`with_bus`); none where nobody can be asked."""
    toolgate = plan.orchestrator["config"].get("toolgate")
    if not plan.ours or not isinstance(toolgate, Mapping) or not toolgate.get("redis"):
        return []
    warning = unrequired_budgets(await _alive(toolgate), toolgate.get("required") or ())
    return [] if warning is None else [warning]


def unrequired_budgets(alive: Iterable[Member], required: Collection[str]) -> str | None:
    """The warning that a living cost-aware is not required; None where there is nothing to warn of."""
    if BUDGETS in required or not any(member.name == BUDGETS and not member.shadow for member in alive):
        return None
    return (
        f"{BUDGETS} is alive and not required: while it is silent, calls run unpaid and budgets do not hold. "
        f"Name it in the plan: orchestrators: … config: {{toolgate: {{required: [{BUDGETS}]}}}}"
    )


async def _alive(toolgate: Mapping[str, Any]) -> tuple[Member, ...]:
    commands = RedisCommands(str(toolgate["redis"]), "toolgate-run", connections=1)
    try:
        return (await Roster(commands, str(toolgate.get("namespace") or "default")).read()).members
    except TransportError:
        return ()
    finally:
        await commands.aclose()
