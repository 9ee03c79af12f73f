"""Pace of a turn: the pause between two requests to the LLM, and between two words.

To keep a provider's rate limit, a turn waits before its next request and reports that as
orchestrator:rate_limit_delay. Words can be passed on slowly for people who watch the answer being written.
"""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Final

from toolgate_orchestrator.turn.cancellation import CancellationWatch
from toolgate_orchestrator.turn.hooks.dispatch import Emitter
from toolgate_orchestrator.turn.llm.provider_stream import OnText

RATE_LIMIT_DELAY: Final = "orchestrator:rate_limit_delay"
"""Event of a waiting request: it waits `delay_ms` of `configured_ms`, as `elapsed_ms` have passed since the
last answer."""

_WORDS: Final = re.compile(r"\S+|\s+")


class RequestPace:
    """Minimum time between an answer of the LLM and the next request of the same turn."""

    def __init__(
        self,
        delay_ms: float,
        hooks: Emitter,
        stopping: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._delay_ms, self._hooks, self._stopping, self._clock = delay_ms, hooks, stopping, clock
        self._answered: float | None = None

    def note_answer(self) -> None:
        """Note that an answer has come; the time starts here."""
        self._answered = self._clock()

    async def wait(self, iteration: int) -> None:
        """Wait for the rest of the time, or until the session is cancelled."""
        if self._delay_ms <= 0 or self._answered is None:
            return
        elapsed_ms = (self._clock() - self._answered) * 1000
        left_ms = self._delay_ms - elapsed_ms
        if left_ms <= 0:
            return
        told = {"delay_ms": left_ms, "configured_ms": self._delay_ms, "elapsed_ms": elapsed_ms}
        await self._hooks.emit(RATE_LIMIT_DELAY, {**told, "iteration": iteration})
        with CancellationWatch(self._stopping):
            await asyncio.sleep(left_ms / 1000)


def slow_down(tell: OnText | None, delay_s: float) -> OnText | None:
    """Return a function that passes text on word by word, with a pause after each; `tell` itself without a
    pause."""
    if delay_s <= 0:
        return tell

    async def tell_words(text: str) -> None:
        for word in _WORDS.findall(text):
            if tell is not None:
                await tell(word)
            if not word.isspace():
                await asyncio.sleep(delay_s)

    return tell_words
