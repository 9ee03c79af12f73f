"""Keeps the local table of a replica's scheduler where gates read it, before the roster names it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from toolgate_bus.errors import ToolgateError
from toolgate_bus.ruling.local_table import table_key
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Member

from toolgate_schedulers.worker.active_versions import ActiveVersions, SchedulerVersion

SOON_S: Final = 5.0
"""Seconds until a write that failed is tried again."""
KEPT_S: Final = 24 * 3600.0
"""Seconds for which a table stays that nobody writes again."""
AGAIN_S: Final = 600.0
"""Seconds between two writes of the same table: a server may have lost it."""
_log = get_logger("toolgate.worker")


class TablePublisher:
    """Writes the table in force, and writes it again now and then."""

    def __init__(self, announce: Callable[[], Awaitable[object]]) -> None:
        """Make a publisher; `announce` tells the roster again, once a table is written after all."""
        self._announce = announce
        self._again: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[object] | None = None
        self._is_told = False

    async def publish(self, versions: ActiveVersions) -> Member:
        """Write the table of the scheduler in force. Return its entry for the roster.

        If the table cannot be written, the entry names none, and the scheduler is asked about each call until
        a later write succeeds.
        """
        self.close()
        member, active = versions.describe(), versions.current
        if not member.table:
            return member
        if not await self._write(active, member.table):
            self._plan(SOON_S, self._announce_again)
            return replace(member, table="")
        self._plan(AGAIN_S, self._rewrite, active, member.table)
        return member

    def close(self) -> None:
        """Write nothing more."""
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _plan(self, seconds: float, act: Callable[..., Awaitable[object]], *given: object) -> None:
        self._again = asyncio.get_running_loop().call_later(seconds, self._begin, act, given)

    def _begin(self, act: Callable[..., Awaitable[object]], given: tuple[object, ...]) -> None:
        self._writing = asyncio.ensure_future(act(*given))

    async def _announce_again(self) -> None:
        try:
            await self._announce()
        except ToolgateError:
            self._plan(SOON_S, self._announce_again)

    async def _rewrite(self, active: SchedulerVersion, digest: str) -> None:
        self._plan(AGAIN_S, self._rewrite, active, digest)
        await self._write(active, digest)

    async def _write(self, active: SchedulerVersion, digest: str) -> bool:
        own = active.scheduler
        try:
            await active.shared.store.put(table_key(own.name, digest), own.local_table, KEPT_S)
        except ToolgateError as error:
            if not self._is_told:
                self._is_told = True
                _log.warning(
                    "the local table cannot be written, so gates ask about each call",
                    scheduler=own.name,
                    error=str(error),
                )
            return False
        self._is_told = False
        return True
