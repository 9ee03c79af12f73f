"""What an orchestrator tells operators: which sessions live in its process, and which orders ended turns.

The commands that tell it, where there is something new; who sends them, and when, is `orchestrator`'s affair.
Readers are in `agents`.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from toolgate_bus.protocol.agents import LiveAgent, encode_agents
from toolgate_bus.transport.ports import Arg
from toolgate_bus.transport.redis.stop_orders import StopOrderLog

EXPIRY_MS: Final = 3_000
EVERY_S: Final = 0.9
"""Seconds after which agents are told of again though nothing changed but their age."""


class AgentReport:
    """What stands, and is to stand, at the key `agents:ORCH`."""

    def __init__(self, key: str, agents: Callable[[], Sequence[LiveAgent]]) -> None:
        self._key, self._agents = key, agents
        self._obeyed = StopOrderLog()
        self._told: tuple[list[Any], list[bytes]] | None = None
        """What was last told of agents that may change, and of orders; None where nothing stands there."""
        self._told_at = 0.0

    def move(self, key: str) -> None:
        """Tell it at this key; before anything is told."""
        self._key = key

    def note_order(self, order: str, sessions: Iterable[str]) -> None:
        """An order was carried out; these sessions had a turn, which it ends."""
        self._obeyed.note(order, sessions, time.monotonic())

    def tell_again(self) -> None:
        """What was told last may not have come to the server."""
        self._told_at = 0.0

    def commands(self) -> list[tuple[Arg, ...]]:
        """The command that tells which sessions are alive here, where there are any or were."""
        agents, now = self._agents(), time.monotonic()
        obeyed = self._obeyed.encode_all(now)
        doing = [
            (one.session, one.doing, one.paused, one.turns, one.calls, one.vetoes, one.cost) for one in agents
        ]
        told = (doing, obeyed) if agents or obeyed else None
        if told is None:
            before, self._told = self._told, None
            return [("DEL", self._key)] if before is not None else []
        if told == self._told and now - self._told_at < EVERY_S:
            return []
        self._told, self._told_at = told, now
        return [("SET", self._key, encode_agents(agents, obeyed), "PX", EXPIRY_MS)]

    def farewell(self) -> tuple[Arg, ...]:
        """The command that tells that no session is alive here any longer, and which orders ended them."""
        if obeyed := self._obeyed.encode_all(time.monotonic()):
            return ("SET", self._key, encode_agents([], obeyed), "PX", EXPIRY_MS)
        return ("DEL", self._key)
