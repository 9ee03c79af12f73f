"""The questions of one process: the open ones by id, and those that ended a moment ago.

A verdict finds its question here; a deadline does, too. What ended with somebody unheard is kept for
its late verdicts; of what ended complete only the id is known, to tell a repeated verdict from one
that nobody asked for.
"""

import asyncio
from collections import OrderedDict
from typing import Final

from toolgate_orchestrator.deadlines import Deadlines, Key
from toolgate_orchestrator.question import Question

__all__ = ["Table"]

REMEMBERED: Final = 1024
KNOWN: Final = 8192


class Table:
    """Open and recent questions."""

    __slots__ = ("_ids", "_older_ids", "_unheard", "deadlines", "open")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.open: dict[Key, Question] = {}
        self.deadlines = Deadlines(loop, self._due)
        self._unheard: OrderedDict[Key, Question] = OrderedDict()
        self._ids: set[Key] = set()
        self._older_ids: set[Key] = set()

    def ended(self, question: Question, *, complete: bool) -> None:
        """A question was closed; `complete` if everyone asked has answered."""
        self._ids.add(question.key)
        if len(self._ids) >= KNOWN:
            self._older_ids, self._ids = self._ids, set()
        if not complete:
            self._unheard[question.key] = question
            if len(self._unheard) > REMEMBERED:
                self._unheard.popitem(last=False)

    def recent(self, key: Key) -> Question | None:
        """A question that ended with somebody unheard."""
        return self._unheard.get(key)

    def knew(self, key: Key) -> bool:
        """Whether there was such a question lately."""
        return key in self._ids or key in self._older_ids

    def close(self) -> None:
        """Forget everything."""
        self.deadlines.close()
        self.open.clear()
        self._unheard.clear()

    def _due(self, key: Key) -> None:
        question = self.open.get(key)
        if question is not None:
            question.tick()
