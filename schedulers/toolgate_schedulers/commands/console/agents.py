"""Show the trees of living agents; pause, stop and resume them with the code of `toolgate agents`."""

import secrets
from typing import Annotated, Any, Final

from pydantic import Field
from toolgate_bus.config.check import StrictModel
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.agents import LiveAgent, Stop, forest, select_targets, stop_of
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.protocol.pauses import Pause, StandingPauses, pause_of
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory
from toolgate_bus.transport.redis.storage.pauses import PauseBoard

MAX_COUNT: Final = 500
"""Maximum number of agents that a page is sent; the youngest trees are left out."""
MAX_ORDERS: Final = 50
"""Maximum number of standing pauses and stops that a page is sent."""
MAX_MINUTES: Final = 7 * 24 * 60

Id = Annotated[str, Field(min_length=1, max_length=256)]


class StopRequest(StrictModel):
    """Order of a page to stop agents."""

    session: Id | None
    """Session to stop, with all agents that work for it; None stops everyone."""
    now: Annotated[bool, Field(strict=True)]
    """True to stop at once, False to stop after the running tools."""


class PauseRequest(StrictModel):
    """Order of a page to let the next calls of agents wait."""

    session: Id | None
    """Session to pause, with all agents that work for it; None pauses everyone."""
    minutes: Annotated[int, Field(strict=True, ge=1, le=MAX_MINUTES)] | None
    """Minutes until the pause ends by itself; None means until somebody ends it."""


class ResumeRequest(StrictModel):
    """Order of a page to end one pause, or to lift one stop."""

    id: Id


class AgentTrees:
    """Living agents of one namespace, and the orders to them."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self.directory = AgentDirectory(commands, namespace)
        self._board = PauseBoard(commands, namespace)

    async def read(self) -> dict[str, Any]:
        """Return each agent after the one it works for, oldest trees first, and the orders that stand.

        Raise TransportError.
        """
        living = await self.directory.agents()
        return {**describe_agents(living), "orders": _describe_orders(await self._board.read())}

    async def stop(self, asked: StopRequest, by: str) -> dict[str, Any]:
        """Stop agents; return the number of turns that this will end, and the id of the stop.

        Raise ConfigError for a session that is gone or if too many stops are in force, TransportError.
        """
        living = await self.directory.agents()
        order = stop_of(living, _ids(asked.session), now=asked.now, by=f"{by} (console)")
        stop, mark = await self._board.stop(order)
        await self._tell(mark)
        turns = sum(one.doing != "idle" for one in select_targets(order, living))
        return {"turns": turns, "stop": stop.id}

    async def pause(self, asked: PauseRequest, by: str) -> dict[str, Any]:
        """Let the next calls of agents wait; return the number of agents, and the id of the pause.

        Raise ConfigError for a session that is gone or if too many pauses are in force, TransportError.
        """
        living = await self.directory.agents()
        made = pause_of(living, _ids(asked.session), {}, id=secrets.token_hex(4), by=f"{by} (console)")
        pause, mark = await self._board.add(made, None if asked.minutes is None else asked.minutes * 60.0)
        await self._tell(mark)
        meant = select_targets(Stop(pause.sessions, pause.roots, pause.everyone), living)
        return {"agents": len(meant), "pause": pause.id}

    async def resume(self, asked: ResumeRequest) -> dict[str, Any]:
        """End one pause, or lift one stop; raise ConfigError if it does not stand, TransportError."""
        standing = (await self._board.read()).pauses
        if asked.id not in (one.id for one in standing):
            raise ConfigError("this pause or stop does not stand any longer")
        await self._tell(await self._board.remove([asked.id]))
        return {"resumed": asked.id}

    async def _tell(self, mark: int) -> None:
        await self._board.tell(secrets.token_hex(8), mark)


def describe_agents(agents: list[LiveAgent]) -> dict[str, Any]:
    """Return the agents for a page."""
    living = forest(agents)
    return {
        "agents": [
            {**one.as_json(), "depth": depth, "spent": format_amount(one.cost) if one.cost else None}
            for depth, one in living[:MAX_COUNT]
        ],
        "more": len(living[MAX_COUNT:]),
    }


def _describe_orders(found: StandingPauses) -> list[dict[str, Any]]:
    return [_describe_order(one, found.now_ms) for one in found.pauses[:MAX_ORDERS]]


def _describe_order(one: Pause, now_ms: int) -> dict[str, Any]:
    return {
        "id": one.id,
        "stop": one.stop,
        "everyone": one.everyone,
        "whom": one.target,
        "by": one.by,
        "for_s": max(0, now_ms - one.since_ms) / 1000,
        "left_s": one.seconds_left(now_ms),
    }


def _ids(session: str | None) -> tuple[str, ...]:
    return () if session is None else (session,)
