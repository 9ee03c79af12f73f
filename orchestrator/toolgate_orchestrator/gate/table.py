"""The questions of one process: the open ones by id, and those that ended a moment ago.

A verdict finds its question here. One timer serves all open questions: it is set for the nearest
deadline, and looks again when it fires; a question that ends before costs it nothing.
What ended with somebody unheard is kept for its late verdicts; of what ended complete only the id and who
was asked, to tell a repeated verdict from one that nobody asked for.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from toolgate_orchestrator.gate.question import Question

__all__ = ["Key", "Table"]

Key = tuple[bytes, int]
"""Decision id, and 0 for the select or 1 for the verify phase."""

REMEMBERED: Final = 1024
KNOWN: Final = 8192
_NEVER: Final = float("inf")


class Table:
    """Open and recent questions."""

    __slots__ = ("_armed", "_ids", "_loop", "_older_ids", "_timer", "_unheard", "open")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.open: dict[Key, Question] = {}
        self._loop = loop
        self._armed = _NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._unheard: OrderedDict[Key, Question] = OrderedDict()
        self._ids: dict[Key, Sequence[str]] = {}
        self._older_ids: dict[Key, Sequence[str]] = {}

    def look_at(self, deadline: float) -> None:
        """Tick the open questions whose time has come, at this deadline (`time.monotonic`) at the latest."""
        if deadline < self._armed:
            if self._timer is not None:
                self._timer.cancel()
            self._armed = deadline
            # Not call_at: uvloop's own clock has a resolution of a millisecond.
            self._timer = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._look)

    def ended(self, question: Question, *, complete: bool) -> None:
        """A question was closed; `complete` if everyone asked has answered."""
        self._ids[question.key] = question.asked
        if len(self._ids) >= KNOWN:
            self._older_ids, self._ids = self._ids, {}
        if not complete:
            self._unheard[question.key] = question
            if len(self._unheard) > REMEMBERED:
                self._unheard.popitem(last=False)

    def recent(self, key: Key) -> Question | None:
        """A question that ended with somebody unheard."""
        return self._unheard.get(key)

    def answered(self, key: Key, scheduler: str) -> bool:
        """Whether this scheduler was asked this lately: what it says now, it says again."""
        return scheduler in self._ids.get(key, ()) or scheduler in self._older_ids.get(key, ())

    def close(self) -> None:
        """Forget everything."""
        if self._timer is not None:
            self._timer.cancel()
        self.open.clear()
        self._unheard.clear()

    def _look(self) -> None:
        self._timer, self._armed = None, _NEVER
        now = time.monotonic()
        for question in [one for one in self.open.values() if one.deadline is not None]:
            if question.deadline is not None and question.deadline <= now:
                question.tick()  # which looks at its next deadline itself
            elif question.deadline is not None:
                self.look_at(question.deadline)
