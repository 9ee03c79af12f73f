"""The questions of one process: the open ones by id, and those that ended a moment ago.

A verdict finds its question here. One timer serves all open questions: it is set for the nearest
deadline, and looks again when it fires; a question that ends before costs it nothing. Where the event
loop stood still (a tool that blocks it, a long computation), verdicts may lie unread in the socket, or
in the server until the next read asks for them: every open question is told, and gives them a moment
before anybody counts as silent. It is noticed when questions leave late and when the timer fires late,
for which it also fires shortly before each deadline.
What ended with somebody unheard is kept for its late verdicts; of what ended complete only the id and who
was asked, to tell a repeated verdict from one that nobody asked for. While its call is not decided (it is
verified, a person thinks, a slot is waited for) every question of it is kept: a denial counts until then.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from toolgate_orchestrator.decision.round.open_round import OpenRound

Key = tuple[bytes, int]
"""Decision id, and the number of the phase (`packing.PHASES`)."""

REMEMBERED: Final = 1024
KNOWN: Final = 8192
REST_S: Final = 0.01
"""So often decisions let others have the event loop, though nothing in them waits."""
MAX_ENDED: Final = 1024
JUST_S: Final = 0.02
"""Facts that are older are written."""
EVE_S: Final = 0.05
"""So long before a deadline the timer looks whether the loop runs freely."""
LATE_S: Final = 0.005
"""A callback that is later than this was kept waiting by somebody."""
_NEVER: Final = float("inf")


class OpenRounds:
    """Open and recent questions."""

    __slots__ = (
        *("_armed", "_going_on", "_ids", "_leaving", "_older_ids", "_rests_at", "_timer", "_unheard"),
        *("ended", "groups", "held", "loop", "open"),
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.open: dict[Key, OpenRound] = {}
        self.held: set[Key] = set()
        """Those of the open ones that somebody holds, or held."""
        self.groups: dict[str, int] = {}
        """Of each session how many of the open ones are of several calls at once: one may need another."""
        self.ended: dict[str, float] = {}
        """When a call of a session ended last for which none was waiting (`time.monotonic`)."""
        self.loop = loop
        self._armed = _NEVER
        self._leaving = self._rests_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unheard: OrderedDict[Key, OpenRound] = OrderedDict()
        self._going_on: dict[Key, OpenRound] = {}
        """Those that ended of calls that are not decided yet."""
        self._ids: dict[Key, Sequence[str]] = {}
        self._older_ids: dict[Key, Sequence[str]] = {}

    async def rest(self, now: float) -> None:
        """Leave the event loop to others now and then, in a decision that waits for nobody.

        Whoever asks again and again would else keep from connecting what is to be waited for.
        """
        if now >= self._rests_at:
            self._rests_at = now + REST_S
            await asyncio.sleep(0)

    def join_group(self, session: str, now: float) -> bool:
        """One of several calls at once is asked about; whether another of its session has just ended."""
        self.groups[session] = self.groups.get(session, 0) + 1
        return bool(self.ended) and now - self.ended.pop(session, -_NEVER) < JUST_S

    def leave_group(self, session: str) -> None:
        """It is asked about no longer."""
        left = self.groups.get(session, 0) - 1
        if left > 0:
            self.groups[session] = left
        else:
            self.groups.pop(session, None)

    def is_awaited(self, session: object) -> bool:
        """Whether a call of its session may wait for one that ends now; where that is not told, any call."""
        if type(session) is not str or session in self.groups:
            return bool(self.groups)
        if len(self.ended) >= MAX_ENDED:
            self.ended.clear()
        self.ended[session] = time.monotonic()
        return False

    def look_at(self, deadline: float) -> None:
        """Tick the open questions whose time has come, at this deadline (`time.monotonic`) at the latest."""
        if deadline - EVE_S < self._armed:
            now = time.monotonic()
            at = deadline - EVE_S if deadline - EVE_S > now else deadline
            if at >= self._armed:
                return
            if self._timer is not None:
                self._timer.cancel()
            self._armed = at
            # Not call_at: uvloop's own clock has a resolution of a millisecond.
            self._timer = self.loop.call_later(max(0.0, at - now), self._look)

    def leaves(self, now: float) -> None:
        """A question leaves with this turn of the loop: see that it does."""
        if not self._leaving:
            self._leaving = now
            self.loop.call_soon(self._measure_lag)

    def record_end(self, question: OpenRound, *, complete: bool) -> None:
        """A question was closed; `complete` if everyone asked has answered."""
        self._ids[question.key] = question.asked
        if len(self._ids) >= KNOWN:
            self._older_ids, self._ids = self._ids, {}
        if not complete:
            self._unheard[question.key] = question
            if len(self._unheard) > REMEMBERED:
                self._unheard.popitem(last=False)

    def recent(self, key: Key) -> OpenRound | None:
        """A question that ended with somebody unheard."""
        return self._unheard.get(key)

    def keep(self, questions: Iterable[OpenRound]) -> None:
        """The call of these goes on: what was asked about it can still be denied."""
        self._going_on.update((question.key, question) for question in questions)

    def forget(self, questions: Iterable[OpenRound]) -> None:
        """The call of these is decided."""
        for question in questions:
            self._going_on.pop(question.key, None)

    def list_undecided(self) -> list[OpenRound]:
        """Return the questions of calls that are not decided yet: open ones, and those that ended."""
        return [*self.open.values(), *self._going_on.values()]

    def goes_on(self, key: Key) -> OpenRound | None:
        """A question that ended, of a call that is not decided."""
        return self._going_on.get(key)

    def is_repeat(self, key: Key, scheduler: str) -> bool:
        """Whether this scheduler was asked this lately: what it says now, it says again."""
        return scheduler in self._ids.get(key, ()) or scheduler in self._older_ids.get(key, ())

    def close(self) -> None:
        """Forget everything."""
        if self._timer is not None:
            self._timer.cancel()
        self.open.clear()
        self.held.clear()
        self.groups.clear()
        self.ended.clear()
        self._unheard.clear()
        self._going_on.clear()

    def _measure_lag(self) -> None:
        asked, now = self._leaving, time.monotonic()
        self._leaving = 0.0
        if now - asked > LATE_S:
            self._report_stall(now - asked, now)

    def _report_stall(self, lag: float, now: float) -> None:
        """Tell the open questions that something was done so many seconds late."""
        for question in self.open.values():
            question.on_stall(lag, now)

    def _look(self) -> None:
        due, now = self._armed, time.monotonic()
        self._timer, self._armed = None, _NEVER
        if now - due > LATE_S:
            self._report_stall(now - due, now)
        for question in list(self.open.values()):
            if question.deadline is None:
                continue
            if question.deadline > now:
                self.look_at(question.deadline)
            elif question.free_from > now:
                self.look_at(question.free_from)
            else:
                question.tick()  # which looks at its next deadline itself
