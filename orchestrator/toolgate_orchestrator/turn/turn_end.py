"""Ends a turn without an answer: reports to hooks, and closes the conversation.

    cancelled:  cancel:requested ─▶ the callbacks of the session's token ─▶ closed
    failed, denied, stopped at its limit:                                  closed

Hosts repair, or refuse to resume, a conversation that ends in a user's message or in results. So an
assistant's message that says what happened closes it. (The kernel emits `cancel:completed`.)
"""

import asyncio
import inspect
import logging
from dataclasses import dataclass
from typing import Any, Final, Literal

from amplifier_core.events import CANCEL_REQUESTED
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.turn.hooks.dispatch import Emitter

logger = logging.getLogger(__name__)

CANCELLED: Final = "This turn was cancelled here. What its tools did before that is done."
"""Text that the LLM later reads about a cancelled turn."""
FAILED: Final = "This turn ended here with an error. What its tools did before that is done."
_CALLBACKS_S: Final = 3.0
_BESIDE: Final = ("system", "developer")


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """Outcome of a turn."""

    answer: str
    execution: Literal["completed", "cancelled", "error"] = "completed"
    status: str = "success"
    """Status: success, incomplete, cancelled, error (loop-streaming), or that of a used-up budget."""


CANCELLED_TURN = TurnEnd("", "cancelled", "cancelled")


async def announce_cancellation(hooks: Emitter, token: Any, loop: str, iterations: int) -> None:
    """Report the cancellation to hooks, then have the session's callbacks clean up.

    Errors of the callbacks are logged. The wait for them ends after three seconds.
    """
    state = str(getattr(token, "state", "none"))
    try:
        told = {"orchestrator": loop, "state": state, "turn_count": iterations}
        await hooks.emit(CANCEL_REQUESTED, told)
    finally:
        await _run_callbacks(token)


async def _run_callbacks(token: Any) -> None:
    trigger = getattr(token, "trigger_callbacks", None)
    if not callable(trigger):
        return

    async def run() -> None:
        given = trigger()
        if inspect.isawaitable(given):
            await given

    work = asyncio.ensure_future(run())
    try:
        await asyncio.wait({work}, timeout=_CALLBACKS_S)
    finally:
        if not work.done():
            work.cancel("the callbacks of the cancellation took too long")
            logger.warning("callbacks of the cancellation are not done after %s seconds", _CALLBACKS_S)
        elif not work.cancelled() and (error := work.exception()) is not None:
            logger.warning("a callback of the cancellation failed: %s", where(error))


async def close_conversation(context: Any, text: str) -> None:
    """Add an assistant's message, unless the conversation ends in one without open calls.

    An error of the context is logged: the turn's own end counts.
    """
    try:
        messages = await context.get_messages()
        spoken = [each for each in messages if each.get("role") not in _BESIDE]
        if not spoken or (spoken[-1].get("role") == "assistant" and not spoken[-1].get("tool_calls")):
            return
        await context.add_message({"role": "assistant", "content": text, "metadata": {"incomplete": True}})
    except Exception as error:  # noqa: BLE001 - a context may raise anything; the turn has ended already
        logger.warning("the conversation was not closed: %s", where(error))
