"""Asks a person about a call that would run: `ask_user` verdicts inside a session.

The kernel's `process_hook_result` asks the app's approval system. This module puts the call itself into the
question. It tells apart a refusal, an expired question, and the lack of a person to ask. `terminal_approvals`
asks on a terminal.

A question may hold what only this person may see: a result, or the words at a point of a turn. So hooks get
it without them, and the kernel's log gets no question.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from amplifier_core import HookResult
from amplifier_core.events import APPROVAL_DENIED, APPROVAL_GRANTED, APPROVAL_REQUIRED
from toolgate_bus.protocol.events import AskUser, ToolQuestion
from toolgate_bus.protocol.names import POINTS
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.decision.gate import Answer
from toolgate_orchestrator.decision.question.shown_call import question_about, question_text
from toolgate_orchestrator.turn.hooks.dispatch import Hooks

logger = logging.getLogger(__name__)

_KERNELS_LOG: Final = logging.getLogger("_engine.coordinator.hook_dispatch")


class NoApprover(Exception):  # noqa: N818 - it is a state, not a fault
    """Raised by an approval system that has nobody to ask."""


@contextmanager
def _unlogged(prompt: str) -> Iterator[None]:
    """Keep this question out of the kernel's log within the block."""

    def is_other(record: logging.LogRecord) -> bool:
        return prompt not in record.getMessage()

    _KERNELS_LOG.addFilter(is_other)
    try:
        yield
    finally:
        _KERNELS_LOG.removeFilter(is_other)


@dataclass(slots=True)
class Approvals:
    """Asks through a session's coordinator; call it with the verdict and the call that would run."""

    _hooks: Hooks
    open: int = 0
    """Number of open questions."""

    async def __call__(self, ask: AskUser, call: ToolQuestion) -> Answer:
        """Return the person's answer; any failure of the approval system is a refusal."""
        self.open += 1
        try:
            prompt = question_text(ask, call)
            given = {} if call.tool_name in POINTS else call.tool_input
            about = question_about(ask, call.tool_name, given)  # hooks may log it, so no result
            told = {
                "prompt": about,
                "tool_name": call.tool_name,
                "decision_id": call.id,
                "options": ask.options,
            }
            await self._hooks.emit(APPROVAL_REQUIRED, told)
            answer = await self._answer(ask, prompt, call)
            event = APPROVAL_GRANTED if answer == "allow" else APPROVAL_DENIED
            await self._hooks.emit(event, {**told, "answer": answer})
            return answer
        finally:
            self.open -= 1

    async def _answer(self, ask: AskUser, prompt: str, call: ToolQuestion) -> Answer:
        coordinator = self._hooks.coordinator
        if coordinator is None or getattr(coordinator, "approval_system", None) is None:
            return "no_approver"
        request = HookResult(
            action="ask_user",
            approval_prompt=prompt,
            approval_options=list(ask.options),
            approval_timeout=ask.timeout_s,
            approval_default=ask.default,
            reason=ask.reason,
        )
        try:
            async with self._hooks.asking:
                with _unlogged(prompt):
                    result = await coordinator.process_hook_result(request, "tool:selecting", call.tool_name)
        except NoApprover:
            return "no_approver"
        except Exception as error:  # noqa: BLE001 - the app's approval system may raise anything
            logger.warning("the approval system failed: %s", where(error))
            return "refuse"
        # The kernel returns allow or deny; its reason tells a timeout from a no.
        if result.action == "continue":
            return "allow"
        reason = result.reason or ""
        if reason.startswith("Approval timeout"):
            return "expired"
        if reason.startswith("No approval system"):
            return "no_approver"
        return "refuse"
