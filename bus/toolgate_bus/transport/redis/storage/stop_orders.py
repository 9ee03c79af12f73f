"""Records which orders to stop an orchestrator has carried out, and whose turns each ended. Pure.

A session may begin, be stopped and be gone between two heartbeats, and its process with it. The operator
still learns of it from the value of `agents:ORCH`, where orders stay for a while. Others write that value:
reads are bounded like any message. Times are seconds.
"""

from collections.abc import Iterable
from typing import Final

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.packing import MAX_STRING, pack, unpack

KEPT_S: Final = 10.0
MAX_ORDERS: Final = 16
MAX_SESSIONS: Final = 1000
"""Maximum number of sessions of one order."""
MAX_OBEYED: Final = 1 << 21


class StopOrderLog:
    """The orders that one process has carried out lately."""

    def __init__(self) -> None:
        self._orders: dict[str, tuple[float, dict[str, None]]] = {}

    def note(self, order: str, sessions: Iterable[str], now: float) -> None:
        """Note that an order was carried out, perhaps again; it ends a turn of these sessions."""
        if not order:  # from a command that waits for no answer
            return
        _, stopped = self._orders.pop(order, (now, {}))
        self._orders[order] = (now, stopped | dict.fromkeys(sessions))
        while len(self._orders) > MAX_ORDERS:
            del self._orders[next(iter(self._orders))]

    def encode_all(self, now: float) -> list[bytes]:
        """Return the report of each order, as a binary."""
        self._orders = {order: one for order, one in self._orders.items() if now - one[0] < KEPT_S}
        return [pack([order, list(stopped)[:MAX_SESSIONS]]) for order, (_, stopped) in self._orders.items()]


def decode_obeyed(raw: bytes) -> dict[str, frozenset[str]]:
    """Return the orders that an orchestrator reports as carried out, each with the sessions it stopped."""
    try:
        found = unpack(raw, MAX_OBEYED)
        told = found.get("obeyed") if isinstance(found, dict) else None
        orders = told[:MAX_ORDERS] if isinstance(told, list) else []
        read = [unpack(one) for one in orders if isinstance(one, bytes)]
    except CodecError:
        return {}
    return {
        one[0]: frozenset(name for name in one[1] if isinstance(name, str) and len(name) <= MAX_STRING)
        for one in read
        if isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], list)
    }
