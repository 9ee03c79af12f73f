"""The questions of one process: the open ones by id, and those that ended a moment ago.

A verdict finds its question here. One timer serves all open questions: it is set for the nearest deadline,
and looks again when it fires. A question that ends before costs it nothing. If the event loop stood still (a
tool that blocks it, a long computation), verdicts may lie unread in the socket, or in the server until the
next read asks for them. Then every open question is told, and waits a moment before any scheduler counts as
silent. A stall shows when questions leave late, or when the timer fires late; for that the timer also fires
shortly before each deadline.

A question that ended without an answer of some scheduler is kept for late verdicts. Of one that ended
complete only the id and the recipients are kept, to tell a repeated verdict from one that nobody asked for.
While its call is not decided (it is verified, a person thinks, a slot is waited for) every question of it is
kept: a denial counts until then.
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
REST_S: Final = 0.001
"""Seconds after which a decision gives the event loop to others, though it does not wait."""
MAX_ENDED: Final = 1024
JUST_S: Final = 0.02
"""Age in seconds from which facts are written."""
EVE_S: Final = 0.05
"""Seconds before a deadline at which the timer checks that the loop runs freely."""
LATE_S: Final = 0.005
"""Seconds of delay from which a callback counts as kept waiting."""
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
        """Open questions that a scheduler holds, or held."""
        self.groups: dict[str, int] = {}
        """Number of open calls that were made together, by session: one of them may need another."""
        self.ended: dict[str, float] = {}
        """Time (`time.monotonic`) at which a session's last call ended while none of it was waiting."""
        self.loop = loop
        self._armed = _NEVER
        self._leaving = self._rests_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unheard: OrderedDict[Key, OpenRound] = OrderedDict()
        self._going_on: dict[Key, OpenRound] = {}
        """Ended questions of calls that are not decided yet."""
        self._ids: dict[Key, Sequence[str]] = {}
        self._older_ids: dict[Key, Sequence[str]] = {}

    def is_rest_due(self, now: float) -> bool:
        """Return whether `rest` would leave the event loop."""
        return now >= self._rests_at

    async def rest(self, now: float) -> None:
        """Leave the event loop to others now and then, in a decision that waits for nobody.

        A caller that asks again and again would otherwise keep the bus from connecting.
        """
        if self.is_rest_due(now):
            self._rests_at = now + REST_S
            await asyncio.sleep(0)

    def find_waiting(self, scheduler: str) -> set[Key]:
        """Return the open questions that wait for a scheduler, those that it holds left out."""
        return {key for key, one in self.open.items() if one.waits_for(scheduler)}

    def join_group(self, session: str, now: float) -> bool:
        """Note that a call of a group is asked about. Return whether another of its session just ended."""
        self.groups[session] = self.groups.get(session, 0) + 1
        return bool(self.ended) and now - self.ended.pop(session, -_NEVER) < JUST_S

    def leave_group(self, session: str) -> None:
        """Note that such a call is no longer asked about."""
        left = self.groups.get(session, 0) - 1
        if left > 0:
            self.groups[session] = left
        else:
            self.groups.pop(session, None)

    def is_awaited(self, session: object) -> bool:
        """Return whether a call of a session may wait for one that ends now; without a session, any call."""
        if type(session) is not str or session in self.groups:
            return bool(self.groups)
        if len(self.ended) >= MAX_ENDED:
            self.ended.clear()
        self.ended[session] = time.monotonic()
        return False

    def look_at(self, deadline: float) -> None:
        """Tick the open questions that are due, at this deadline (`time.monotonic`) at the latest."""
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
        """Check that the question which leaves with this turn of the loop does leave."""
        if not self._leaving:
            self._leaving = now
            self.loop.call_soon(self._measure_lag)

    def record_end(self, question: OpenRound, *, complete: bool) -> None:
        """Record that a question was closed; `complete` if everyone asked has answered."""
        self._ids[question.key] = question.asked
        if len(self._ids) >= KNOWN:
            self._older_ids, self._ids = self._ids, {}
        if not complete:
            self._unheard[question.key] = question
            if len(self._unheard) > REMEMBERED:
                self._unheard.popitem(last=False)

    def recent(self, key: Key) -> OpenRound | None:
        """Return a question that ended without some answer."""
        return self._unheard.get(key)

    def keep(self, questions: Iterable[OpenRound]) -> None:
        """Keep these questions: their call goes on, and can still be denied."""
        self._going_on.update((question.key, question) for question in questions)

    def forget(self, questions: Iterable[OpenRound]) -> None:
        """Forget these questions: their call is decided."""
        for question in questions:
            self._going_on.pop(question.key, None)

    def list_undecided(self) -> list[OpenRound]:
        """Return the questions of calls that are not decided yet: open ones, and those that ended."""
        return [*self.open.values(), *self._going_on.values()]

    def goes_on(self, key: Key) -> OpenRound | None:
        """Return a question that ended, of a call that is not decided."""
        return self._going_on.get(key)

    def is_repeat(self, key: Key, scheduler: str) -> bool:
        """Return whether this scheduler was asked this lately, so that its verdict is a repeat."""
        return scheduler in self._ids.get(key, ()) or scheduler in self._older_ids.get(key, ())

    def close(self) -> None:
        """Forget all questions."""
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
