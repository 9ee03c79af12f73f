"""Read, decide, answer, acknowledge: one replica of a scheduler at work.

Questions come in frames; each is decided in a lane (`lanes`), at most `concurrency` at once, and
answered in order of completion. An entry is acknowledged with its last answer. What is being
decided is renewed (the bus does it), what has expired is acknowledged and counted, what killed
several replicas is dropped. A scheduler that raises or answers nonsense is counted; the asker is
told that it failed, so that nobody waits for it. Not here: Redis (`toolgate_bus.scheduler_bus`),
loading (`loading`), what to answer (the author).
"""

import asyncio
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from typing import Any, Final, cast

import anyio
import structlog
from toolgate_bus import codec, metrics
from toolgate_bus.errors import CodecError, TransportError
from toolgate_bus.events import AskUser, Continue, Deny, Failed, Hold, Modify, ToolSelecting, Verdict
from toolgate_bus.ports import Delivery, Member, SchedulerBus
from toolgate_bus.shared import Shared
from toolgate_bus.signing import Keyring, digest

from toolgate_schedulers.api import Scheduler, SchedulerContext, asking
from toolgate_schedulers.held import Asked, StoredHolds
from toolgate_schedulers.lanes import Lanes

__all__ = ["CONCURRENCY", "Worker"]

CONCURRENCY: Final = 64
POISON_DELIVERIES: Final = 3
MAX_REASON: Final = 1024
DRAIN_SECONDS: Final = 5.0
LEAVE_SECONDS: Final = 0.05
NOTICE_SECONDS: Final = 2.0
"""Heartbeats of an orchestrator come every half second; one that is busy is not waited for longer."""
_VERDICTS: Final = (Continue, Deny, Modify, AskUser, Hold)
_log = structlog.get_logger("toolgate.worker")


class _Entry:
    """One delivered entry and how many of its questions are still open."""

    __slots__ = ("id", "open")

    def __init__(self, id: str, open: int) -> None:  # noqa: A002 - the bus's word
        self.id, self.open = id, open


class _Job:
    """One question on its way through a lane."""

    __slots__ = ("asked", "entry", "written")

    def __init__(self, entry: _Entry, asked: Asked, written: float) -> None:
        self.entry: _Entry | None = entry
        self.asked, self.written = asked, written

    def settle(self, bus: SchedulerBus) -> None:
        """Answered, held or expired: the entry is acknowledged with the last of its questions."""
        entry, self.entry = self.entry, None
        if entry is not None:
            entry.open -= 1
            if entry.open == 0:
                bus.done(entry.id)


