"""Run `toolgate notify`: look, judge, keep, post. Of several under one name one works, the others stand by.

Incidents are written down before they are posted. While the server is away nothing is posted: another process
could not know of it. Notifications that were posted and could not be removed meanwhile are remembered here.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, Final, Literal

import anyio
import stamina

from toolgate_bus.commands.notify.config import CauseSettings, NotifyConfig
from toolgate_bus.commands.notify.fleet_sources import FleetSources, FleetState
from toolgate_bus.commands.notify.judges import judge_budgets, judge_change, judge_held
from toolgate_bus.commands.notify.notification import Incident, Notification, make_redactor, put, take_due
from toolgate_bus.commands.notify.outbox import KeptState, NotifyMemory, NotifyOutbox
from toolgate_bus.commands.notify.receivers import ReceiverClient, ReceiverRefusal, ReceiverUnavailable
from toolgate_bus.errors import ToolgateError, TransportError
from toolgate_bus.facts.service import REST_S, Service
from toolgate_bus.telemetry import definitions
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.metrics import CounterSeries

LOOK_EVERY_S: Final = 0.5
RENEW_S: Final = 0.5
SURE_S: Final = 2.0
"""Seconds after a renewal of the lease in which a POST may begin."""
MARGIN_S: Final = 1.0
LEAVING_S: Final = 2.0
PostOutcome = Literal["delivered", "failed", "refused", "expired"]
POSTS: Final = CounterSeries(definitions.NOTIFICATIONS)
stamina.instrumentation.set_on_retry_hooks([])  # this module logs and counts retries itself
_log = get_logger("toolgate.notify")


def lease_seconds(config: NotifyConfig) -> float:
    """Return the seconds of a lease. A POST to a webhook that began while it was sure has ended before."""
    return SURE_S + max(one.timeout_s for one in config.receivers.values()) + MARGIN_S


def judge_all(memory: NotifyMemory, state: FleetState, causes: CauseSettings) -> Iterator[Incident]:
    """Give every incident that is new. The caller keeps the changes of the memory and these, or neither."""
    yield from judge_held(memory.held, state.held, state.ends, state.now, causes.held)
    if state.books is not None:
        yield from judge_budgets(memory.budgets, state.books, state.now, causes.budget)
    for place, change in state.changes:
        memory.changes = place
        yield from judge_change(place, change, state.now, causes.change)


class NotifyService(Service):
    """Work of one process."""

    side: ClassVar[str] = "notify"
    works: ClassVar[str] = "looks, and posts"
    stands_by: ClassVar[str] = "another of this name works"
    idles: ClassVar[str] = "has not looked"
    stale_s: ClassVar[float] = 15.0

    def __init__(self, config: NotifyConfig, sources: FleetSources, outbox: NotifyOutbox, space: str) -> None:
        super().__init__(_log, is_command=True)
        self._config, self._sources, self._outbox = config, sources, outbox
        self._space, self._redact = space, make_redactor(config)
        self._memory: NotifyMemory | None = None
        self._before: KeptState | None = None
        """State when this process last led, for a server that lost everything."""
        self._queues: dict[str, dict[str, Notification]] = {name: {} for name in config.receivers}
        self._struck: set[str] = set()
        """Ids of notifications that need no sending, and may still be in the outbox."""
        self._lock = asyncio.Lock()
        """Lock for writes: posts and the loop take turns."""
        self._text = b""
        """Memory as it was written last."""
        self._changed = asyncio.Event()

    # ------------------------------------------------------------------ for people

    @property
    def queued(self) -> Mapping[tuple[str, ...], float]:
        """Number of notifications that wait to be posted, by receiver."""
        return {(name,): float(len(queue)) for name, queue in self._queues.items()}

    # ------------------------------------------------------------------ the loop

    async def step(self) -> bool:
        """Read everything, judge it, and keep the result, or neither. Then wait until the next look."""
        memory = self._memory or await self._take_the_lead()
        if memory is None:
            return False
        state = await self._sources.read(memory)
        self.worked_at = time.monotonic()
        # No await from here on, until everything to write is known.
        for one in judge_all(memory, state, self._config.causes):
            put(memory.waiting, one, self._config, self._redact, state.now)
        queued = {name: len(queue) for name, queue in self._queues.items()}
        made = list(take_due(memory.waiting, queued, self._config, self._space, state.now))
        await self._commit(memory, made)
        await asyncio.sleep(LOOK_EVERY_S)
        return self._memory is memory

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
                    self._wake_posts()
                return
            except TransportError as error:
                await self.on_disconnect(error)
                await asyncio.sleep(REST_S)

    # ------------------------------------------------------------------ posts

    async def post_to(self, receiver: str, client: ReceiverClient) -> None:
        """Post what a receiver is told, in order, until cancelled. A POST that has begun is ended."""
        queue, retry = self._queues[receiver], self._config.retry
        while True:
            while not queue:
                await self._changed.wait()
            one = next(iter(queue.values()))
            tries = stamina.retry_context(
                on=_wait_for,
                attempts=None,
                timeout=None,
                wait_initial=retry.first_s,
                wait_max=retry.max_s,
                wait_jitter=retry.first_s,
            )
            try:
                async for attempt in tries:
                    with attempt:
                        await self._try(one, client)
            except ReceiverRefusal as error:
                _tell(one, "refused", str(error))
                await self._strike(one)

    async def _try(self, one: Notification, client: ReceiverClient) -> None:
        """Post once, as soon as this process surely leads. Raise ReceiverUnavailable or ReceiverRefusal.

        A notification that was taken is removed from the outbox before anything else is done. A process that
        ends between these two steps has it posted once more, under the same id.
        """
        while self._memory is None or time.monotonic() - self._outbox.lease.renewed_at >= SURE_S:
            await self._changed.wait()
        if one.id not in self._queues[one.receiver]:
            return  # another process has led meanwhile, and posted it
        if time.time() - one.at >= self._config.retry.give_up_s:
            _tell(one, "expired", "")
            await self._strike(one)
            return
        with anyio.CancelScope(shield=True):  # bounded by the receiver's timeout
            try:
                await client.post(one)
            except ReceiverUnavailable as error:
                _tell(one, "failed", str(error))
                raise
            await self._strike(one)
            _tell(one, "delivered", "")

    async def _strike(self, one: Notification) -> None:
        """Remove a notification from the outbox, or remember to."""
        self._queues[one.receiver].pop(one.id, None)
        self._struck.add(one.id)
        with suppress(TransportError):  # the lease's next renewal takes it along
            await self._keep(b"")

    # ------------------------------------------------------------------ the lease

    async def _take_the_lead(self) -> NotifyMemory | None:
        kept = await self._outbox.lead()
        if kept is None:
            return None
        is_new = kept.memory is None
        if is_new and self._before is not None:
            kept = self._before
        memory = kept.memory or await self._begin()
        self._text = b""
        for name, queue in self._queues.items():
            of_receiver = (one for one in kept.notifications if one.receiver == name)
            queue.clear()
            queue.update((one.id, one) for one in of_receiver if one.id not in self._struck)
        self._struck.update(one.id for one in kept.notifications if one.receiver not in self._queues)
        if is_new:
            queued = [one for queue in self._queues.values() for one in queue.values()]
            if not await self._outbox.keep(memory.to_bytes(), queued):
                return None
        self._memory, self._before, self.worked_at = memory, None, time.monotonic()
        self.is_connected = self.leads = True
        _log.info("looks, and posts", queued=sum(map(len, self._queues.values())))
        return memory

    async def _begin(self) -> NotifyMemory:
        """Return the first memory. The present state is told, earlier changes are not."""
        return NotifyMemory(changes=f"{int(await self._sources.now() * 1000)}-0")

    async def renew(self) -> None:
        """Keep the lease while the loop reads, and remove what was posted, until cancelled."""
        while True:
            await asyncio.sleep(RENEW_S)
            if self._memory is not None:
                with suppress(ToolgateError):  # the loop says so
                    await self._keep(b"")

    async def hand_over(self) -> None:
        """Let another lead at once. Call it when nothing is posted any longer."""
        with anyio.move_on_after(LEAVING_S), suppress(ToolgateError):
            if self._memory is not None and await self._keep(b""):
                await self._outbox.lease.leave()

    async def _keep(self, memory: bytes, made: Sequence[Notification] = ()) -> bool:
        """Write, and renew the lease. Return False if another has led since. Raise TransportError."""
        async with self._lock:
            struck = tuple(self._struck)
            kept = await self._outbox.keep(memory, made, struck)
            if kept:
                self._struck.difference_update(struck)
                self._wake_posts()
            elif self._memory is not None:
                self._stand_by(made)
            return kept

    def _wake_posts(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _stand_by(self, made: Sequence[Notification]) -> None:
        _log.warning("another of this name works now, or the server lost its data; this one stands by")
        queued = [one for queue in self._queues.values() for one in queue.values()]
        self._before = KeptState(self._memory, (*queued, *made))
        self._memory, self.leads = None, False


def _wait_for(error: Exception) -> bool | float:
    """Return whether to try again, or the minimum seconds before that, if the receiver said so."""
    if isinstance(error, ReceiverUnavailable):
        return True if error.wait_s is None else error.wait_s
    return False


def _tell(one: Notification, outcome: PostOutcome, why: str) -> None:
    cause, failed = one.incidents[0].cause, outcome == "failed"
    POSTS.add((cause, one.receiver, outcome))
    log = _log.info if outcome == "delivered" else _log.warning
    log(
        "a receiver did not take a notification" if failed else f"a notification was {outcome}",
        id=one.id,
        receiver=one.receiver,
        cause=cause,
        incidents=len(one.incidents) + one.left_off,
        **({"why": why} if why else {}),
    )
