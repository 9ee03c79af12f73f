"""Rule on calls by the calls before them: read the facts, make calls wait, and answer those that waited.

Each replica reads all facts, from those of the last hour on, so all know the same. The call that another
waits for has mostly ended a moment later. Until then the question is left open and nothing is stored. After
that the call is held. The replica that was asked answers it, or any other if that one is gone.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolgate_bus.errors import TransportError
from toolgate_bus.facts.service import FactsService
from toolgate_bus.protocol.events import Deny, Hold, Phase, ToolSelecting, Verdict
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import rest_after_search
from toolgate_bus.transport.redis.tasks import keep, repeat

from toolgate_schedulers.author.scheduler import SchedulerContext, asking
from toolgate_schedulers.shipped.policy.claims import QueuePositions
from toolgate_schedulers.shipped.policy.needs import MAX_WINDOW_S
from toolgate_schedulers.shipped.policy.order import CallHistory, Scope
from toolgate_schedulers.shipped.policy.peers import PeerNotes
from toolgate_schedulers.shipped.policy.progress import ReadProgress
from toolgate_schedulers.shipped.policy.seen_results import SeenResults
from toolgate_schedulers.shipped.policy.verdicts import GRACE_S, SLACK_S, Past

SOON_S: Final = 0.05
"""Seconds a call waits before it is put on hold."""
SOON_SHARE: Final = 0.1
"""Largest share of the call's patience that it waits before it is put on hold."""
MAX_SOON: Final = 32
"""Maximum number of calls that wait without a hold, half of what a process decides at once; others are held
at once."""
TELL_S: Final = 0.02
"""Seconds after which peers are told of an undecided question; facts tell of decided ones."""
SETTLE_S: Final = 0.025
"""Seconds after a question until all earlier events are written: facts take up to 15 ms."""
MEET_S: Final = 0.4
"""Longest wait, in seconds, for the facts of an orchestrator that is new here."""
BUSY_S: Final = 5.0
BUSY_WAIT_MS: Final = 10
"""Longest read, in milliseconds, if a question came in the last `BUSY_S`: no read covers an orchestrator that
became known after its start."""
GLANCE_S: Final = 0.002
"""Seconds between two separate looks at the facts of a new orchestrator, until a read covers it."""
REST_S: Final = 0.001
"""Shortest time, in seconds, for a read that brings nothing."""
TICK_S: Final = 1.0
LINGER_S: Final = 15.0
"""Seconds without a heartbeat after which an orchestrator is dead, and nobody waits for its calls."""
PAUSES_S: Final = (0.003, 0.01, 0.05, 0.2, 1.0)
"""Seconds between tries to answer a hold that is not stored yet."""
MAX_WAITING: Final = 10_000
_NOBODY_WAITS: Final = Deny(reason="Nobody waits for this call any longer.")
_log = get_logger("toolgate.policy")

Rule = Callable[[ToolSelecting, Past], Verdict]
Key = tuple[str, Phase, bool]
"""Decision, phase, and whether the call is asked about again."""


@dataclass(slots=True)
class _WaitingCall:
    call: ToolSelecting
    since: float
    scopes: tuple[Scope, ...]
    has_asked: bool = False
    """True if peers were asked about calls that it may wait for."""
    timer: asyncio.TimerHandle | None = None
    soon: asyncio.Future[Verdict] | None = None
    """Future of its verdict, until a first answer is given."""
    is_held: bool = False


