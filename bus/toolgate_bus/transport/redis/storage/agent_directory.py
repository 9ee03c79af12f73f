"""Reads the fleet's living agents from the server, for operators.

It looks up every orchestrator on the roster; the key of a process that is gone expires within seconds.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, TypeVar

import anyio

from toolgate_bus.errors import ConfigError, Refusal
from toolgate_bus.protocol.agents import LiveAgent, decode_agents, find_tool_digest
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.tool_sets import LivingTools, decode_tools, merge_tools
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.client.refusals import refusal_of
from toolgate_bus.transport.redis.roster.roster import EXPIRY_SECONDS, Roster
from toolgate_bus.transport.redis.roster.roster_sets import OLD
from toolgate_bus.transport.redis.storage.reads import is_other_type
from toolgate_bus.transport.redis.storage.stop_orders import decode_obeyed

ORDERS_KEPT_MS: Final = 60_000
MAX_SETS: Final = 64
"""Maximum number of different sets of tools that are read, those of the most processes first."""
_LOOK_S: Final = 0.05
Order = TypeVar("Order")


class FleetSnapshot(NamedTuple):
    """The fleet at one moment."""

    agents: list[LiveAgent]
    obeyed: dict[str, frozenset[str]]
    """Orchestrators that have carried out the order asked about, each with the sessions it stopped."""


class AgentDirectory:
    """The agents of one namespace."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands, self._keys = commands, Keys(namespace)
        self._roster = Roster(commands, namespace, ("orchestrators", OLD))

    async def agents(self) -> list[LiveAgent]:
        """Return every live session of the fleet."""
        return (await self.look()).agents

    async def address(self, make: Callable[[Sequence[LiveAgent]], Order]) -> Order:
        """Return the order that `make` makes for the living sessions.

        While `make` raises ConfigError, it is called again for 1.5 s: a session that began a moment ago may
        not be listed yet. Raises the last ConfigError, and TransportError.
        """
        until = time.monotonic() + EXPIRY_SECONDS
        while True:
            is_last, living = time.monotonic() >= until, await self.agents()
            try:
                return make(living)
            except ConfigError:
                if is_last:
                    raise
            await anyio.sleep(_LOOK_S)

    async def look(self, order: str = "", told: Collection[str] = ()) -> FleetSnapshot:
        """Return every live session, and which orchestrators of `told` have carried out the order.

        Raises TransportError.
        """
        living = (await self._roster.read()).orchestrators
        names = sorted({*living, *told})  # an orchestrator that was told may have left since
        if not names:
            return FleetSnapshot([], {})
        asks = [("GET", self._keys.agents(one)) for one in names]
        look = FleetSnapshot([], {})
        for name, ask, raw in zip(names, asks, await self._commands.pipeline(asks), strict=True):
            if isinstance(raw, Exception) and not is_other_type(raw):
                wrong = refusal_of(ask, raw)
                if isinstance(wrong, Refusal):  # otherwise all agents would seem to be gone
                    raise wrong
            if not isinstance(raw, bytes):
                continue
            if name in living:
                look.agents.extend(decode_agents(name, raw))
            if order and (stopped := decode_obeyed(raw).get(order)) is not None:
                look.obeyed[name] = stopped
        return look

    async def tools(self) -> LivingTools:
        """Return the tools of all living agents, as their processes announce them. Raises TransportError."""
        orchestrators = sorted((await self._roster.read()).orchestrators)
        values = await self._get([self._keys.agents(one) for one in orchestrators])
        named = Counter(find_tool_digest(raw) for raw in values if raw is not None)
        named.pop("", None)
        digests = [digest for digest, _ in named.most_common(MAX_SETS)]
        raws = await self._get([self._keys.tools(digest) for digest in digests])
        read = {
            digest: found
            for digest, raw in zip(digests, raws, strict=True)
            if raw is not None and (found := decode_tools(digest, raw)) is not None
        }
        told = sum(named[digest] for digest in read)
        return merge_tools(read.values(), told, len(orchestrators) - told)

    async def _get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the value of each key; None if it is missing or of another type. Raises TransportError."""
        asks = [("GET", key) for key in keys]
        values: list[bytes | None] = []
        for ask, raw in zip(asks, await self._commands.pipeline(asks) if asks else (), strict=True):
            if isinstance(raw, Exception) and not is_other_type(raw):
                raise refusal_of(ask, raw)
            values.append(raw if isinstance(raw, bytes) else None)
        return values
