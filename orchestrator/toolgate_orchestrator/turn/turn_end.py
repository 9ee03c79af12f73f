"""How a turn that did not come to its answer is left: hooks are told, and the conversation is closed.

    cancelled:  cancel:requested ─▶ the callbacks of the session's token ─▶ closed
    failed, denied, stopped at its limit:                                  closed

Hosts repair, or refuse to resume, a conversation that ends in a user's message or in results: so it is closed
by a message of the assistant that says what happened. (`cancel:completed` is the kernel's.)
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
"""What the LLM reads later of a turn that was cancelled."""
FAILED: Final = "This turn ended here with an error. What its tools did before that is done."
_CALLBACKS_S: Final = 3.0
_BESIDE: Final = ("system", "developer")


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn came out."""

    answer: str
    execution: Literal["completed", "cancelled", "error"] = "completed"
    status: str = "success"
    """success, incomplete, cancelled, or that of a budget used up."""


CANCELLED_TURN = TurnEnd("", "cancelled", "cancelled")
BROKEN_TURN = TurnEnd("", "error", "incomplete")


async def announce_cancellation(hooks: Emitter, token: Any, loop: str, iterations: int) -> None:
    """Tell hooks of the cancellation, then have the session's callbacks clean up.

    Whatever they raise is logged; after three seconds nobody waits for them any more.
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
    """Add an assistant's message unless the conversation ends in one that waits for no result.

    A context that fails is logged: the turn's own end counts.
    """
    try:
        messages = await context.get_messages()
        spoken = [each for each in messages if each.get("role") not in _BESIDE]
        if not spoken or (spoken[-1].get("role") == "assistant" and not spoken[-1].get("tool_calls")):
            return
        await context.add_message({"role": "assistant", "content": text, "metadata": {"incomplete": True}})
    except Exception as error:  # noqa: BLE001 - any context; the turn has ended already
        logger.warning("the conversation was not closed: %s", where(error))
