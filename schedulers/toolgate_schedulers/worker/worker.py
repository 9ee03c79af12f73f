"""Read, decide, answer, acknowledge: one replica of a scheduler at work.

Questions come in frames; each is decided in a lane (`task_pool`), at most `concurrency` at once, and
answered in order of completion. An entry is acknowledged with its last answer. What is being
decided is renewed (the bus does it), what has expired is acknowledged and counted, what killed
several replicas is dropped. A scheduler that raises or answers nonsense is counted; the asker is
told that it failed, so that nobody waits for it. `swap` changes the scheduler while questions come:
each is decided by the one in whose tenure it began. Not here: Redis
(`toolgate_bus.transport.redis.scheduler`), loading (`loading`), what to answer (the author).
"""

import asyncio
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Sequence
from contextlib import aclosing
from importlib.metadata import version
from typing import Any, Final, cast

import anyio
from toolgate_bus.errors import CodecError, ConfigError, ToolgateError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import (
    AskUser,
    Continue,
    Deny,
    Failure,
    Hold,
    Modify,
    ToolSelecting,
    Verdict,
)
from toolgate_bus.protocol.signing import Keyring, digest
from toolgate_bus.state.shared_state import SharedState
from toolgate_bus.telemetry import metrics, tracing
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import DECISION
from toolgate_bus.transport.ports import Delivery, Member, SchedulerBus
from toolgate_bus.transport.redis.tasks import is_cancel_requested

from toolgate_schedulers.author.scheduler import Scheduler, asking
from toolgate_schedulers.worker.generation import Tenure, ruling
from toolgate_schedulers.worker.holds import InboxEntry, Job, ReplyTo, StoredHolds, deny_unstored
from toolgate_schedulers.worker.task_pool import CONCURRENCY, Lanes
from toolgate_schedulers.worker.tracing import span_of_answer, span_of_verdict, tell
from toolgate_schedulers.worker.verdict_writer import write_verdict

__all__ = ["CONCURRENCY", "Worker"]

POISON_DELIVERIES: Final = 3
DRAIN_SECONDS: Final = 5.0
LEAVE_SECONDS: Final = 0.05
WITHDRAWN: Final = "tool:withdrawn"
KINDS: Final = ("question", "withdrawn")
"""What comes into its inbox."""
BUILD: Final = f"toolgate {version('toolgate-bus')}"
NOTICE_SECONDS: Final = 2.0
"""Heartbeats of an orchestrator come every half second; one that is busy is not waited for longer."""
_VERDICTS: Final = (Continue, Deny, Modify, AskUser, Hold)
_log = get_logger("toolgate.worker")


