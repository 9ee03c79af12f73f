"""What of the server's pauses and stops an orchestrator knows: when it looks, and which look counts.

It looks at its start, after each reconnection, when it is told that they were changed, and now and then
besides; never for a decision. A server that was emptied, or that a failover made of an older one, has
forgotten who is paused and stopped, and cannot say so: what bears an older mark than what is known, or none,
ends neither.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.pauses import StandingPauses, decode_notice
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.storage.pauses import read_pauses

EVERY_S: Final = 10.0
"""Seconds between two looks where nobody told of a change."""
EVERY_PAUSED_S: Final = 2.0
"""The same while something is paused: whoever resumed it may have died before telling. A stop may stand for
weeks, and changes nothing of it."""
MAX_ORDERS: Final = 64
_log = get_logger("toolgate.bus")


class PauseWatch:
    """Looks, and tells whoever holds calls back."""

    def __init__(self, keys: Keys, adopt: Callable[[StandingPauses], Sequence[str]]) -> None:
        """`adopt` takes what stands, and gives the sessions whose turns it ends."""
        self._keys, self._adopt = keys, adopt
        self._due = 0.0
        self._mark = 0
        self._orders: dict[str, int] = {}
        """What was ordered and not seen yet: ids of orders, with the marks of their changes."""
        self._told = False

    def hurry(self) -> None:
        """Look with the next heartbeat: the connection was lost, and is back."""
        self._due = 0.0

    def take(self, raw: bytes) -> bool:
        """An operator's message; whether it was about pauses, which are then looked at with the next beat."""
        notice = decode_notice(raw)
        if notice is None:
            return False
        if len(self._orders) < MAX_ORDERS:
            self._orders.update([notice])
        self.hurry()
        return True

    async def look(self, commands: Commands) -> list[tuple[str, Sequence[str]]]:
        """Look, where it is time; give the orders that are carried out, with the sessions whose turns ended.

        Where nothing can be read, all stays as it is known, and the next heartbeat tries again.
        """
        now = time.monotonic()
        if now < self._due:
            return []
        self._due = now + EVERY_S
        try:
            found = await read_pauses(commands, self._keys)
        except ConfigError as error:  # this user may not: the others are paused all the same
            if not self._told:
                self._told = True
                _log.warning("it cannot be seen what operators have paused and stopped", error=str(error))
            return []
        except TransportError:
            self.hurry()
            return []
        return self.learn(found)

    def learn(self, found: StandingPauses) -> list[tuple[str, Sequence[str]]]:
        """What was read; gives the orders that are carried out with it."""
        if found.unreadable:
            metrics.count(metrics.BAD_MESSAGES, "operator", "malformed")
        if found.mark < self._mark:  # (it was emptied, or is an older one)
            return []
        self._mark = found.mark
        ended = self._adopt(found)
        if any(not one.stop for one in found.pauses):
            self._due = min(self._due, time.monotonic() + EVERY_PAUSED_S)
        done = [order for order, mark in self._orders.items() if mark <= found.mark]
        for order in done:
            del self._orders[order]
        if self._orders:
            self.hurry()
        return [(order, ended) for order in done]
