"""What an orchestrator tells operators: which sessions live in its process, which tools these have, and which
orders ended turns.

The commands that tell it, where there is something new; who sends them, and when, is `orchestrator`'s affair.
Readers are in `agents`.
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
"""Seconds after which agents are told of again though nothing changed but their age."""
TOOLS_EXPIRY_MS: Final = 180_000
TOOLS_EVERY_S: Final = 60.0
"""Seconds after which the set of tools is written again, so that it does not expire."""
QUIET_EXPIRY_MS: Final = 30_000
"""Where no session is alive, and only the tools are told."""
QUIET_EVERY_S: Final = 10.0


class AgentReport:
    """What stands, and is to stand, at the keys `agents:ORCH` and `tools:DIGEST`."""

    def __init__(
        self,
        keys: Keys,
        orchestrator: str,
        agents: Callable[[], Sequence[LiveAgent]],
        tools: Callable[[], bytes] = lambda: b"",
    ) -> None:
        """`tools` gives the encoded set of tools, the same object until it changed; empty: none is known."""
        self._keys, self._key = keys, keys.agents(orchestrator)
        self._agents, self._tools = agents, tools
        self._obeyed = StopOrderLog()
        self._told: tuple[list[Any], list[bytes], str] | None = None
        """What was last told of agents, orders and tools; None where nothing stands there."""
        self._told_at = 0.0
        self._set, self._digest = b"", ""
        """The set of tools that was last written."""
        self._set_at = 0.0

    def move(self, orchestrator: str) -> None:
        """Tell it at the key of this orchestrator; before anything is told."""
        self._key = self._keys.agents(orchestrator)

    def note_order(self, order: str, sessions: Iterable[str]) -> None:
        """An order was carried out; these sessions had a turn, which it ends."""
        self._obeyed.note(order, sessions, time.monotonic())

    def tell_again(self) -> None:
        """What was told last may not have come to the server."""
        self._told_at = self._set_at = 0.0

    def commands(self) -> list[tuple[Arg, ...]]:
        """The commands that tell which sessions are alive here, and which tools they have."""
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
        """The command that writes the set of tools, where it is new or would expire."""
        raw = self._tools()
        if not raw or (raw is self._set and now - self._set_at < TOOLS_EVERY_S):
            return []
        if raw is not self._set:
            self._set, self._digest = raw, digest_tools(raw)
        self._set_at = now
        return [("SET", self._keys.tools(self._digest), raw, "PX", TOOLS_EXPIRY_MS)]

    def farewell(self) -> tuple[Arg, ...]:
        """The command that tells that no session is alive here any longer, and which orders ended them."""
        if obeyed := self._obeyed.encode_all(time.monotonic()):
            return ("SET", self._key, encode_agents([], obeyed), "PX", EXPIRY_MS)
        return ("DEL", self._key)
