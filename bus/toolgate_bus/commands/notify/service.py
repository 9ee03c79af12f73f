"""Run `toolgate notify`: look, judge, keep, post. Of several under one name one works, the others stand by.

Incidents are written down before they are posted. While the server is away nothing is posted: another process
could not know of it. Notifications that were posted and could not be removed meanwhile are remembered here.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio

from toolgate_bus.commands.notify.config import NotifyConfig
from toolgate_bus.commands.notify.grouping import Notification, make_redactor, put, take_due
from toolgate_bus.commands.notify.judgement import judge_all
from toolgate_bus.commands.notify.memory import NotifyMemory
from toolgate_bus.commands.notify.outbox import KeptState, NotifyOutbox
from toolgate_bus.commands.notify.sources import FleetSources
from toolgate_bus.errors import ConfigError, ToolgateError, TransportError
from toolgate_bus.facts.entries import Fact
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger

LOOK_EVERY_S: Final = 0.5
RENEW_S: Final = 0.5
SURE_S: Final = 2.0
"""Seconds after a renewal of the lease in which a POST may begin."""
MARGIN_S: Final = 1.0
STAND_BY_S: Final = 0.5
STALE_S: Final = 15.0
LEAVING_S: Final = 2.0
MAX_FACTS: Final = 5000
"""Number of facts from which they are judged at once, whatever the time."""
_log = get_logger("toolgate.notify")


def lease_seconds(config: NotifyConfig) -> float:
    """Return the seconds that a lease lasts. A POST that began while the lease was sure has ended before."""
    return SURE_S + max(one.timeout_s for one in config.receivers.values()) + MARGIN_S


class NotifyService:
    """Work of one process, and the `SendQueue` of its senders."""

    def __init__(
        self,
        config: NotifyConfig,
        facts: FactsReader,
        sources: FleetSources,
        outbox: NotifyOutbox,
        space: str,
    ) -> None:
        self._config, self._facts, self._sources, self._outbox = config, facts, sources, outbox
        self._space, self._redact = space, make_redactor(config)
        self._memory: NotifyMemory | None = None
        self._before: KeptState | None = None
        """State when this process last led, for a server that lost everything."""
        self._queues: dict[str, dict[str, Notification]] = {name: {} for name in config.receivers}
        self._struck: set[str] = set()
        """Ids of notifications that need no sending, and may still be in the outbox."""
        self._lock = asyncio.Lock()
        """Lock for writes: the senders and the loop take turns."""
        self._facts_read: list[Fact] = []
        """Facts that are not judged yet."""
        self._text = b""
        """Memory as it was written last."""
        self._sure_at = self._looked_at = float("-inf")
        self._connected = True
        self._changed = asyncio.Event()

    # ------------------------------------------------------------------ for senders

    async def first(self, receiver: str) -> Notification:
        """Wait for the oldest notification of a receiver, and return it."""
        queue = self._queues[receiver]
        while not queue:
            await self._changed.wait()
        return next(iter(queue.values()))

    async def may_send(self, one: Notification) -> bool:
        """Wait until this process surely leads. Return whether the notification is still to be sent."""
        while self._memory is None or time.monotonic() - self._sure_at >= SURE_S:
            await self._changed.wait()
        return one.id in self._queues[one.receiver]

    async def strike(self, one: Notification) -> None:
        """Remove a notification from the outbox, or remember to."""
        self._queues[one.receiver].pop(one.id, None)
        self._struck.add(one.id)
        with suppress(TransportError):  # the lease's next renewal takes it along
            await self._keep(b"")

    # ------------------------------------------------------------------ for people

    @property
    def leads(self) -> bool:
        """True if this process works."""
        return self._memory is not None

    @property
    def queued(self) -> Mapping[tuple[str, ...], float]:
        """Number of notifications that wait to be posted, by receiver."""
        return {(name,): float(len(queue)) for name, queue in self._queues.items()}

    def health(self) -> tuple[bool, str]:
        """Return whether it works, and a sentence about it."""
        if not self._connected:
            return False, "the bus cannot be reached; waiting for it"
        if not self.leads:
            return False, "stands by: another of this name works"
        if time.monotonic() - self._looked_at >= STALE_S:
            return False, f"has not looked for {STALE_S:g} s"
        return True, "looks, and posts"

    # ------------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Work until cancelled. Raise ConfigError if the server will never do what is asked of it."""
        while True:
            try:
                memory = self._memory or await self._take_the_lead()
                if memory is not None:
                    await self._step(memory)
                    continue
            except ConfigError:
                raise
            except TransportError as error:
                self._on_disconnect(error)
            await asyncio.sleep(STAND_BY_S)

    async def _step(self, memory: NotifyMemory) -> None:
        """Read facts and, if it is time, everything else. Judge it and keep the result, or neither."""
        self._facts_read += await self._facts.next()
        if time.monotonic() - self._looked_at < LOOK_EVERY_S and len(self._facts_read) < MAX_FACTS:
            return
        state = await self._sources.read(memory)
        self._connected, self._looked_at = True, time.monotonic()
        facts, self._facts_read = self._facts_read, []
        positions, numbers = self._facts.positions, self._facts.numbers
        # No await from here on, until everything to write is known.
        for one in judge_all(memory, facts, state, self._config.causes):
            put(memory.waiting, one, self._config, self._redact, state.now)
        memory.positions, memory.numbers = positions, numbers
        queued = {name: len(queue) for name, queue in self._queues.items()}
        made = list(take_due(memory.waiting, queued, self._config, self._space, state.now))
        await self._commit(memory, made)

    async def _commit(self, memory: NotifyMemory, made: Sequence[Notification]) -> None:
        """Write everything down, however long that takes. Only then is anything posted."""
        text = memory.to_bytes()
        new = text if text != self._text or made else b""
        while self._memory is memory:
            try:
                if await self._keep(new, made):
                    self._text = text
                    for one in made:
                        self._queues[one.receiver][one.id] = one
                    self._tell_senders()
                return
            except TransportError as error:
                self._on_disconnect(error)
                await asyncio.sleep(STAND_BY_S)

    # ------------------------------------------------------------------ the lease

    async def _take_the_lead(self) -> NotifyMemory | None:
        begun = time.monotonic()
        kept = await self._outbox.lead()
        self._connected = True
        if kept is None:
            return None
        is_new = kept.memory is None
        if is_new and self._before is not None:
            kept = self._before
        memory = kept.memory or await self._begin()
        self._facts.resume(memory.positions, memory.numbers)
        await self._facts.rewind()
        self._facts_read, self._text = [], b""
        for name, queue in self._queues.items():
            of_receiver = (one for one in kept.notifications if one.receiver == name)
            queue.clear()
            queue.update((one.id, one) for one in of_receiver if one.id not in self._struck)
        self._struck.update(one.id for one in kept.notifications if one.receiver not in self._queues)
        if is_new:
            queued = [one for queue in self._queues.values() for one in queue.values()]
            if not await self._outbox.keep(memory.to_bytes(), queued):
                return None
        self._memory, self._sure_at, self._looked_at = memory, begun, time.monotonic() - LOOK_EVERY_S
        self._before = None
        _log.info("looks, and posts", queued=sum(map(len, self._queues.values())))
        return memory

    async def _begin(self) -> NotifyMemory:
        """Return the first memory. The present state is told, earlier facts and changes are not."""
        start = f"{int(await self._sources.now() * 1000)}-0"
        return NotifyMemory(positions=dict.fromkeys(await self._facts.writers(), start), changes=start)

    async def renew(self) -> None:
        """Keep the lease while the loop reads, and remove what was posted, until cancelled."""
        while True:
            await asyncio.sleep(RENEW_S)
            if self._memory is not None:
                with suppress(ToolgateError):  # the loop says so
                    await self._keep(b"")

    async def leave(self) -> None:
        """Let another lead at once. Call it when nothing is posted any longer."""
        with anyio.move_on_after(LEAVING_S), suppress(ToolgateError):
            if self._memory is not None and await self._keep(b""):
                await self._outbox.leave()

    async def _keep(self, memory: bytes, made: Sequence[Notification] = ()) -> bool:
        """Write, and renew the lease. Return False if another has led since. Raise TransportError."""
        async with self._lock:
            begun, struck = time.monotonic(), tuple(self._struck)
            kept = await self._outbox.keep(memory, made, struck)
            if kept:
                self._sure_at = begun
                self._struck.difference_update(struck)
                self._tell_senders()
            elif self._memory is not None:
                self._stand_by(made)
            return kept

    def _tell_senders(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _stand_by(self, made: Sequence[Notification]) -> None:
        _log.warning("another of this name works now, or the server lost its data; this one stands by")
        queued = [one for queue in self._queues.values() for one in queue.values()]
        self._before = KeptState(self._memory, (*queued, *made))
        self._memory, self._sure_at = None, float("-inf")

    def _on_disconnect(self, error: TransportError) -> None:
        if self._connected:
            metrics.count(metrics.RECONNECTS, "notify")
            _log.warning("the bus cannot be reached; waiting for it", error=str(error))
        self._connected = False
