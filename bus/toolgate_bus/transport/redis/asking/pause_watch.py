"""Follows the server's pauses and stops for an orchestrator: when it looks, and which look counts.

It looks at its start, after each reconnection, after a notice of a change, and now and then besides; never
for a decision. A server that was emptied, or an older one that took over, has forgotten the pauses and stops,
and cannot say so. So a look whose mark is older than the known one, or missing, ends neither.
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
"""Seconds between two looks without a notice of a change."""
EVERY_PAUSED_S: Final = 2.0
"""The same while something is paused: the process that resumed it may have died before its notice. A stop may
stand for weeks, and does not count here."""
MAX_ORDERS: Final = 64
_log = get_logger("toolgate.bus")


class PauseWatch:
    """Reads the pauses when it is time, and passes them on."""

    def __init__(self, keys: Keys, adopt: Callable[[StandingPauses], Sequence[str]]) -> None:
        """`adopt` takes the pauses that stand, and returns the sessions whose turns they end."""
        self._keys, self._adopt = keys, adopt
        self._due = 0.0
        self._mark = 0
        self._orders: dict[str, int] = {}
        """Ids of orders that were not seen yet, with the marks of their changes."""
        self._told = False

    def hurry(self) -> None:
        """Look with the next heartbeat: the connection was lost, and is back."""
        self._due = 0.0

    def take(self, raw: bytes) -> bool:
        """Take an operator's message. Return whether it was about pauses: the next beat looks at them."""
        notice = decode_notice(raw)
        if notice is None:
            return False
        if len(self._orders) < MAX_ORDERS:
            self._orders.update([notice])
        self.hurry()
        return True

    async def look(self, commands: Commands) -> list[tuple[str, Sequence[str]]]:
        """Look, if it is time. Return the orders carried out, with the sessions whose turns they ended.

        If nothing can be read, the known pauses stay, and the next heartbeat tries again.
        """
        now = time.monotonic()
        if now < self._due:
            return []
        self._due = now + EVERY_S
        try:
            found = await read_pauses(commands, self._keys)
        except ConfigError as error:  # this user may not read them: the others are paused all the same
            if not self._told:
                self._told = True
                _log.warning("pauses and stops of operators cannot be read", error=str(error))
            return []
        except TransportError:
            self.hurry()
            return []
        return self.learn(found)

    def learn(self, found: StandingPauses) -> list[tuple[str, Sequence[str]]]:
        """Take the pauses that were read. Return the orders that are carried out with them."""
        if found.unreadable:
            metrics.count(metrics.BAD_MESSAGES, "operator", "malformed")
        if found.mark < self._mark:  # the server was emptied, or is an older one
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
