"""The loop of a service that reads facts, and its health.

    lead? ─ no ──▶ stand by, and ask again after a rest
      │ yes
    go on from the checkpoint ─▶ read facts ─▶ work ─▶ write a checkpoint ─▶ read facts …

A service implements one pass of this as its `step`. The loop repeats it. If the server is away, the loop
reports that once and waits. When the server is back, everybody connects again and calls wait: so a service on
which no call waits lets the others go first.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.ports import FactStream

REST_S: Final = 0.5
"""Seconds between two tries to lead, or to reach the server."""
GIVE_WAY_S: Final = 0.5
"""Seconds after the return of a server during which services on which no call waits do not read."""


class Service(ABC):
    """One service in one process, of which others of its kind may stand by."""

    side: ClassVar[str] = ""
    """Label under which lost connections are counted; empty in a scheduler, whose bus counts its own."""
    works: ClassVar[str] = "reads facts"
    stands_by: ClassVar[str] = "another process leads"
    idles: ClassVar[str] = "has read no facts"
    stale_s: ClassVar[float] = 10.0
    """Seconds without work after which the service is unhealthy."""

    def __init__(self, log: Any = None, *, is_command: bool = False) -> None:
        """Prepare the loop, which reports outages to `log`.

        A refusal by the server ends a service that `is_command`; one in a scheduler tries again.
        """
        self._log, self._is_command = log, is_command
        self.is_connected: bool | None = None
        """True if the server answered last, False if it did not; None if it was never asked."""
        self.leads = False
        """True if this process works, False if it stands by."""
        self.worked_at = float("-inf")
        """Time (`time.monotonic`) of the last work, for `health`."""

    def health(self) -> tuple[bool, str]:
        """Return whether the service works, and a sentence about it."""
        if not self.is_connected:
            return False, "the bus cannot be reached; waiting for it"
        if not self.leads:
            return False, f"stands by: {self.stands_by}"
        if time.monotonic() - self.worked_at >= self.stale_s:
            return False, f"{self.idles} for {self.stale_s:g} s"
        return True, self.works

    @abstractmethod
    async def step(self) -> bool:
        """Work once. Return False if another process leads. Raise TransportError if the server is away."""

    async def give_up(self) -> None:  # noqa: B027 - most have nothing to give up
        """Give up what another process may change until the server is back."""

    async def leave(self) -> None:  # noqa: B027 - most just end
        """End in good order, so that another process goes on at once."""

    async def run(self) -> None:
        """Work until cancelled. Raise ConfigError if the server refuses what a command needs."""
        try:
            while True:
                if not await self._try_step():
                    await asyncio.sleep(REST_S)
        finally:
            await self.leave()

    async def _try_step(self) -> bool:
        try:
            if self.is_connected is False:
                await self.give_way()
            worked = await self.step()
        except TransportError as error:
            if self._is_command and isinstance(error, ConfigError):
                raise
            await self.on_disconnect(error)
            return False
        self.is_connected, self.leads = True, worked
        return worked

    async def give_way(self) -> None:  # noqa: B027 - a service for which calls wait does not
        """Let those go first on whom calls wait, after an outage. Raise TransportError while it lasts."""

    async def on_disconnect(self, error: TransportError) -> None:
        """Report an outage once, count it, and give up what another process may change meanwhile."""
        if self.is_connected and self.side:
            metrics.count(metrics.RECONNECTS, self.side)
        if self.is_connected is not False:
            self.report_outage(error)
        self.is_connected = False
        await self.give_up()

    def report_outage(self, error: TransportError) -> None:
        """Report that the server is away. In a scheduler the bus does so, too."""
        log = self._log
        if self._is_command:
            log.warning("the bus cannot be reached; waiting for it", error=str(error))
        else:
            log.info("the bus cannot be reached; waiting for it", error=str(error))


class FactsService(Service):
    """Service that reads facts."""

    def __init__(
        self, facts: FactStream, log: Any = None, *, gives_way: bool = True, is_command: bool = False
    ) -> None:
        """Prepare the loop. With `gives_way` no call waits for this service."""
        super().__init__(log, is_command=is_command)
        self._facts, self._gives_way = facts, gives_way

    async def give_way(self) -> None:
        """Wait until the server has been back for a moment, unless calls wait for this service."""
        if self._gives_way:
            await self._facts.now_ms()
            await asyncio.sleep(GIVE_WAY_S)
