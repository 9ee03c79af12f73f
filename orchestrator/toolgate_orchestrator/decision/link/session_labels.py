"""Labels that verdicts gave to sessions, and what a question bears of them.

A label is kept for the session itself, for every session above it that is known, and for the root of its
tree. A question bears the labels of the same sessions. So what one agent of a tree is given, all of them
bear: an agent cannot hand its work to another to be rid of it. Labels only ever grow; an operator alone takes
one away.

Who is above a session is stored, too, before its first question is ruled on: a process that knows only its
parent reads there who is above that one. So a label reaches the root though the process between is gone.

One task of this process writes what is new as soon as a verdict says it, and tries again until the server has
it. It reads only while a scheduler reads labels: before the first question of a session, and with each beat
for sessions that ask. What could not be read is unknown (None), never empty. No decision runs a command.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Final

from toolgate_bus.errors import ToolgateError
from toolgate_bus.protocol.agents import name_session
from toolgate_bus.protocol.events import ToolQuestion
from toolgate_bus.ruling.conditions.matching import AnyQuestion
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import LabelReading, LabelStore
from toolgate_bus.transport.session_labels import (
    MAX_ABOVE,
    REQUIRED,
    LabelMark,
    LabelMarks,
    give_labels,
    join_marks,
    list_fields,
    show_labels,
    show_required,
    split_field,
)

from toolgate_orchestrator.decision.faults import call_guarded, note_fault
from toolgate_orchestrator.decision.link.ancestry import Ancestry

MAX_SESSIONS: Final = 16_384
"""Most sessions whose labels are remembered, as many as those whose parents are."""
MAX_KIN: Final = 16
"""Most sessions whose labels one question bears: its own, its root, and the nearest above it."""
MAX_ORDERS: Final = 64
"""Most operators' notices that wait until they are known here."""
MAX_READ: Final = 256
"""Most sessions that one beat reads; if there are more, the next beat reads the others."""
BEAT_S: Final = 1.0
"""Seconds between two reads of sessions that ask, and between two tries of a failed write."""
AGAIN_S: Final = 0.05
"""Seconds until a failed read is tried again while a question waits for it."""
FRESH_S: Final = 5.0
"""Age in seconds from which labels that were read count as unknown: longer than a few beats may fail."""
LIVE_S: Final = 30.0
"""Seconds after its last question for which a session is read with each beat."""
GRACE_S: Final = 5.0
"""Seconds after the server came back empty for which sessions that are new here have unknown labels: other
processes write theirs again meanwhile."""
REFRESH_S: Final = 3600.0
"""Seconds after which the labels of sessions that ask are written again, so that they do not expire."""
LEAVE_S: Final = 1.0
"""Longest wait for a last write when the process leaves the bus, in seconds."""
AGENT_UNLABEL: Final = "agent:unlabel"
"""Event: an operator took a label from a session."""
_NEVER: Final = float("-inf")
_log = get_logger("toolgate.gate")
Labels = dict[str, list[str]] | None
_Shown = tuple[Labels, dict[str, list[str]]]
"""Labels that a question bears, and those of them that required schedulers gave."""
Kin = tuple[str, ...]
"""Sessions whose labels a question bears: its own first."""


@dataclass(slots=True)
class _LabelledSession:
    """Labels of one session, as far as this process knows."""

    root: str
    marks: LabelMarks = field(default_factory=dict)
    given_at: dict[str, float] = field(default_factory=dict)
    """Time of the last verdict that gave a label, by field."""
    kin: Kin = ()
    """Sessions with which it shares labels, as its last question told."""
    noted: Kin = ()
    """Sessions above it that the server has, or is told next."""
    noted_at: float = _NEVER
    read_at: float = _NEVER
    read_after: float = _NEVER
    """Time before which what was read does not count: a call that handed work to another agent has ended."""
    unsure_until: float = _NEVER
    """Time until which other processes may still write its labels again, after the server lost everything."""
    asked_at: float = _NEVER
    written_at: float = _NEVER
    shown: tuple[int, Kin, _Shown] | None = None
    """Version, kin and labels of its last question."""


