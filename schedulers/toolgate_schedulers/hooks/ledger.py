"""Keep a hook module's ledger on a server: all sessions that mount the module share it.

Sessions are on the roster as `h:OWNER`. They settle their own reservations, so there are no facts to
follow: the keeper only looks for the reservations of sessions that died.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from toolgate_bus.errors import TransportError
from toolgate_bus.ledger.money.epoch_file import find_epoch_file
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol.events import Failure, Verdict
from toolgate_bus.state.shared import MemoryFacts, make_shared_state
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import BEAT_SECONDS, Roster
from toolgate_bus.transport.redis.roster.roster_sets import OLD
from toolgate_bus.transport.redis.storage.store import RedisStore
from toolgate_bus.transport.redis.tasks import keep

from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware
from toolgate_schedulers.worker.holds import ReplyTo, StoredHolds

BOOK: Final = "budget-hooks"
PAUSE_S: Final = 0.5


async def _nowhere(_asked: ReplyTo, _verdict: Verdict | Failure) -> None:
    """Do nothing: no call is held inside an agent."""


class _Sessions(MemoryFacts):
    """Facts of sessions that tell none, with the sessions that are alive."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        super().__init__()
        self._roster = Roster(commands, namespace, ("hooks", "hooks", "hooks", OLD))

    async def next(self, wait_ms: int | None = None) -> list[dict[str, Any]]:
        """Return no facts, after a moment."""
        await asyncio.sleep(PAUSE_S)
        return []

    async def alive(self) -> frozenset[str]:
        """Return the sessions that have a heartbeat."""
        return (await self._roster.read(everything=False)).hooks


class HookLedger:
    """State that one session shares with others."""

    def __init__(self, url: str, namespace: str) -> None:
        self.owner = f"hook-{secrets.token_hex(8)}"
        self._namespace = namespace
        self._commands = commands = RedisCommands(url, "toolgate-hook")
        self._roster = Roster(commands, namespace)
        facts = _Sessions(commands, namespace)
        self.shared = replace(
            make_shared_state(),
            store=RedisStore(commands, namespace),
            ledger=RedisLedger(commands, namespace, BOOK, find_epoch_file(url, namespace, BOOK)),
            book=BOOK,
            facts=facts,
        )
        self._beating: asyncio.Task[None] | None = None

    async def start(self, scheduler: CostAware, often: Callable[[], Awaitable[None]]) -> None:
        """Join the roster and keep the ledger; raise TransportError if there is no server.

        `often` is called with every heartbeat.
        """
        try:
            await self._roster.write(f"h:{self.owner}", b"\x80")
            holds = StoredHolds(self.shared.store, scheduler.name, _nowhere)
            context = SchedulerContext(self.shared, holds, self._namespace, self.owner, scheduler.name)
            await scheduler.start(context)
        except TransportError:
            await self._commands.aclose()
            raise
        self._beating = asyncio.create_task(keep(self._beat_often, often))

    async def aclose(self, scheduler: CostAware) -> None:
        """Stop the scheduler and leave the roster."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        await scheduler.stop()
        with contextlib.suppress(TransportError):
            await self._roster.leave(f"h:{self.owner}")
        await self._commands.aclose()

    async def _beat_often(self, often: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            with contextlib.suppress(TransportError):
                await self._roster.write(f"h:{self.owner}", b"\x80")
                await often()
