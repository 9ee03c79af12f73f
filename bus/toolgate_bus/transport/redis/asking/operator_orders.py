"""Handles operators' messages to one orchestrator process: pauses or stops were changed.

A command line of an earlier version writes orders to stop instead, which end turns once and do not last.
"""

from collections.abc import Callable

from toolgate_bus.protocol.agents import decode_stop
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.ports import Commands, OrchestratorListener
from toolgate_bus.transport.redis.asking.agent_report import AgentReport
from toolgate_bus.transport.redis.asking.pause_watch import PauseWatch


class OperatorOrders:
    """Carries out orders from `ctl:ORCH`, and has their execution reported."""

    def __init__(
        self, listener: Callable[[], OrchestratorListener], report: AgentReport, pauses: PauseWatch
    ) -> None:
        self._listener, self._report, self._pauses = listener, report, pauses

    def take(self, raw: bytes) -> bool:
        """Take one message. Return whether a heartbeat must report or look at something at once."""
        if self._pauses.take(raw):
            return True
        if (order := decode_stop(raw)) is None:
            metrics.count(metrics.BAD_MESSAGES, "operator", "malformed")
            return False
        self._report.note_order(order.id, self._listener().on_stop_order(order))
        return True

    async def look(self, commands: Commands) -> None:
        """Look at the pauses, if it is time; this heartbeat reports what follows from them."""
        for order, sessions in await self._pauses.look(commands):
            self._report.note_order(order, sessions)