class Worker:
    """Runs one replica of `scheduler` on `bus` until cancelled."""

    def __init__(
        self,
        scheduler: Scheduler,
        bus: SchedulerBus,
        *,
        shared: SharedState,
        keyring: Keyring | None = None,
        namespace: str = "default",
        concurrency: int = CONCURRENCY,
        replica: str | None = None,
    ) -> None:
        """`shared` is closed when the scheduler has stopped."""
        self._name, self._bus, self._keyring = scheduler.name, bus, keyring
        self._namespace, self._concurrency = namespace, concurrency
        self._tenure = Tenure(scheduler, shared)
        self._retiring: set[asyncio.Task[None]] = set()
        self.replica = replica or f"{_safe_host()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._holds = StoredHolds(shared.store, self._name, self._send_now)
        self._queue: deque[Job] = deque()
        self._lanes = Lanes(concurrency, self._take)
        self._working: dict[tuple[bytes, int], asyncio.Task[None]] = {}
        self._withdrawn: set[tuple[bytes, int]] = set()
        self._errands: set[asyncio.Task[None]] = set()
        self._deciding = 0
        self._answered = 0
        self._late = 0
        self._draining = False

    async def start(self) -> Member:
        """Start the scheduler, then join group and roster; gives what the roster says of us.

        When it returns, every orchestrator that is awake asks us from its next call on.
        """
        self._loop = asyncio.get_running_loop()
        await self._tenure.start(self._holds, self._namespace, self.replica)
        self._bus.listen(self)
        self._bus.stats(lambda: (self._answered, self._late))
        member = await self._bus.start(self._member(self._tenure.scheduler))
        self._want()
        if not await self._bus.wait_until_noticed(NOTICE_SECONDS):
            _log.info("an orchestrator has not seen us yet; it will ask us once it has", name=self._name)
        return member

    def _member(self, scheduler: Scheduler) -> Member:
        return Member(
            name=scheduler.name,
            replica=self.replica,
            priority=scheduler.priority,
            tools=scheduler.tools,
            shadow=scheduler.shadow,
            pid=os.getpid(),
            host=socket.gethostname(),
            wire=packing.VERSIONS,
            kinds=KINDS,
            build=BUILD,
            revision=scheduler.revision,
        )

    async def swap(self, scheduler: Scheduler, shared: SharedState) -> Member:
        """Have another scheduler decide all questions that begin from now on; none is lost.

        Those that have begun are finished by the one they began with; it is stopped after the last of
        them. Name and shadow must be the same: raises ConfigError. Where the new one cannot start,
        what it raised is raised, and all stays as it was.
        """
        old, new = self._tenure, Tenure(scheduler, shared)
        for field in ("name", "shadow"):
            was, now = getattr(old.scheduler, field), getattr(scheduler, field)
            if was != now:
                await shared.aclose()
                raise ConfigError(f"{field}: cannot change from {was} to {now} while it runs: start it anew")
        await new.start(self._holds, self._namespace, self.replica)
        self._tenure = new
        task = self._loop.create_task(old.stop(), name=f"toolgate-{self._name}-retiring")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        return await self._bus.announce(self._member(scheduler))

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
        await asyncio.gather(*self._retiring)
        await self._tenure.stop()
        await self._bus.aclose()

    async def abandon(self) -> None:
        """End as a killed process does: nothing is finished, nothing stopped. For tests."""
        self._draining = True
        await self._lanes.close(0)

    # ------------------------------------------------------------------ what the bus calls

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """New or taken-over entries."""
        for delivery in deliveries:
            if delivery.times > POISON_DELIVERIES:
                metrics.count(metrics.POISONED, self._name)
                _log.error("dropped a question that outlived several replicas", entry=delivery.entry)
                self._bus.acknowledge(delivery.entry)
            elif delivery.event == WITHDRAWN:
                self._withdraw(delivery)
            else:
                self._accept(delivery)
        if self._queue:
            self._lanes.wake()
        self._want()

    def _accept(self, delivery: Delivery) -> None:
        written = time.monotonic() - delivery.age
        items = self._items(delivery)
        entry = InboxEntry(delivery.entry, len(items))
        for item in items:
            self._queue.append(Job(entry, ReplyTo(delivery.orchestrator, item), written))
        if not items:
            self._bus.acknowledge(delivery.entry)
        else:
            self._bus.hold((delivery.entry,))

    def _items(self, delivery: Delivery) -> list[packing.Item]:
        try:
            found = packing.items(delivery.frame)
        except CodecError as error:
            found = [error]
        items, ring = [], self._keyring
        for one in found:
            if isinstance(one, CodecError):
                metrics.count(metrics.BAD_MESSAGES, "orchestrator", one.reason)
            elif ring is None or self._is_genuine(ring, delivery, one):
                items.append(one)
            else:
                metrics.count(metrics.BAD_MESSAGES, "orchestrator", "forged")
        return items

    def _is_genuine(self, ring: Keyring, delivery: Delivery, item: packing.Item) -> bool:
        check = ring.is_withdrawn if delivery.event == WITHDRAWN else ring.is_question
        return check(delivery.orchestrator, self._name, item.signature_input, item.mac, item.version)

    def _withdraw(self, delivery: Delivery) -> None:
        for item in self._items(delivery):
            try:
                codec.check_withdrawal(item)
            except CodecError as error:
                metrics.count(metrics.BAD_MESSAGES, "orchestrator", error.reason)
                continue
            metrics.count(metrics.WITHDRAWN, self._name)
            lane = self._working.get((item.id, item.phase))
            if lane is not None:
                self._withdrawn.add((item.id, item.phase))
                lane.cancel()
            self._errand(self._holds.forget(ReplyTo(delivery.orchestrator, item)))
        self._bus.acknowledge(delivery.entry)

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
        tenure = self._tenure
        tenure.begin()
        self._deciding += 1
        if not self._queue:
            self._want()  # before deciding: it may take long, and there is room for others
        try:
            call = codec.question(job.asked.item)
            asking.set(job.asked.orchestrator)
            ruling.set(tenure)
            if (time.monotonic() - job.written) * 1000 > call.ttl_ms:
                metrics.count(metrics.EXPIRED, self._name)
            elif not tenure.rules_on(call.tool_name):
                self._send(job.asked, codec.PLAIN_CONTINUE)  # asked by one who does not know its tools yet
                self._note(job, call)
            else:
                decide = self._decide_streaming if tenure.scheduler.streams else self._decide
                DECISION.set(call.id)
                if call.trace or tracing.is_active():
                    with span_of_verdict(tenure.scheduler, call, self.replica):
                        await decide(tenure.scheduler, job, call)
                else:
                    await decide(tenure.scheduler, job, call)
        except CodecError as error:
            metrics.count(metrics.BAD_MESSAGES, "orchestrator", error.reason)
        finally:
            DECISION.set(...)
            self._deciding -= 1
            tenure.end()
            job.settle(self._bus)
        if not self._queue:
            self._want()
        return True

    async def _decide(self, scheduler: Scheduler, job: Job, call: ToolSelecting) -> None:
        """One question, one verdict; a Hold is stored first, and answered some other time."""
        verdict: Verdict | Failure
        try:
            verdict = self._check_verdict(await cast("Awaitable[Any]", scheduler.decide(call)))
        except Exception as error:  # noqa: BLE001 - the author's code: whatever it raises is counted, never ours
            verdict = self._report_exception(call, error)
        except asyncio.CancelledError as error:
            if is_cancel_requested():
                raise
            verdict = self._report_exception(
                call, error
            )  # something of the author's was cancelled, not this lane
        if isinstance(verdict, Hold):
            verdict = await self._keep(job, call, verdict)
        self._send(job.asked, verdict)
        self._note(job, call)

    async def _decide_streaming(self, scheduler: Scheduler, job: Job, call: ToolSelecting) -> None:
        """A scheduler that holds and then answers: it may be withdrawn while it thinks."""
        key = (job.asked.item.id, job.asked.item.phase)
        lane = self._working[key] = cast("asyncio.Task[None]", asyncio.current_task())
        until: float | None = None  # when its hold runs out, once it holds
        answers = cast("AsyncGenerator[Any, None]", scheduler.decide(call))
        try:
            async with aclosing(answers):
                async for answer in answers:
                    verdict = self._check_verdict(answer)
                    if isinstance(verdict, Hold):
                        verdict = await self._keep(job, call, verdict, until)
                    if not isinstance(verdict, Hold):
                        await self._conclude(job, verdict, until)
                        break
                    job.settle(self._bus)
                    if until is None:
                        self._deciding -= 1  # it waits for somebody: another may be decided meanwhile
                        self._lanes.release_slot()
                        self._want()
                    until = time.monotonic() + verdict.seconds
                    self._send(job.asked, verdict)
        except asyncio.CancelledError as error:
            if key in self._withdrawn:
                lane.uncancel()  # nobody waits for this question any longer; the lane goes on
            elif is_cancel_requested():
                raise
            else:
                await self._conclude(job, self._report_exception(call, error), until)
        except Exception as error:  # noqa: BLE001 - the author's code, as above
            await self._conclude(job, self._report_exception(call, error), until)
        finally:
            del self._working[key]
            self._withdrawn.discard(key)
            if until is not None:
                self._deciding += 1
                self._lanes.take_slot()
        self._note(job, call)

    async def _keep(
        self, job: Job, call: ToolSelecting, hold: Hold, until: float | None = None
    ) -> Hold | Deny:
        """The hold, once it is stored; a denial where it cannot be in time."""
        try:
            await self._holds.keep(job.asked, hold, until or job.keep_until(call))
        except ToolgateError as error:
            metrics.count(metrics.SCHEDULER_ERRORS, self._name, "store")
            _log.error("a hold could not be kept: denied", scheduler=self._name, error=str(error))
            if until is None:
                self._errand(self._holds.forget(job.asked))  # perhaps it was kept after all
            return deny_unstored(self._name)
        metrics.count(metrics.HOLDS, self._name)
        return hold

    async def _conclude(self, job: Job, verdict: Verdict | Failure, until: float | None) -> None:
        """Give the last answer; that of a hold (until then) once, and only while somebody waits for it."""
        if until is None:
            self._send(job.asked, verdict)
            return
        try:
            await self._holds.finish(job.asked, verdict, until)
        except ToolgateError as error:
            metrics.count(metrics.SCHEDULER_ERRORS, self._name, "store")
            _log.error("a hold could not be answered", scheduler=self._name, error=str(error))

    def _errand(self, work: Coroutine[Any, Any, None]) -> None:
        errand = self._loop.create_task(work)
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)

    def _report_exception(self, call: ToolSelecting, error: BaseException) -> Failure:
        metrics.count(metrics.SCHEDULER_ERRORS, self._name, "raised")
        _log.error("the scheduler raised", scheduler=self._name, decision=call.id, exc_info=error)
        return Failure(reason=f"it raised {type(error).__name__}")

    def _check_verdict(self, verdict: Any) -> Verdict | Failure:
        if isinstance(verdict, _VERDICTS):
            return verdict
        metrics.count(metrics.SCHEDULER_ERRORS, self._name, "nonsense")
        _log.error("the scheduler gave no verdict", scheduler=self._name, got=type(verdict).__name__)
        return Failure(reason=f"it answered {type(verdict).__name__}, which is no verdict")

    def _note(self, job: Job, call: ToolSelecting) -> None:
        self._answered += 1
        if (time.monotonic() - job.written) * 1000 > call.ttl_ms:
            self._late += 1

    def _send(self, asked: ReplyTo, verdict: Verdict | Failure) -> None:
        metrics.count(metrics.WORKER_ANSWERS, self._name, verdict.action)
        self._bus.answer(asked.orchestrator, self._item(asked, verdict))

    async def _send_now(self, asked: ReplyTo, verdict: Verdict | Failure) -> None:
        with span_of_answer(self._tenure.scheduler, asked, self.replica):
            await self._bus.answer_now(asked.orchestrator, self._item(asked, verdict))
        metrics.count(metrics.WORKER_ANSWERS, self._name, verdict.action)

    def _item(self, asked: ReplyTo, verdict: Verdict | Failure) -> bytes:
        orchestrator, question = asked
        tenure = ruling.get() or self._tenure
        tell(verdict, tenure.scheduler.priority)
        revision = tenure.revision if question.version > packing.VERSION else ""
        # Nearly every verdict is plain: there is nothing in it that could not be written.
        plain = codec.is_plain(verdict)
        body = codec.plain_body(revision) if plain else self._encode(verdict, revision)
        mac = None
        if self._keyring is not None:
            mac = self._keyring.sign_verdict(
                orchestrator, self._name, digest(question.signature_input), body, question.version
            )
        return packing.item(question.id, question.phase, body, mac, question.version)

    def _encode(self, verdict: Verdict | Failure, revision: str) -> bytes:
        written = write_verdict(verdict, revision)
        if written.trouble is not None:
            metrics.count(metrics.SCHEDULER_ERRORS, self._name, "unwritable")
            sent = written.verdict.action
            _log.error("a verdict was mended", scheduler=self._name, why=written.trouble, sent=sent)
        return written.body


def _safe_host() -> str:
    return (
        "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in socket.gethostname())[:32]
        or "host"
    )