class SessionLabels:
    """Labels of the sessions that are ruled on through one bus."""

    def __init__(
        self,
        store: LabelStore,
        ancestry: Ancestry,
        clock: Callable[[], float] = time.monotonic,
        most: int = MAX_SESSIONS,
    ) -> None:
        self._store, self._ancestry, self._clock, self._most = store, ancestry, clock, most
        self.note: Callable[[str, Mapping[str, Any]], None] | None = None
        """Records a fact."""
        self.has_readers = False
        """True if a scheduler on the roster reads labels."""
        self.is_used = False
        """True if a scheduler reads labels, or any were given: a plain value, as every decision looks."""
        self._known: dict[str, _LabelledSession] = {}
        """Sessions, the one that asked last at the end."""
        self._is_lossy = False
        """True once labels were forgotten that the server may not have: what is not known here is unknown."""
        self._version = 0
        self._unwritten: dict[str, set[str]] = {}
        """Fields that the server may not have, by session."""
        self._above: dict[str, Kin] = {}
        """Sessions above those that are known, as the server has them."""
        self._unnoted: dict[str, Kin] = {}
        """Sessions above others, nearest first, that the server may not have."""
        self._untried: set[str] = set()
        """Sessions with labels that were given a moment ago, and that nobody has tried to write."""
        self._wanted: dict[str, None] = {}
        """Sessions to read now."""
        self._removed: list[tuple[str, str, LabelMark]] = []
        """Labels that operators took away, still to be recorded."""
        self._orders: list[tuple[set[str], Callable[[], None]]] = []
        self._token = b""
        self._unsure_until = _NEVER
        self._delegations: dict[str, Kin] = {}
        """Calls that handed work to another agent, by decision, with sessions that may get labels by them."""
        self._wake = asyncio.Event()
        self._round = asyncio.Event()
        """Set at the end of each round of reads and writes, and then replaced."""
        self._task: asyncio.Task[None] | None = None
        self._back = asyncio.Event()
        """Set when the bus is back: a failed round is tried again at once."""
        self._failures = 0
        """Number of rounds that failed in a row."""
        self._beat_at = clock()
        """Time of the last beat."""
        self._is_due = False
        """True if the next round looks whether the server has forgotten everything."""
        self._is_closed = False

    # ------------------------------------------------------------------ what a gate asks

    async def find(self, question: ToolQuestion, patience: float, *, reads: bool = False) -> Labels:
        """Return the labels that a question bears; None if they are unknown.

        The first question of a session waits until its labels are read, `patience` seconds at most. `reads`
        is True if somebody may read them who is not on the roster.
        """
        kin = self._list_kin(question)
        if not (self.has_readers or reads):
            return self._show(kin) if kin else {}
        if not kin:  # it belongs to no session, so nobody can say what it bears
            return None if self.has_readers else {}
        now = self._clock()
        until = now + patience
        self._touch(kin, question)
        while (missing := self._list_stale(kin, now)) or (kin[0] in self._unnoted and not self._failures):
            self._wanted.update(dict.fromkeys(missing))
            if not await self._wait(until):
                return None
            if (more := self._list_kin(question)) != kin:
                kin = more
                self._touch(kin, question)
        return None if self._is_unsure(kin) else self._show(kin)

    def show(self, question: ToolQuestion) -> Labels:
        """Return what a question bears by what is known now, without a wait."""
        kin = self._list_kin(question)
        if self.has_readers and (not kin or self._list_stale(kin, self._clock()) or self._is_unsure(kin)):
            return None
        return self._show(kin) if kin else {}

    def put(self, question: ToolQuestion, labels: Labels) -> ToolQuestion:
        """Return a question with these labels, which `find` or `show` gave, and whose required ones."""
        required = self._look(self._list_kin(question))[1] if labels else {}
        return question._replace(session_labels=labels, required_labels=required)

    def put_given(self, read: AnyQuestion, question: ToolQuestion) -> AnyQuestion:
        """Return what is read of a question, with no labels but those that it surely bears, however old."""
        kin = self._list_kin(question)
        given = (self._show(kin) if kin else None) or {}
        if isinstance(read, ToolQuestion):
            return read._replace(session_labels=given)
        return read.model_copy(update={"session_labels": given})

    def learn(
        self, question: ToolQuestion, labels: Mapping[str, Sequence[str]], *, by_required: bool = False
    ) -> None:
        """Take the labels that a verdict on this question gives, perhaps that of a required scheduler."""
        kin, now = self._list_kin(question), self._clock()
        if not kin or not labels:
            return
        self._touch(kin, question)
        sessions = [(one, self._known[one]) for one in kin]
        new = give_labels(join_marks(one.marks for _, one in sessions), labels, by_required=by_required)
        for name, session in sessions:
            if new:
                self._put(name, session, new)
                if not self._failures:
                    self._untried.add(name)
            fields = list_fields(labels, by_required=by_required)
            session.given_at |= {one: now for one in fields if one in session.marks}
        self._spread(kin)
        if self._unwritten or self._unnoted:
            self._start()

    async def settle(self, question: ToolQuestion, patience: float) -> None:
        """Wait until what was just given is stored, or could not be, `patience` seconds at most.

        Whoever sees what a call gave may start an agent in another process: that one must find the labels.
        """
        kin, until = self._list_kin(question), self._clock() + patience
        while not self._untried.isdisjoint(kin):
            if not await self._wait(until):
                return

    @property
    def is_settled(self) -> bool:
        """True if nothing waits to be written for the first time."""
        return not self._untried

    def begin_delegation(self, decision: str, question: ToolQuestion) -> None:
        """Note that a call hands work to another agent, which may bring labels with its result."""
        if self.has_readers:
            if len(self._delegations) >= MAX_SESSIONS:
                del self._delegations[next(iter(self._delegations))]
            self._delegations[decision] = self._list_kin(question)
            self._start()

    def end_delegation(self, decision: Any) -> None:
        """Have the labels read anew with the next question, if this call handed work to another agent."""
        for name in self._delegations.pop(decision, ()) if self._delegations else ():
            if (session := self._known.get(name)) is not None:
                session.read_after = self._clock()

    # ------------------------------------------------------------------ what the bus tells

    def follow(self, *, has_readers: bool) -> None:
        """Take whether a scheduler reads labels now."""
        if has_readers != self.has_readers:
            self.has_readers = has_readers
            self.is_used = has_readers or bool(self._known)
            if has_readers:
                self._write_again()
                self._start()

    def on_connection(self) -> None:
        """Write again what is known, now that the server is back: it may have forgotten everything."""
        if self._known:
            self._write_again()
            self._back.set()
            self._start()

    def look_again(self, sessions: Sequence[str], done: Callable[[], None]) -> None:
        """Read sessions from which an operator took labels; call `done` once that is known here."""
        known = {one for one in sessions if one in self._known}
        if not known:
            done()
            return
        if len(self._orders) < MAX_ORDERS:
            self._orders.append((known, done))
        self._wanted.update(dict.fromkeys(known))
        self._start()

    async def aclose(self) -> None:
        """Write what the server does not have, and carry up what other processes gave; then stop."""
        if self.has_readers and not self._failures:
            trees = [one.kin for one in self._known.values() if len(one.kin) > 1]
            self._wanted.update(dict.fromkeys([name for kin in trees for name in kin][-MAX_READ:]))
        until = self._clock() + LEAVE_S
        while self._wanted or self._unwritten or self._unnoted:
            if not await self._wait(until) or self._failures:
                break
        self.close()

    def close(self) -> None:
        """Stop reading and writing."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()

    # ------------------------------------------------------------------ what is known

    def _list_kin(self, question: ToolQuestion) -> Kin:
        """Return the sessions whose labels a question bears; none if it belongs to no session."""
        session, root, parent = question.session, question.root_session, question.parent
        told = self._ancestry.told
        if (not root or root == session) and not parent and not told:
            return self._climb((name_session(session),)) if session else ()
        above = self._ancestry.list_above(session, parent) if told else [name_session(parent or "")]
        names = dict.fromkeys(map(name_session, (session, root, *above[: MAX_KIN - 2])))
        names.pop("", None)  # nobody's
        return self._climb(tuple(names))

    def _climb(self, kin: Kin) -> Kin:
        """Add the sessions above these that the server named."""
        if self._above.keys().isdisjoint(kin):
            return kin
        names = [*kin]
        for name in names:  # which grows
            names += [one for one in self._above.get(name, ()) if one not in names][: MAX_KIN - len(names)]
        return tuple(names)

    def _show(self, kin: Kin) -> Labels:
        return self._look(kin)[0]

    def _look(self, kin: Kin) -> _Shown:
        session = self._known.get(kin[0])
        shown = session.shown if session is not None else None
        if shown is not None and shown[:2] == (self._version, kin):
            return shown[2]
        self._spread(kin)
        labels = self._compute(kin)
        if session is not None:
            session.shown = self._version, kin, labels
        return labels

    def _compute(self, kin: Kin) -> _Shown:
        sessions = [self._known.get(one) for one in kin]
        if self._is_lossy and None in sessions:
            return None, {}
        marks = join_marks(one.marks for one in sessions if one is not None and one.marks)
        return (show_labels(marks), show_required(marks)) if marks else ({}, {})

    def _spread(self, kin: Kin) -> None:
        """Give all of these sessions the labels that one of them bears."""
        sessions = [(one, self._known[one]) for one in kin if one in self._known]
        if len(sessions) < 2 or not any(one.marks for _, one in sessions):
            return
        joined = join_marks(one.marks for _, one in sessions)
        for name, session in sessions:
            if session.marks != joined:
                self._put(name, session, joined)
        if self._unwritten:
            self._start()

    def _put(self, name: str, session: _LabelledSession, marks: LabelMarks) -> None:
        """Give a session these marks where they are higher; the server may not have them."""
        higher = {one for one, mark in marks.items() if _count(session.marks, one) < mark.times}
        if higher:
            session.marks = join_marks((session.marks, marks))
            self._unwritten.setdefault(name, set()).update(higher)
            self._version += 1

    def _touch(self, kin: Kin, question: ToolQuestion) -> None:
        """Note that these sessions ask. Those that asked longest ago make room for new ones."""
        now, root = self._clock(), name_session(question.root_session or question.session)
        for name in kin:
            session = self._known.pop(name, None) or _LabelledSession(root)
            self._known[name] = session
            session.asked_at = now
        session = self._known[kin[0]]
        session.kin = kin
        if len(kin) > 1 and len(session.noted) < MAX_ABOVE:
            noted = tuple(dict.fromkeys((*kin[1:], *session.noted)))
            if len(noted) > len(session.noted):
                self._unnoted[kin[0]] = session.noted = noted[:MAX_ABOVE]
        self.is_used = True
        while len(self._known) > max(self._most, MAX_KIN):
            self._forget(next(iter(self._known)))

    def _forget(self, name: str) -> None:
        """Forget a session. It is read again when it asks, unless the server may not have all of it."""
        del self._known[name]
        self._untried.discard(name)
        self._above.pop(name, None)
        self._unnoted.pop(name, None)
        self._version += 1
        if self._unwritten.pop(name, None):
            self._is_lossy = True

    def _is_unsure(self, kin: Kin) -> bool:
        now = self._clock()
        return any(self._known[one].unsure_until > now for one in kin if one in self._known)

    def _list_stale(self, kin: Kin, now: float) -> list[str]:
        """Return the sessions whose labels are not known well enough for a question of this moment."""
        since = now - (FRESH_S if self.has_readers else BEAT_S)  # (without readers on the roster, no beats)
        sessions = [(one, self._known.get(one)) for one in kin]
        return [
            name
            for name, one in sessions
            if one is None or one.read_at < since or one.read_at < one.read_after
        ]

    def _write_again(self) -> None:
        for name, session in self._known.items():
            if session.marks:
                self._unwritten.setdefault(name, set()).update(session.marks)
            if session.noted:
                self._unnoted[name] = session.noted

    # ------------------------------------------------------------------ the task that reads and writes

    async def _wait(self, until: float) -> bool:
        """Wait for a round to end. Return False once the time is over."""
        left = until - self._clock()
        if left <= 0 or self._is_closed:
            return False
        self._start()
        try:
            await asyncio.wait_for(self._round.wait(), left)
        except TimeoutError:
            return False
        return True

    def _start(self) -> None:
        self._wake.set()
        if (self._task is None or self._task.done()) and not self._is_closed:
            # In a context of its own: it serves all sessions.
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run(), name="toolgate-labels", context=Context())

    async def _run(self) -> None:
        """Read and write until nothing needs it any more."""
        while True:
            self._wake.clear()
            self._back.clear()
            try:
                await self._do_round()
                self._failures = 0
            except ToolgateError as error:
                if self._unwritten:
                    metrics.count(metrics.LABEL_WRITES_FAILED)
                self._note_failure()
                if self._failures == 1:
                    _log.warning("labels of sessions cannot be read or written", error=str(error))
            except Exception as error:  # noqa: BLE001 - a fault of ours; what is not known is unknown
                self._note_failure()
                note_fault("labels", error)
            ended, self._round = self._round, asyncio.Event()
            ended.set()
            if self._failures:
                with contextlib.suppress(TimeoutError):
                    pause = min(BEAT_S, AGAIN_S * 2 ** min(self._failures, 8))
                    await asyncio.wait_for(self._back.wait(), pause)
            elif pause := self._find_pause():
                # Until the beat is due, and no longer: sessions may ask for the first time all the while.
                try:
                    await asyncio.wait_for(self._wake.wait(), self._beat_at + pause - self._clock())
                except TimeoutError:
                    self._plan_beat()
            elif not self._wake.is_set():
                self._task = None
                return

    def _note_failure(self) -> None:
        self._failures += 1
        self._untried.clear()  # nobody waits longer for what cannot be written now

    async def _do_round(self) -> None:
        # What a session bore before is not known here: an operator may have taken away what is given now.
        unread = [one for one in self._unwritten if self._known[one].read_at == _NEVER]
        asked = [*dict.fromkeys((*unread, *self._wanted))][:MAX_READ]
        if not unread:
            await self._write()
        if asked or self._is_due:
            began = self._clock()
            self._take(await self._read(asked), began)
            self._is_due = False
            for one in asked:
                self._wanted.pop(one, None)
            await self._write()
        await self._note_above()
        while self._removed:
            await self._record(*self._removed.pop(0))
        self._confirm()
        if self._wanted or self._unwritten:
            self._wake.set()

    async def _read(self, sessions: Sequence[str]) -> LabelReading:
        """Read these sessions, and those above them that nobody told here."""
        reading = await self._store.read(sessions)
        marks, above = {**reading.marks}, {**reading.above}
        for _ in range(MAX_KIN):
            named = dict.fromkeys(one for names in reading.above.values() for one in names)
            if not (new := [one for one in named if one not in marks and one not in self._known][:MAX_READ]):
                break
            reading = await self._store.read(new)
            marks |= reading.marks
            above |= reading.above
        return reading._replace(marks=marks, above=above)

    async def _note_above(self) -> None:
        """Store who is above sessions that asked."""
        while self._unnoted:
            names = [*self._unnoted][:MAX_READ]
            wanted = {one: self._unnoted[one] for one in names}
            given = {one: self._fit(one, above) for one, above in wanted.items()}
            await self._store.note(given)
            for one in names:
                if self._unnoted.get(one) == wanted[one]:
                    del self._unnoted[one]
                if (session := self._known.get(one)) is not None:
                    session.noted_at = self._clock()
                    self._above[one] = tuple(dict.fromkeys((*self._above.get(one, ()), *given[one])))

    def _fit(self, name: str, above: Kin) -> Kin:
        """Return those of these sessions that are stored with a session: no more than are read."""
        stored = self._above.get(name, ())
        new = [one for one in above if one not in stored][: MAX_ABOVE - len(stored)]
        return tuple(one for one in above if one in stored or one in new)

    async def _write(self) -> None:
        while self._unwritten:
            names = [*self._unwritten][:MAX_READ]
            given = {one: self._unwritten[one].copy() for one in names}
            marks = {
                one: {each: known.marks[each] for each in fields if each in known.marks}
                for one, fields in given.items()
                if (known := self._known.get(one)) is not None
            }
            await self._store.keep(marks)
            now = self._clock()
            for one in names:
                self._end_write(one, given[one], marks.get(one, {}), now)

    def _end_write(self, name: str, fields: set[str], written: LabelMarks, now: float) -> None:
        """Note that the server has these marks; one that rose meanwhile is written next."""
        session, left = self._known.get(name), self._unwritten.get(name)
        if left is None:
            return
        left -= {one for one in fields if session is None or session.marks.get(one) == written.get(one)}
        if not left:
            del self._unwritten[name]
            self._untried.discard(name)
        if session is not None:
            session.written_at = now

    def _find_pause(self) -> float:
        """Return the seconds until the next beat; 0 if none is needed."""
        has_labels = any(one.marks for one in self._known.values())
        if self.has_readers and (
            has_labels or self._delegations or any(map(self._is_live, self._known.values()))
        ):
            return BEAT_S
        return REFRESH_S if has_labels else 0

    def _is_live(self, session: _LabelledSession) -> bool:
        return session.asked_at >= self._clock() - LIVE_S

    def _plan_beat(self) -> None:
        """Plan what the next round reads, and what it writes again."""
        self._beat_at = self._clock()
        old = self._clock() - REFRESH_S
        if self.has_readers:
            # Who waits for another agent asks nothing, and what it hears that agent's agents must hear.
            waiting = {name for kin in self._delegations.values() for name in kin}
            live = [
                (one.read_at, name)
                for name, one in self._known.items()
                if self._is_live(one) or name in waiting
            ]
            self._is_due = True
            self._wanted.update(dict.fromkeys(name for _, name in sorted(live)[:MAX_READ]))
            for _, name in live:
                if (session := self._known[name]).noted and session.noted_at < old:
                    self._unnoted[name] = session.noted
        for name, session in self._known.items():
            if session.marks and session.written_at < old:
                self._unwritten.setdefault(name, set()).update(session.marks)

    def _take(self, reading: LabelReading, began: float) -> None:
        """Take what was read: `began` is the time before it was asked for."""
        if self._token and reading.token != self._token:
            self._unsure_until = began + GRACE_S
            self._write_again()
        self._token = reading.token
        named = {one for names in reading.above.values() for one in names}
        for name, marks in reading.marks.items():
            session = self._known.get(name)
            if session is None and name in named:
                session = self._known[name] = _LabelledSession(name)
            if session is None:
                continue
            if name in reading.above:
                self._above[name] = reading.above[name]
            if session.read_at == _NEVER and not session.marks:
                session.unsure_until = self._unsure_until
            self._join(name, session, marks, began, reading.now_ms)
            session.read_at = began
        for name in reading.marks:
            if (session := self._known.get(name)) is not None and session.kin:
                self._spread(self._climb(session.kin))

    def _join(
        self, name: str, session: _LabelledSession, stored: LabelMarks, began: float, now_ms: int
    ) -> None:
        for one, mark in stored.items():
            known = _count(session.marks, one)
            if mark.times > known:
                session.marks = {**session.marks, one: mark}
                self._version += 1
                if not mark.is_borne:
                    if not one.endswith(REQUIRED):
                        self._removed.append((name, one, mark))
                    # Not before the moment at which it was taken away, by this process's clock.
                    taken_at = began - max(0, now_ms - mark.at_ms) / 1000
                    if session.given_at.get(one, _NEVER) >= taken_at:
                        self._put(name, session, {one: LabelMark(mark.times + 1)})
        lacking = {one for one, mark in session.marks.items() if _count(stored, one) < mark.times}
        if lacking:
            self._unwritten.setdefault(name, set()).update(lacking)

    async def _record(self, name: str, one: str, mark: LabelMark) -> None:
        """Record that an operator took a label away, unless another process did."""
        try:
            if self.note is None or not await self._store.claim(name, one, mark.times):
                return
        except ToolgateError:
            pass  # better twice than never
        label, value = split_field(one)
        session = self._known.get(name)
        root = name if session is None else session.root
        told = {"session": name, "root_session": root, "agent": "", "by": mark.by}
        if self.note is not None:
            call_guarded(self.note, AGENT_UNLABEL, {**told, "label": label, "value": value})

    def _confirm(self) -> None:
        waiting, self._orders = self._orders, []
        for sessions, done in waiting:
            if sessions.isdisjoint(self._wanted):
                call_guarded(done)
            else:
                self._orders.append((sessions, done))


def _count(marks: LabelMarks, one: str) -> int:
    mark = marks.get(one)
    return 0 if mark is None else mark.times
