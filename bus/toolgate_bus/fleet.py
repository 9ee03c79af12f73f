"""What operators see of the fleet's agents, and the order to stop: the edge on the server.

Whoever is on the roster is looked up; a process that is gone has its key expire within seconds.
"""

from toolgate_bus.errors import TransportError
from toolgate_bus.keys import Keys
from toolgate_bus.live_agents import LiveAgent, Stop, decode_agents, encode_stop
from toolgate_bus.ports import Commands
from toolgate_bus.roster import Roster

__all__ = ["Fleet"]

ORDERS_KEPT_MS = 60_000


class Fleet:
    """The agents of one namespace."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands, self._keys = commands, Keys(namespace)
        self._roster = Roster(commands, namespace)

    async def agents(self) -> list[LiveAgent]:
        """Every live session of the fleet."""
        orchestrators = sorted((await self._roster.read()).orchestrators)
        if not orchestrators:
            return []
        told = await self._commands.pipeline([("GET", self._keys.agents(one)) for one in orchestrators])
        return [
            agent
            for orchestrator, raw in zip(orchestrators, told, strict=True)
            if isinstance(raw, bytes)
            for agent in decode_agents(orchestrator, raw)
        ]

    async def stop(self, order: Stop) -> int:
        """Tell every living orchestrator; gives how many were told. Raises TransportError."""
        orchestrators = sorted((await self._roster.read()).orchestrators)
        frame = encode_stop(order)
        commands: list[tuple[str | bytes | int, ...]] = []
        for one in orchestrators:
            key = self._keys.control(one)
            commands += [("XADD", key, "*", "event", "stop", "frame", frame)]
            commands += [("PEXPIRE", key, ORDERS_KEPT_MS)]
        replies = await self._commands.pipeline(commands) if commands else []
        refused = next((reply for reply in replies if isinstance(reply, Exception)), None)
        if refused is not None:
            raise TransportError(f"the server refused the order: {refused}")
        return len(orchestrators)
