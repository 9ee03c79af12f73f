"""Warnings about a plan's bus for its user, before the first turn.

If a scheduler may deny but is not required, calls run whenever it is silent. That is a warning and no error,
as the plan may intend it. The session's own gate reports that no scheduler is alive (`decision.vacancy`).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from toolgate_bus.errors import ToolgateError
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster

from toolgate_orchestrator.commands.host.plan import Plan

SILENT: Final[Mapping[str, str]] = {
    "cost-aware": "while it is silent, calls run unpaid and budgets do not hold",
    "approval": "while it is silent, calls run without the person",
}
"""Effect of a scheduler's silence if it is not required, by its name."""
SCARCE: Final = "while it is silent, calls run without a slot: its limits are not exact"
"""Effect of the silence of any other scheduler that gives something scarce."""
OTHERS: Final = "while it is silent, calls run that it would deny"
NEVER_DENIES: Final = ("router",)


async def warnings_for(plan: Plan) -> list[str]:
    """Return the warnings for a plan with a bus (`with_bus`); none if the server cannot be asked."""
    toolgate = _section(plan)
    if not toolgate.get("redis"):
        return []
    required = toolgate.get("required") or ()
    try:
        alive = await _members(toolgate)
    except ToolgateError:  # the gate reports problems with the server
        return []
    return warn_unrequired(alive, {*required, *(toolgate.get("shadow") or ())})


async def refuse_unruled(plan: Plan) -> None:
    """Raise ToolgateError if the server cannot be asked, and the plan denies every call without it."""
    toolgate = _section(plan)
    required = toolgate.get("required") or ()
    denies = (toolgate.get("on_bus_down") or ("deny" if required else "continue")) == "deny"
    if not denies or not toolgate.get("redis"):
        return
    try:
        await _members(toolgate)
    except ToolgateError as error:
        who = f"{', '.join(map(str, required))} must" if required else "on_bus_down: deny: a scheduler must"
        raise ToolgateError(f"{who} rule on every call, but cannot be asked: {error}") from error


def warn_unrequired(alive: Iterable[Member], meant: Collection[str]) -> list[str]:
    """Return a warning for each living scheduler that should be required and is not among those `meant`.

    `meant` holds the schedulers that the plan names, as required or as shadows.
    """
    ruling = {member.name: member for member in alive if not member.shadow}
    return [
        f"{name} is alive and not required: {_silence_of(ruling[name])}. "
        f"Name it in the plan: orchestrator: {{config: {{toolgate: {{required: [{name}]}}}}}}"
        for name in sorted(ruling.keys() - {*meant, *NEVER_DENIES})
    ]


def _silence_of(member: Member) -> str:
    return SILENT.get(member.name, OTHERS if {"select", "verify"} & {*member.phases} else SCARCE)


def _section(plan: Plan) -> Mapping[str, Any]:
    """Return the plan's `toolgate:` section; empty if it has none or the loop is not Toolgate's."""
    toolgate = plan.orchestrator["config"].get("toolgate")
    return toolgate if plan.ours and isinstance(toolgate, Mapping) else {}


async def _members(toolgate: Mapping[str, Any]) -> tuple[Member, ...]:
    """Return the living schedulers. Raise ToolgateError if the server cannot be asked."""
    commands = RedisCommands(str(toolgate["redis"]), "toolgate-run", connections=1)
    try:
        return (await Roster(commands, str(toolgate.get("namespace") or "default")).read()).members
    finally:
        await commands.aclose()
