"""Steering: what the user says while the agent works, for the next request to the LLM.

    session.steer("use the other file") ─▶ queue ─▶ stored as a message of the user ─▶ the next request

In order, and once. Text given while the last answer is written keeps the turn going. What nobody took
when a turn ends is not told to the next one: it was about this one.
"""

from typing import Any, Final

from toolgate_orchestrator.turn.hooks.dispatch import Emitter

STEER: Final = "session.steer"
"""The capability: a function of one text."""
STEERING_INJECTED: Final = "orchestrator:steering_injected"
MAX_QUEUED: Final = 100


class SteeringOverflow(RuntimeError):  # noqa: N818 - named by what happened
    """So many texts wait for the next request that no further one is taken."""


class SteeringQueue:
    """The texts of one loop that no request has told the LLM yet."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    @property
    def has_pending(self) -> bool:
        """Whether a text waits."""
        return bool(self._texts)

    def steer(self, message: str) -> None:
        """Take a text, without waiting; raises ValueError for an empty one, SteeringOverflow for too many."""
        if not isinstance(message, str) or not message.strip():
            raise ValueError("steering: say something: the text is empty")
        if len(self._texts) >= MAX_QUEUED:
            raise SteeringOverflow(f"steering: {MAX_QUEUED} texts wait already: wait for the next request")
        self._texts.append(message)

    def clear(self) -> None:
        """Drop what waits."""
        self._texts.clear()

    async def inject(self, context: Any, hooks: Emitter, orchestrator: str, iteration: int) -> None:
        """Store what waits as messages of the user; `iteration` is that of the request that tells them."""
        for left in range(len(self._texts) - 1, -1, -1):
            text = self._texts.pop(0)
            await context.add_message({"role": "user", "content": text})
            told = {"orchestrator": orchestrator, "content": text, "iteration": iteration}
            await hooks.emit(STEERING_INJECTED, {**told, "queued_remaining": left, "metadata": None})
