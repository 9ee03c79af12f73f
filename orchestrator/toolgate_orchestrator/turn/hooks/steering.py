"""Steering: texts of the user to the working agent, for the next request to the LLM.

    session.steer("use the other file") ─▶ queue ─▶ stored as a message of the user ─▶ the next request

Texts are sent in order, and once. A text that comes during the last answer keeps the turn going. Texts that
are left when a turn ends are dropped, since they were about that turn.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from toolgate_orchestrator.turn.hooks.dispatch import Emitter
from toolgate_orchestrator.turn.hooks.instructions import store_words

STEER: Final = "session.steer"
"""Capability of a session: a function with one text."""
STEERING_INJECTED: Final = "orchestrator:steering_injected"
MAX_QUEUED: Final = 100


RuleOnText = Callable[[str], Awaitable[str | None]]
"""Returns the text to use in place of one of the user's; None if it may not be used."""


class SteeringOverflow(RuntimeError):  # noqa: N818 - named by what happened
    """Raised for a text if MAX_QUEUED texts wait for the next request already."""


class SteeringQueue:
    """The texts of one loop that wait for a request."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    @property
    def has_pending(self) -> bool:
        """True if a text waits."""
        return bool(self._texts)

    def steer(self, message: str) -> None:
        """Add a text without waiting. Raise ValueError for an empty one, SteeringOverflow if too many
        wait."""
        if not isinstance(message, str) or not message.strip():
            raise ValueError("steering: the text is empty")
        if len(self._texts) >= MAX_QUEUED:
            raise SteeringOverflow(f"steering: {MAX_QUEUED} texts wait already: wait for the next request")
        self._texts.append(message)

    def clear(self) -> None:
        """Drop all waiting texts."""
        self._texts.clear()

    async def inject(
        self, context: Any, hooks: Emitter, orchestrator: str, iteration: int, rule: RuleOnText | None = None
    ) -> None:
        """Store the waiting texts as messages of the user; `iteration` is the number of their request.

        `rule` rules on each text; one that it denies is dropped.
        """
        for left in range(len(self._texts) - 1, -1, -1):
            text = self._texts.pop(0)
            if rule is not None:
                ruled = await rule(text)
                if ruled is None:
                    continue
                text = ruled
            await store_words(context, text, is_prompt=False)
            told = {"orchestrator": orchestrator, "content": text, "iteration": iteration}
            await hooks.emit(STEERING_INJECTED, {**told, "queued_remaining": left, "metadata": None})