class Worker:
    """Runs one replica of `scheduler` on `bus` until cancelled."""

    def __init__(
        self,
        scheduler: Scheduler,
        bus: SchedulerBus,
        *,
        shared: Shared,
        keyring: Keyring | None = None,
        namespace: str = "default",
        concurrency: int = CONCURRENCY,
        replica: str | None = None,
    ) -> None:
        self._scheduler, self._bus, self._keyring = scheduler, bus, keyring
        self._shared, self._namespace, self._concurrency = shared, namespace, concurrency
        self.replica = replica or f"{_safe_host()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._holds = StoredHolds(shared.store, scheduler.name, self._send)
        self._queue: deque[_Job] = deque()
        self._lanes = Lanes(concurrency, self._take)
        self._working: dict[tuple[bytes, int], asyncio.Task[None]] = {}
        self._withdrawn: set[tuple[bytes, int]] = set()
        self._errands: set[asyncio.Task[bool]] = set()
        self._deciding = 0
        self._answered = 0
        self._late = 0
        self._draining = False

    async def start(self) -> Member:
        """Start the scheduler, then join group and roster; gives what the roster says of us.

        When it returns, every orchestrator that is awake asks us from its next call on.
        """
        scheduler = self._scheduler
        self._loop = asyncio.get_running_loop()
        await scheduler.start(SchedulerContext(self._shared, self._holds, self._namespace, self.replica))
        self._bus.listen(self)
        self._bus.stats(lambda: (self._answered, self._late))
        member = await self._bus.start(
            Member(
                name=scheduler.name,
                replica=self.replica,
                priority=scheduler.priority,
                tools=scheduler.tools,
                shadow=scheduler.shadow,
                pid=os.getpid(),
                host=socket.gethostname(),
            )
        )
        self._want()
        if not await self._bus.noticed(NOTICE_SECONDS):
            _log.info("an orchestrator has not seen us yet; it will ask us once it has", name=scheduler.name)
        return member

    async def run(self) -> None:
        """Start, work until cancelled, then drain."""
        await self.start()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await self.drain()

    async def drain(self) -> None:
        """Leave the roster, finish what is in hand (at most 5 s), give back the rest, stop."""
        await self._bus.leave()
        await anyio.sleep(LEAVE_SECONDS)  # what was asked before the orchestrators knew still comes in
        self._draining = True
        self._bus.want(0)
        await self._lanes.close(DRAIN_SECONDS)
        if self._errands:
            await asyncio.wait(self._errands, timeout=1.0)
        await self._scheduler.stop()
        await self._bus.aclose()

    # ------------------------------------------------------------------ what the bus calls

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """New or taken-over entries."""
        for delivery in deliveries:
            if delivery.times > POISON_DELIVERIES:
                metrics.count(metrics.POISONED, self._scheduler.name)
                _log.error("dropped a question that outlived several replicas", entry=delivery.entry)
                self._bus.done(delivery.entry)
            elif delivery.event == "tool:withdrawn":
                self._withdraw(delivery)
            else:
                self._accept(delivery)
        if self._queue:
            self._lanes.wake()
        self._want()

    def _accept(self, delivery: Delivery) -> None:
        written = time.monotonic() - delivery.age
        items = self._items(delivery)
        entry = _Entry(delivery.entry, len(items))
        for item in items:
            self._queue.append(_Job(entry, Asked(delivery.orchestrator, item), written))
        if not items:
            self._bus.done(delivery.entry)
        else:
            self._bus.hold((delivery.entry,))

    def _items(self, delivery: Delivery) -> list[codec.Item]:
        try:
            found = codec.items(delivery.frame)
        except CodecError as error:
            found = [error]
        for bad in found:
            if isinstance(bad, CodecError):
                metrics.count(metrics.BAD_MESSAGES, "orchestrator", bad.reason)
        return [item for item in found if isinstance(item, codec.Item) and self._genuine(delivery, item)]

    def _genuine(self, delivery: Delivery, item: codec.Item) -> bool:
        if self._keyring is None or self._keyring.is_question(
            delivery.orchestrator, self._scheduler.name, item.signed, item.mac
        ):
            return True
        metrics.count(metrics.BAD_MESSAGES, "orchestrator", "forged")
        return False

    def _question(self, item: codec.Item) -> ToolSelecting | None:
        try:
            return codec.question(item)
        except CodecError as error:
            metrics.count(metrics.BAD_MESSAGES, "orchestrator", error.reason)
            return None

    def _withdraw(self, delivery: Delivery) -> None:
        for item in self._items(delivery):
            metrics.count(metrics.WITHDRAWN, self._scheduler.name)
            lane = self._working.get((item.id, item.phase))
            if lane is not None:
                self._withdrawn.add((item.id, item.phase))
                lane.cancel()
            errand = self._loop.create_task(self._holds.take(Asked(delivery.orchestrator, item)))
            self._errands.add(errand)
            errand.add_done_callback(self._errands.discard)
        self._bus.done(delivery.entry)

    # ------------------------------------------------------------------ deciding

    def _want(self) -> None:
        room = 0 if self._draining or self._queue else self._concurrency - self._deciding
        self._bus.want(max(0, room))

    async def _take(self) -> bool:
        """Decide the next question in a lane; False when there is none."""
        if not self._queue:
            return False
        job = self._queue.popleft()
        if self._queue:
            self._lanes.wake()
        self._deciding += 1
        if not self._queue:
            self._want()  # before deciding: it may take long, and there is room for others
        try:
            call = self._question(job.asked.item)
            asking.set(job.asked.orchestrator)
            if call is None:
                pass  # counted where it was found
            elif (time.monotonic() - job.written) * 1000 > call.ttl_ms:
                metrics.count(metrics.EXPIRED, self._scheduler.name)
            elif self._scheduler.streams:
                await self._decide_streaming(job, call)
            else:
                await self._decide(job, call)
        except TransportError as error:  # of the store; the bus mends itself, and this lane goes on
            metrics.count(metrics.SCHEDULER_ERRORS, self._scheduler.name, "store")
            _log.error("a hold could not be kept or ended", scheduler=self._scheduler.name, error=str(error))
        finally:
            self._deciding -= 1
            job.settle(self._bus)
        if not self._queue:
            self._want()
        return True

    async def _decide(self, job: _Job, call: ToolSelecting) -> None:
        """One question, one verdict; a Hold is stored first, and answered some other time."""
        verdict: Verdict | Failed
        try:
            verdict = self._checked(await cast("Awaitable[Any]", self._scheduler.decide(call)))
        except Exception as error:  # noqa: BLE001 - the author's code: whatever it raises is counted, never ours
            verdict = self._raised(call, error)
        except asyncio.CancelledError as error:
            if _being_cancelled():
                raise
            verdict = self._raised(call, error)  # something of the author's was cancelled, not this lane
        if isinstance(verdict, Hold):
            await self._hold(job, verdict)
        self._send(job.asked, verdict)
        self._note(job, call)

    async def _decide_streaming(self, job: _Job, call: ToolSelecting) -> None:
        """A scheduler that holds and then answers: it may be withdrawn while it thinks."""
        key = (job.asked.item.id, job.asked.item.phase)
        lane = self._working[key] = cast("asyncio.Task[None]", asyncio.current_task())
        held = False
        answers = cast("AsyncGenerator[Any, None]", self._scheduler.decide(call))
        try:
            async with aclosing(answers):
                async for answer in answers:
                    verdict = self._checked(answer)
                    if isinstance(verdict, Hold):
                        await self._hold(job, verdict)
                        job.settle(self._bus)
                        if not held:
                            held = True
                            self._deciding -= 1  # it waits for somebody: another may be decided meanwhile
                            self._lanes.lend()
                            self._want()
                    elif held and not await self._holds.take(job.asked):
                        break  # withdrawn, or a peer was told the outcome first
                    self._send(job.asked, verdict)
                    if not isinstance(verdict, Hold):
                        break
        except asyncio.CancelledError as error:
            if key in self._withdrawn:
                lane.uncancel()  # nobody waits for this question any longer; the lane goes on
            elif _being_cancelled():
                raise
            elif not held or await self._holds.take(job.asked):
                self._send(job.asked, self._raised(call, error))
        except TransportError:
            raise  # the store's, not the author's
        except Exception as error:  # noqa: BLE001 - the author's code, as above
            failed = self._raised(call, error)
            if not held or await self._holds.take(job.asked):
                self._send(job.asked, failed)
        finally:
            del self._working[key]
            self._withdrawn.discard(key)
            if held:
                self._deciding += 1
                self._lanes.give_back()
        self._note(job, call)

    async def _hold(self, job: _Job, verdict: Hold) -> None:
        await self._holds.keep(job.asked, verdict)
        metrics.count(metrics.HOLDS, self._scheduler.name)

    def _raised(self, call: ToolSelecting, error: BaseException) -> Failed:
        metrics.count(metrics.SCHEDULER_ERRORS, self._scheduler.name, "raised")
        _log.error("the scheduler raised", scheduler=self._scheduler.name, decision=call.id, exc_info=error)
        return Failed(reason=f"it raised {type(error).__name__}")

    def _checked(self, verdict: Any) -> Verdict | Failed:
        if isinstance(verdict, _VERDICTS):
            return verdict
        metrics.count(metrics.SCHEDULER_ERRORS, self._scheduler.name, "nonsense")
        _log.error(
            "the scheduler gave no verdict", scheduler=self._scheduler.name, got=type(verdict).__name__
        )
        return Failed(reason=f"it answered {type(verdict).__name__}, which is no verdict")

    def _note(self, job: _Job, call: ToolSelecting) -> None:
        self._answered += 1
        if (time.monotonic() - job.written) * 1000 > call.ttl_ms:
            self._late += 1

    def _send(self, asked: Asked, verdict: Verdict | Failed) -> None:
        orchestrator, question = asked
        body = self._body(verdict)
        mac = None
        if self._keyring is not None:
            mac = self._keyring.sign_verdict(
                orchestrator, self._scheduler.name, digest(question.signed), body
            )
        metrics.count(metrics.WORKER_ANSWERS, self._scheduler.name, verdict.action)
        self._bus.answer(orchestrator, codec.item(question.id, question.phase, body, mac))

    def _body(self, verdict: Verdict | Failed) -> bytes:
        if verdict.reason is not None and len(verdict.reason) > MAX_REASON:
            verdict = verdict.model_copy(update={"reason": verdict.reason[: MAX_REASON - 1] + "…"})
        try:
            body = codec.verdict_body(verdict)
            if len(body) <= codec.MAX_VERDICT:
                return body
            what = f"its verdict has {len(body)} bytes, {codec.MAX_VERDICT} are allowed"
        except CodecError as error:
            what = f"its verdict cannot be written: {error}"
        metrics.count(metrics.SCHEDULER_ERRORS, self._scheduler.name, "unwritable")
        _log.error("a verdict was not sent", scheduler=self._scheduler.name, why=what)
        return codec.verdict_body(Failed(reason=what))


def _being_cancelled() -> bool:
    """Whether the running task itself was told to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _safe_host() -> str:
    return (
        "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in socket.gethostname())[:32]
        or "host"
    )
