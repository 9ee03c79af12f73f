"""Reports an orchestrator's sessions, their tools, and the orders that ended turns, for operators to read.

It makes the commands that write what is new; `orchestrator` sends them. Readers are in `agents`.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from toolgate_bus.protocol.agents import LiveAgent, encode_agents
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.tool_sets import digest_tools
from toolgate_bus.transport.ports import Arg
from toolgate_bus.transport.redis.storage.stop_orders import StopOrderLog

EXPIRY_MS: Final = 3_000
EVERY_S: Final = 0.9
"""Seconds after which agents are reported again though nothing changed but their age."""
TOOLS_EXPIRY_MS: Final = 180_000
TOOLS_EVERY_S: Final = 60.0
"""Seconds after which the set of tools is written again, so that it does not expire."""
QUIET_EXPIRY_MS: Final = 30_000
"""Milliseconds that the report stays if no session is alive and it holds only the tools."""
QUIET_EVERY_S: Final = 10.0


class AgentReport:
    """The report at the keys `agents:ORCH` and `tools:DIGEST`, as written and as it should be."""

    def __init__(
        self,
        keys: Keys,
        orchestrator: str,
        agents: Callable[[], Sequence[LiveAgent]],
        tools: Callable[[], bytes] = lambda: b"",
    ) -> None:
        """`tools` returns the encoded set of tools, as the same object until it changes; empty if unknown."""
        self._keys, self._key = keys, keys.agents(orchestrator)
        self._agents, self._tools = agents, tools
        self._obeyed = StopOrderLog()
        self._told: tuple[list[Any], list[bytes], str] | None = None
        """Agents, orders and tools as last reported; None if nothing is stored."""
        self._told_at = 0.0
        self._set, self._digest = b"", ""
        """Set of tools that was last written."""
        self._set_at = 0.0

    def move(self, orchestrator: str) -> None:
        """Report at the key of this orchestrator; call it before anything is reported."""
        self._key = self._keys.agents(orchestrator)

    def note_order(self, order: str, sessions: Iterable[str]) -> None:
        """Note that an order was carried out, and that it ends a turn of these sessions."""
        self._obeyed.note(order, sessions, time.monotonic())

    def tell_again(self) -> None:
        """Report again: the last report may not have reached the server."""
        self._told_at = self._set_at = 0.0

    def commands(self) -> list[tuple[Arg, ...]]:
        """Return the commands that report which sessions are alive here, and which tools they have."""
        agents, now = self._agents(), time.monotonic()
        written = self._write_tools(now)
        obeyed = self._obeyed.encode_all(now)
        doing = [
            (one.session, one.doing, one.paused, one.stopped, one.turns, one.calls, one.vetoes, one.cost)
            for one in agents
        ]
        told = (doing, obeyed, self._digest) if agents or obeyed or self._digest else None
        if told is None:
            before, self._told = self._told, None
            return [("DEL", self._key)] if before is not None else []
        is_quiet = not (agents or obeyed)
        if told == self._told and now - self._told_at < (QUIET_EVERY_S if is_quiet else EVERY_S):
            return written
        self._told, self._told_at = told, now
        expiry = QUIET_EXPIRY_MS if is_quiet else EXPIRY_MS
        return [*written, ("SET", self._key, encode_agents(agents, obeyed, self._digest), "PX", expiry)]

    def _write_tools(self, now: float) -> list[tuple[Arg, ...]]:
        """Return the command that writes the set of tools, if it is new or would expire."""
        raw = self._tools()
        if not raw or (raw is self._set and now - self._set_at < TOOLS_EVERY_S):
            return []
        if raw is not self._set:
            self._set, self._digest = raw, digest_tools(raw)
        self._set_at = now
        return [("SET", self._keys.tools(self._digest), raw, "PX", TOOLS_EXPIRY_MS)]

    def farewell(self) -> tuple[Arg, ...]:
        """Return the command that reports that no session is alive here, and which orders ended them."""
        if obeyed := self._obeyed.encode_all(time.monotonic()):
            return ("SET", self._key, encode_agents([], obeyed), "PX", EXPIRY_MS)
        return ("DEL", self._key)