class OrderKeeper(FactsService):
    """Keeper of one replica."""

    def __init__(
        self,
        context: SchedulerContext,
        history: CallHistory,
        rule: Rule,
        longest_wait_s: float,
        notes: PeerNotes,
        places: QueuePositions,
        results: SeenResults,
    ) -> None:
        super().__init__(context.shared.facts, _log, gives_way=False)
        self._context, self._places, self._results = context, places, results
        self._history, self._rule, self._longest, self._notes = history, rule, longest_wait_s, notes
        self._ahead = 0.0
        """Seconds that the server's clock is ahead of this process's."""
        self._new: dict[str, asyncio.Event] = {}
        """Orchestrators whose facts are not read yet."""
        self._joined: set[str] = set()
        """New orchestrators that the present read covers."""
        self._asked = float("-inf")
        """Time of the last question."""
        self._missed: dict[str, float] = {}
        self._waiting: dict[Key, _WaitingCall] = {}
        self._soon = 0
        """Number of waiting calls that have no answer yet, not even a hold."""
        self._by_scope: dict[Scope, set[Key]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = asyncio.Event()
        self._progress = ReadProgress(self._facts, self._take)

    async def start(self) -> None:
        """Begin to read; return once all earlier facts are known."""
        self._begin(keep(self.run))
        await self._ready.wait()
        self._begin(keep(repeat, self._forget_once, TICK_S))
        if self._longest:
            self._begin(keep(self._mend_often))
        if self._places.has_rules:
            self._begin(keep(repeat, lambda: self._places.renew(self._now()), TICK_S))

    async def stop(self) -> None:
        """Stop; other replicas answer the waiting calls, or this one after its next start."""
        for waiting in list(self._waiting):
            self._drop(waiting)
        self._progress.stop()
        for task in (tasks := list(self._tasks)):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def decide(self, call: ToolSelecting, is_first_look_enough: bool) -> Verdict:
        """Rule on a call by the calls before it, once all of them are known."""
        self.note(call)
        if self._results.concerns(call):
            await self._results.fetch(call, self._now())
        verdict = self._judge(call, 0.0) if is_first_look_enough else None
        if verdict is None or isinstance(verdict, Deny):
            claims = asyncio.ensure_future(self._places.claim(call, asking.get(), self._now()))
            is_known = await self._settle(asking.get())
            is_counted = await claims
            if self._results.concerns(call):
                await self._results.fetch(call, self._now())
            verdict = self._judge(call, 0.0)
            lets_pass = not isinstance(verdict, Deny) and not (is_counted and isinstance(verdict, Hold))
            if not (is_known and is_counted) and lets_pass:
                verdict = Deny(reason="The calls before this one are not known yet. Try again in a moment.")
        if isinstance(verdict, Hold):
            if len(self._waiting) >= MAX_WAITING:
                verdict = Deny(reason="Too many calls wait for other calls at present. Try again later.")
            else:
                return await self._wait_and_see(call, self._wait(call, verdict))
        self._end(call, verdict)
        return verdict

    def note(self, call: ToolSelecting) -> None:
        """Note that a call is being decided, as others may depend on it."""
        orchestrator, self._asked = asking.get(), time.monotonic()
        if self._facts.expect(orchestrator):
            self._new[orchestrator] = asyncio.Event()
            self._begin(self._meet(orchestrator))
        if self._history.note_question(call, orchestrator, self._now()) and self._notes.concerns(call):
            self._begin(self._tell_peers(call, orchestrator))

    async def note_result(self, call: ToolSelecting) -> None:
        """Note what a call gave, before the agent gets it."""
        await self._results.note(call)

    def note_denied(self, call: ToolSelecting) -> None:
        """Note that this policy denies the call."""
        self._look_again(self._history.deny(call.id))
        if self._places.has_rules:
            self._begin(self._places.give_back((call.id,)))

    def withdraw(self, decision: str, phase: Phase) -> None:
        """Drop a call that nobody waits for."""
        for again in (False, True):
            self._drop((decision, phase, again))

    async def _settle(self, orchestrator: str) -> bool:
        """Wait until all facts from before the question are read; False if that takes too long."""
        if (known := self._new.get(orchestrator)) is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(known.wait(), MEET_S)
        await asyncio.sleep(SETTLE_S)
        return await self._progress.catch_up()

    # ------------------------------------------------------------------ ruling

    def _now(self) -> float:
        return time.monotonic() + self._ahead

    def _judge(self, call: ToolSelecting, waited: float) -> Verdict:
        return self._rule(call, Past(self._history, self._now(), waited))

    def _end(self, call: ToolSelecting, verdict: Verdict) -> None:
        if isinstance(verdict, Deny):
            self.note_denied(call)

    async def _wait_and_see(self, call: ToolSelecting, hold: Hold) -> Verdict:
        """Return the verdict if it comes soon, else the hold."""
        waiting = self._waiting[call.id, call.phase, call.again]
        if waiting.is_held or (waiting.soon is None and self._soon >= MAX_SOON):
            waiting.is_held = True
            return hold
        if waiting.soon is None:
            self._soon += 1
            loop = asyncio.get_running_loop()
            waiting.soon = loop.create_future()
            seconds = min(SOON_S, call.ttl_ms / 1000 * SOON_SHARE)
            loop.call_later(seconds, self._say, waiting, hold)
        return await asyncio.shield(waiting.soon)

    def _say(self, waiting: _WaitingCall, verdict: Verdict) -> bool:
        """Give the first answer on a call; False if the call is held already."""
        soon, waiting.soon = waiting.soon, None
        if soon is None:
            return False
        self._soon -= 1
        waiting.is_held = isinstance(verdict, Hold)
        soon.set_result(verdict)
        return True

    def _wait(self, call: ToolSelecting, hold: Hold) -> Hold:
        key: Key = (call.id, call.phase, call.again)
        if key not in self._waiting:
            self._waiting[key] = _WaitingCall(call, time.monotonic(), self._history.scopes_of(call))
            for scope in self._waiting[key].scopes:
                self._by_scope.setdefault(scope, set()).add(key)
        self._set_timer(key, hold)
        return Hold(seconds=self._longest + SLACK_S, reason=hold.reason)

    def _set_timer(self, key: Key, hold: Hold) -> None:
        waiting = self._waiting[key]
        waited = time.monotonic() - waiting.since
        hears_more = bool(waiting.call.parallel_group_id) and waited < GRACE_S
        until = GRACE_S if hears_more else hold.seconds - SLACK_S
        if waiting.timer is not None:
            waiting.timer.cancel()
        late = max(0.0, min(until, hold.seconds - SLACK_S) - waited)
        waiting.timer = asyncio.get_running_loop().call_later(late, self._look_at, key)

    def _look_again(self, scopes: Iterable[Scope]) -> None:
        """Rule anew on the calls that wait for something in these scopes."""
        if self._waiting:
            for key in {key for scope in scopes for key in self._by_scope.get(scope, ())}:
                if self._results.concerns(self._waiting[key].call):
                    self._begin(self._fetch_and_look(key))
                else:
                    self._look_at(key)

    async def _fetch_and_look(self, key: Key) -> None:
        """Rule anew on a waiting call, once it is known what the calls before it gave."""
        if (waiting := self._waiting.get(key)) is not None:
            await self._results.fetch(waiting.call, self._now())
            self._look_at(key)

    def _look_at(self, key: Key) -> None:
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        verdict = self._judge(waiting.call, time.monotonic() - waiting.since)
        if isinstance(verdict, Hold):
            self._set_timer(key, verdict)
            return
        if isinstance(verdict, Deny) and waiting.call.parallel_group_id and not waiting.has_asked:
            waiting.has_asked = True
            self._begin(self._ask_peers(key, waiting.call))
            return
        if not self._say(waiting, verdict):
            self._begin(self._answer(key, verdict))
        self._drop(key)
        self._end(waiting.call, verdict)

    def _drop(self, key: Key) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            return
        if waiting.timer is not None:
            waiting.timer.cancel()
        self._say(waiting, _NOBODY_WAITS)
        for scope in waiting.scopes:
            keys = self._by_scope.get(scope, set())
            keys.discard(key)
            if not keys:
                self._by_scope.pop(scope, None)

    async def _answer(self, key: Key, verdict: Verdict) -> None:
        """Answer a waiting call; if that fails, the repeated look at held calls answers it later."""
        for pause in (*PAUSES_S, None):
            try:
                if await self._context.holds.answer(key[0], verdict, key[1], again=key[2]):
                    return
            except TransportError as error:
                _log.info("one who waits could not be told yet", decision=key[0], error=str(error))
            if pause is not None:
                await asyncio.sleep(pause)

    async def _tell_peers(self, call: ToolSelecting, orchestrator: str) -> None:
        """Tell peers of a question that is decided late, as their calls may depend on it."""
        await asyncio.sleep(TELL_S)
        if self._history.is_asked(call.id):
            with contextlib.suppress(TransportError):  # then a peer may deny a call that could have waited
                await self._notes.tell(call, orchestrator)

    async def _ask_peers(self, key: Key, call: ToolSelecting) -> None:
        """Ask, before a call is denied for lack of another, whether a peer is deciding that other call."""
        try:
            for other, orchestrator in await self._notes.find(call):
                self._history.note_question(other, orchestrator, self._now())
        except TransportError as error:
            _log.info("peers could not be asked what they decide", error=str(error))
        await self._progress.catch_up()
        self._look_at(key)

    # ------------------------------------------------------------------ knowing

    async def _meet(self, orchestrator: str) -> None:
        """Read the facts of a new orchestrator, until a read that covers it is over."""
        with contextlib.suppress(TransportError):
            while (met := self._new.get(orchestrator)) is not None and orchestrator not in self._joined:
                self._take(await self._facts.glance(orchestrator))
                met.set()
                await asyncio.sleep(GLANCE_S)

    async def step(self) -> bool:
        """Read the stored facts once, then the new ones."""
        if not self._ready.is_set():
            await self._set_clock()
            since = int((self._now() - MAX_WINDOW_S) * 1000)
            async for fact in self._facts.read_stored(max(0, since)):
                self._history.read(fact)
            self._ready.set()
        new = self._joined = set(self._new)
        is_busy = time.monotonic() - self._asked < BUSY_S
        self._progress.is_long = not is_busy
        began = time.monotonic()
        facts = await self._facts.next(BUSY_WAIT_MS if is_busy else None)
        self._progress.is_long = False
        waited = time.monotonic() - began
        self._take(facts)
        # A read that brought nothing in its whole time shows that nothing was written meanwhile.
        self._progress.note(len(facts), began if facts or not is_busy else began + BUSY_WAIT_MS / 1000)
        if self._facts.is_whole:
            for name in new:
                self._new.pop(name).set()
        await asyncio.sleep(0 if facts else max(0.0, REST_S - waited))
        return True

    def _take(self, facts: Iterable[Mapping[str, Any]]) -> None:
        touched = {scope for fact in facts for scope in self._history.read(fact)}
        if touched:
            self._look_again(touched)

    async def _set_clock(self) -> None:
        self._ahead = await self._facts.now_ms() / 1000 - time.monotonic()

    async def _forget_once(self) -> None:
        """Set the clock, and forget calls that are over or whose orchestrator is gone."""
        await self._set_clock()
        alive, now = await self._facts.alive(), time.monotonic()
        self._missed = {
            name: self._missed.get(name, now) for name in self._history.orchestrators if name not in alive
        }
        dead = {name for name, since in self._missed.items() if now - since >= LINGER_S}
        self._look_again(self._history.forget_old(dead, self._now()))

    async def _mend_often(self) -> None:
        """Answer the held calls of replicas that are gone.

        Their knowledge of undecided calls is lost, so a denial is given only when the wait is over.
        """
        rest = TICK_S
        while True:
            await asyncio.sleep(rest)
            began, rest = time.monotonic(), TICK_S
            try:
                for held in await self._context.holds.open():
                    key: Key = (held.decision_id, held.question.phase, held.question.again)
                    waited = max(0.0, self._longest + SLACK_S - held.seconds_left)
                    if key in self._waiting or waited < TICK_S:
                        continue
                    if self._results.concerns(held.question):
                        await self._results.fetch(held.question, self._now())
                    verdict = self._judge(held.question, waited)
                    is_over = waited >= self._longest + TICK_S
                    if not isinstance(verdict, Hold) and (is_over or not isinstance(verdict, Deny)):
                        await self._context.holds.answer(key[0], verdict, key[1], again=key[2])
                rest = max(TICK_S, rest_after_search(time.monotonic() - began))
            except TransportError as error:
                _log.info("those who wait cannot be looked after", error=str(error))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
