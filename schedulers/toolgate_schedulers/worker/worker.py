"""Run one replica of a scheduler: read questions, decide, answer, acknowledge.

Questions come in frames. Each is decided in a lane (`task_pool`), at most `concurrency` at once, and answered
in order of completion. An entry is acknowledged with its last answer. The bus renews entries that are being
decided. An entry that has expired is acknowledged and counted; one that killed several replicas is dropped.
A scheduler that raises or answers nonsense is counted, and the asker is told that it failed, so that nobody
waits for it. `swap` changes the scheduler while questions come: each question is decided by the scheduler in
whose tenure it began. Other modules do the rest: Redis
(`toolgate_bus.transport.redis.answering.scheduler`), loading (`loading`), and what to answer (the author).
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio
from toolgate_bus.errors import CodecError, ToolgateError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import Deny, Failure, Hold, ToolSelecting, Verdict
from toolgate_bus.protocol.names import RESERVED_PREFIXES
from toolgate_bus.protocol.signing import OTHER_SCHEME, Keyring, names_other_scheme
from toolgate_bus.state.shared_state import SharedState
from toolgate_bus.telemetry import metrics, tracing
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import DECISION
from toolgate_bus.transport.ports import Delivery, Member, SchedulerBus
from toolgate_bus.transport.redis.tasks import is_cancel_requested

from toolgate_schedulers.author.scheduler import Scheduler, asking, wire
from toolgate_schedulers.worker.active_versions import ActiveVersions, SchedulerVersion, ruling
from toolgate_schedulers.worker.answers import AnswerWriter
from toolgate_schedulers.worker.holds import KEEPING_SHARE, ReplyTo, StoredHolds, deny_unstored
from toolgate_schedulers.worker.question_cache import QuestionCache, changes_nothing
from toolgate_schedulers.worker.replica import name_replica
from toolgate_schedulers.worker.table_publisher import TablePublisher
from toolgate_schedulers.worker.task_pool import CONCURRENCY, TaskPool, TaskSlot
from toolgate_schedulers.worker.tracing import span_of_answer, span_of_verdict, tell
from toolgate_schedulers.worker.trial import TrialTally

__all__ = ["CONCURRENCY", "Worker"]

POISON_DELIVERIES: Final = 3
"""Deliveries of an entry after which it is dropped, as it seems to kill replicas."""
DRAIN_SECONDS: Final = 5.0
"""Longest time to finish what has begun at the end, in seconds."""
LEAVE_SECONDS: Final = 0.05
"""Seconds in which questions still come in after a replica has left the roster."""
NOTICE_SECONDS: Final = 2.0
"""Longest wait until orchestrators see a new replica, in seconds. Heartbeats come every half second."""
WITHDRAWN: Final = "tool:withdrawn"
"""Event of a message that withdraws a question."""
_log = get_logger("toolgate.worker")


@dataclass(slots=True, eq=False)
class InboxEntry:
    """One delivered entry, and the number of its questions that are still open."""

    id: str
    open: int


@dataclass(slots=True, eq=False)
class Job:
    """One question on its way through a lane."""

    entry: InboxEntry | None
    """Entry of the question; None once it is held, as it may be acknowledged then."""
    orchestrator: str
    item: packing.Item
    written: float
    """Time at which the question was written, on this process's monotonic clock."""

    @property
    def asked(self) -> ReplyTo:
        """Address for the answer."""
        return ReplyTo(self.orchestrator, self.item)


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
        questions: QuestionCache | None = None,
    ) -> None:
        """Create a worker.

        `shared` is closed when the scheduler has stopped. `questions` is the cache of this process's workers.
        """
        self._name, self._bus, self._keyring = scheduler.name, bus, keyring
        self._answers = AnswerWriter(scheduler.name, keyring)
        self._namespace = namespace
        self._concurrency = concurrency
        """Maximum number of open questions; 0 once the end has begun."""
        self.replica = replica or name_replica()
        self._versions = ActiveVersions(scheduler, shared, self.replica)
        self._tables = TablePublisher(self.announce)
        self._joined = False
        self._holds = StoredHolds(shared.store, self._name, self._send_now)
        self._is_scheme_told = False
        self._read_items = packing.items if questions is None else questions.items
        self._read_question: Callable[[packing.Item], ToolSelecting]
        if questions is None:
            self._read_question = codec.QuestionReader().read
        else:
            self._read_question = questions.shared if changes_nothing(scheduler) else questions.own
        self._queue: deque[Job] = deque()
        self._lanes = TaskPool(concurrency, self._work)
        self._working: dict[tuple[bytes, int], TaskSlot] = {}
        self._errands: set[asyncio.Task[None]] = set()
        self._deciding = 0
        """Number of lanes that decide; a lane that only waits is not counted."""
        self._wanted = 0
        """Number of entries that the bus was last asked for."""
        self._is_traced = False
        self._plain_labels = (scheduler.name, codec.PLAIN_CONTINUE.action)
        self._answered = 0
        self._late = 0

    async def start(self, prepare: Callable[[], Awaitable[None]] | None = None) -> Member:
        """Start the scheduler, prepare, then join group and roster. Return its entry on the roster.

        When it returns, every orchestrator that is awake asks this replica from its next call on.
        """
        self._loop = asyncio.get_running_loop()
        await self._versions.start(self._holds, self._namespace)
        if prepare is not None:
            await prepare()
        self._bus.listen(self)
        self._bus.stats(lambda: (self._answered, self._late))
        self._joined = True
        member = self._name_start(await self._bus.start(await self._tables.publish(self._versions)))
        self._want()
        if not await self._bus.wait_until_noticed(NOTICE_SECONDS):
            _log.info("an orchestrator has not seen us yet; it will ask us once it has", name=self._name)
        return member

    async def swap(self, scheduler: Scheduler, shared: SharedState) -> Member:
        """Let another scheduler decide all questions that begin from now on. None is lost.

        Questions that have begun are finished by the scheduler that began them; it is stopped after the last
        of them. Raises ConfigError if name or shadow differ. If the new scheduler cannot start, what it
        raised is raised, and nothing changes.
        """
        await self._versions.swap(scheduler, shared)
        return await self.announce()

    async def try_beside(
        self, scheduler: Scheduler, shared: SharedState, rollout: str, share: int, tally: TrialTally
    ) -> None:
        """Ask a new scheduler beside the one in force (share 0), or let it rule on a share of the sessions.

        If it cannot start, what it raised is raised, and nothing changes.
        """
        await self._versions.try_beside(scheduler, shared, rollout, share, tally)
        if self._joined:
            await self.announce()

    def end_trial(self) -> bool:
        """End a trial; the new scheduler finishes what it began. Return whether there was one."""
        return self._versions.end_trial()

    async def announce(self) -> Member:
        """Report on the roster by what this replica rules."""
        return self._name_start(await self._bus.announce(await self._tables.publish(self._versions)))

    def _name_start(self, member: Member) -> Member:
        """Have answers name the start that is on the roster from now on."""
        self._answers.start = member.start
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
        """Leave the roster, finish what has begun (at most 5 s), give back the rest, stop."""
        await self._bus.leave()
        await anyio.sleep(LEAVE_SECONDS)  # questions asked before the orchestrators knew still come in
        self._concurrency = 0
        self._want()
        await self._lanes.close(DRAIN_SECONDS)
        if self._errands:
            await asyncio.wait(self._errands, timeout=1.0)
        self._tables.close()
        await self._versions.stop()
        await self._bus.aclose()

    async def abandon(self) -> None:
        """End as a killed process does: finish nothing and stop nothing. For tests."""
        self._concurrency = 0
        self._tables.close()
        await self._lanes.close(0)

    # ------------------------------------------------------------------ what the bus calls

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take new or taken-over entries from the bus."""
        now, queue, held = time.monotonic(), self._queue, []
        for delivery in deliveries:
            if delivery.times > POISON_DELIVERIES:
                metrics.count(metrics.POISONED, self._name)
                _log.error("dropped a question that outlived several replicas", entry=delivery.entry)
                self._bus.acknowledge(delivery.entry)
            elif delivery.event == WITHDRAWN:
                self._withdraw(delivery)
            elif items := self._items(delivery):
                entry, written = InboxEntry(delivery.entry, len(items)), now - delivery.age
                for item in items:
                    queue.append(Job(entry, delivery.orchestrator, item, written))
                held.append(delivery.entry)
            else:
                self._bus.acknowledge(delivery.entry)
        self._want()
        if held:
            self._bus.hold(held)
        if queue:
            self._lanes.wake()

    def _items(self, delivery: Delivery) -> list[packing.Item]:
        """Return the items that could be read and are genuine. Count the rest."""
        found: Sequence[packing.Item | CodecError]
        try:
            found = self._read_items(delivery.frame)
        except CodecError as error:
            found = (error,)
        items: list[packing.Item] = []
        for one in found:
            if isinstance(one, CodecError):
                metrics.count(metrics.BAD_MESSAGES, "orchestrator", one.reason)
            elif self._keyring is None or self._is_genuine(self._keyring, delivery, one):
                items.append(one)
            else:
                metrics.count(metrics.BAD_MESSAGES, "orchestrator", "forged")
                self._tell_scheme(one)
        return items

    def _is_genuine(self, ring: Keyring, delivery: Delivery, item: packing.Item) -> bool:
        check = ring.is_withdrawn if delivery.event == WITHDRAWN else ring.is_question
        return check(delivery.orchestrator, self._name, item.signature_input, item.mac, item.version)

    def _tell_scheme(self, item: packing.Item) -> None:
        """Log once that agents of another release ask: nothing else tells the operators of the fleet."""
        if not self._is_scheme_told and names_other_scheme(item.mac):
            self._is_scheme_told = True
            _log.error(
                f"an agent's questions are not answered: they are {OTHER_SCHEME}", scheduler=self._name
            )

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
                lane.withdraw()
            self._errand(self._forget(ReplyTo(delivery.orchestrator, item)))
        self._bus.acknowledge(delivery.entry)

    async def _forget(self, asked: ReplyTo) -> None:
        await self._holds.forget(asked)
        active, item = self._versions.current, asked.item
        if (withdraw := active.scheduler.withdraw) is not None:
            try:
                await withdraw(item.id.hex(), packing.PHASES[item.phase])
            except Exception as error:  # noqa: BLE001 - the author's code: counted, never ours
                self._answers.report_withdrawal(item.id.hex(), error)

    # ------------------------------------------------------------------ deciding

    def _want(self) -> None:
        """Ask for as many more entries as could be decided at once, beside those that are here."""
        self._wanted = max(0, self._concurrency - self._deciding - len(self._queue))
        self._bus.want(self._wanted)

    async def _work(self) -> bool:
        """Decide what is queued in this lane, one question after the other. Return whether more is queued."""
        queue, versions = self._queue, self._versions
        if not queue:
            return False
        self._deciding += 1
        self._is_traced = tracing.is_active()
        now = time.monotonic()
        try:
            while queue:
                job = queue.popleft()
                if queue:
                    self._lanes.wake()
                elif self._wanted != self._concurrency - self._deciding:
                    self._want()  # before deciding: it may take long, and there is room for others
                ruler: SchedulerVersion | None = None
                try:
                    call = self._read_question(job.item)
                    ruler = versions.current
                    if versions.trial is not None:
                        ruler = versions.trial.pick(call, ruler)
                    ruler.open += 1
                    if (now - job.written) * 1000 > call.ttl_ms:
                        metrics.count(metrics.EXPIRED, self._name)
                    else:
                        tool = call.tool_name
                        if not (
                            ruler.rules_on_tools and not tool.startswith(RESERVED_PREFIXES)
                        ) and not ruler.rules_on(tool):
                            # The asker does not know the scheduler's tools yet.
                            self._send(ruler, job, codec.PLAIN_CONTINUE)
                        elif call.phase not in (phases := ruler.scheduler.phases):
                            self._send(ruler, job, self._answers.answer_elsewhere(phases, job.item))
                        else:
                            if asking.get() != job.orchestrator:
                                asking.set(job.orchestrator)
                            if wire.get() != job.item.version:
                                wire.set(job.item.version)
                            if ruling.get() is not ruler:
                                ruling.set(ruler)
                            DECISION.set(call.id)
                            decide = self._decide_streaming if ruler.scheduler.streams else self._decide
                            if self._is_traced or call.trace:
                                with span_of_verdict(ruler.scheduler, call, self.replica):
                                    await decide(ruler, job, call)
                            else:
                                await decide(ruler, job, call)
                        self._answered += 1
                        if (time.monotonic() - job.written) * 1000 > call.ttl_ms:
                            self._late += 1
                except CodecError as error:
                    metrics.count(metrics.BAD_MESSAGES, "orchestrator", error.reason)
                finally:
                    if (entry := job.entry) is not None:
                        entry.open -= 1
                        if not entry.open:
                            self._bus.acknowledge(entry.id)
                    if ruler is not None:
                        ruler.open -= 1
                        if ruler.is_retiring:
                            ruler.end()
                now = time.monotonic()
        finally:
            DECISION.set(...)
            self._deciding -= 1
        self._want()
        return bool(queue)

    async def _decide(self, active: SchedulerVersion, job: Job, call: ToolSelecting) -> None:
        """Give one verdict on one question. A Hold is stored first, and answered later."""
        verdict: Verdict | Failure
        try:
            answer = await cast("Awaitable[Any]", active.scheduler.decide(call))
        except Exception as error:  # noqa: BLE001 - the author's code: whatever it raises is counted, never ours
            verdict = self._answers.report_exception(call, error)
        except asyncio.CancelledError as error:
            if is_cancel_requested():
                raise
            # The author's code cancelled something of its own, not this lane.
            verdict = self._answers.report_exception(call, error)
        else:
            if self._send_plain(active, job, answer):
                return
            verdict = self._answers.check(answer)
        if isinstance(verdict, Hold):
            verdict = await self._keep(job, call, verdict)
        self._send(active, job, verdict)

    async def _decide_streaming(self, active: SchedulerVersion, job: Job, call: ToolSelecting) -> None:
        """Ask a scheduler that holds and then answers. Its question may be withdrawn while it thinks."""
        key = (job.item.id, job.item.phase)
        if (held := self._working.get(key)) is not None:
            async with held.turn:  # its final answer goes to a stored hold alone, so it waits for this
                if not held.is_over:
                    await self._holds.keep_again(job.asked, held.until, _last_time(job, call))
            return
        lane = self._working[key] = TaskSlot(cast("asyncio.Task[None]", asyncio.current_task()))
        until: float | None = None  # when its hold runs out, once it holds
        answers = cast("AsyncGenerator[Any, None]", active.scheduler.decide(call))
        try:
            async with aclosing(answers):
                async for answer in answers:
                    verdict = self._answers.check(answer)
                    if isinstance(verdict, Hold):
                        verdict = await self._keep(job, call, verdict, until)
                    if not isinstance(verdict, Hold):
                        await self._conclude(active, job, verdict, lane)
                        break
                    if (entry := job.entry) is not None:
                        job.entry = None  # the hold is stored: another replica may take it up from there
                        entry.open -= 1
                        if not entry.open:
                            self._bus.acknowledge(entry.id)
                    if until is None:
                        self._deciding -= 1  # it only waits: another question may be decided meanwhile
                        self._lanes.release_slot()
                        self._want()
                    until = lane.until = time.monotonic() + verdict.seconds
                    self._send(active, job, verdict)
        except asyncio.CancelledError as error:
            if lane.withdrawn:
                lane.task.uncancel()  # nobody waits for this question any longer; the lane goes on
            elif is_cancel_requested():
                raise
            else:
                await self._conclude(active, job, self._answers.report_exception(call, error), lane)
        except Exception as error:  # noqa: BLE001 - the author's code, as above
            await self._conclude(active, job, self._answers.report_exception(call, error), lane)
        finally:
            del self._working[key]
            if until is not None:
                self._deciding += 1
                self._lanes.take_slot()

    async def _keep(
        self, job: Job, call: ToolSelecting, hold: Hold, until: float | None = None
    ) -> Hold | Deny:
        """Return the hold once it is stored, or a denial if it is not stored in time."""
        try:
            await self._holds.keep(job.asked, hold, until or _last_time(job, call))
        except ToolgateError as error:
            metrics.count(metrics.SCHEDULER_ERRORS, self._name, "store")
            _log.error("a hold could not be kept: denied", scheduler=self._name, error=str(error))
            if until is None:
                self._errand(self._holds.forget(job.asked))  # perhaps it was stored after all
            return deny_unstored(self._name)
        metrics.count(metrics.HOLDS, self._name)
        return hold

    async def _conclude(
        self, active: SchedulerVersion, job: Job, verdict: Verdict | Failure, lane: TaskSlot
    ) -> None:
        """Give the last answer; that of a hold once, and only while somebody waits for it."""
        async with lane.turn:
            lane.is_over = True
            if lane.until is None:
                self._send(active, job, verdict)
                return
            try:
                await self._holds.finish(job.asked, verdict, lane.until)
            except ToolgateError as error:
                metrics.count(metrics.SCHEDULER_ERRORS, self._name, "store")
                _log.error("a hold could not be answered", scheduler=self._name, error=str(error))

    def _errand(self, work: Coroutine[Any, Any, None]) -> None:
        errand = self._loop.create_task(work)
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)

    def _send_plain(self, active: SchedulerVersion, job: Job, answer: Any) -> bool:
        """Send a plain continue, as most answers are, by a short way. Return False for any other answer."""
        if self._keyring is not None or self._is_traced or not codec.is_plain(answer):
            return False
        question = job.item
        body = codec.plain_body(active.revision if question.version > packing.VERSION else "")
        metrics.WORKER_ANSWERS.add(self._plain_labels)
        self._bus.answer(
            job.orchestrator,
            packing.pack_item((question.version, question.id, question.phase, body, None)),
        )
        return True

    def _send(self, active: SchedulerVersion, job: Job, verdict: Verdict | Failure) -> None:
        if self._send_plain(active, job, verdict):
            return
        if active is not self._versions.current and verdict.priority is None:
            # the roster tells the priority of the one in force
            verdict = verdict.model_copy(update={"priority": active.scheduler.priority})
        tell(verdict, active.scheduler.priority)
        metrics.count(metrics.WORKER_ANSWERS, self._name, verdict.action)
        self._bus.answer(job.orchestrator, self._answers.item(job.asked, verdict, active.revision))

    async def _send_now(self, asked: ReplyTo, verdict: Verdict | Failure) -> None:
        current = self._versions.current
        active = ruling.get() or current
        with span_of_answer(current.scheduler, asked, self.replica):
            tell(verdict, active.scheduler.priority)
            item = self._answers.item(asked, verdict, active.revision)
            await self._bus.answer_now(asked.orchestrator, item)
        metrics.count(metrics.WORKER_ANSWERS, self._name, verdict.action)


def _last_time(job: Job, call: ToolSelecting) -> float:
    """Return the time (`time.monotonic`) by which a hold must be stored for an answer in time."""
    return job.written + call.ttl_ms / 1000 * KEEPING_SHARE
