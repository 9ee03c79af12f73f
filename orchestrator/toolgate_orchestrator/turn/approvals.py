"""Asks the person at the app about a call that would run: `ask_user` verdicts inside a session.

The kernel's `process_hook_result` asks the app's approval system; this module puts the call itself
into the question, and tells a refusal, a question that ran out and the lack of anybody to ask
apart. How a terminal asks is `terminal_approvals`' affair.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from amplifier_core import HookResult
from amplifier_core.events import APPROVAL_DENIED, APPROVAL_GRANTED, APPROVAL_REQUIRED
from toolgate_bus.protocol.events import AskUser, ToolQuestion
from toolgate_bus.telemetry.logging import where
from toolgate_bus.telemetry.printable import printable, shorten, visible

from toolgate_orchestrator.gate.gate import Answer
from toolgate_orchestrator.gate.one_question import MAX_PROMPT
from toolgate_orchestrator.turn.hook_dispatch import Hooks

logger = logging.getLogger(__name__)

_MAX_ARGUMENTS = 1_500
"""Characters of all arguments, as they are shown; with prompt and name all of it is shown (`printable`)."""
_MAX_TOOL = 128
_MIN_ARGUMENT = 24
"""Characters of each argument that are shown; where there is no room for that, not all arguments are."""


class NoApprover(Exception):  # noqa: N818 - it is a state of the world, not a fault
    """Raised by an approval system that finds nobody to ask."""


@dataclass(slots=True)
class Approvals:
    """Asks through a session's coordinator; call it with the verdict and the call that would run."""

    _hooks: Hooks
    open: int = 0
    """How many questions are asked right now."""

    async def __call__(self, ask: AskUser, call: ToolQuestion) -> Answer:
        """The person's answer; any failure of the approval system is a refusal."""
        self.open += 1
        try:
            prompt = question_text(ask, call)
            told = {
                "prompt": prompt,
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
                result = await coordinator.process_hook_result(request, "tool:selecting", call.tool_name)
        except NoApprover:
            return "no_approver"
        except Exception as error:  # noqa: BLE001 - the app's approval system may raise anything
            logger.warning("the approval system failed: %s", where(error))
            return "refuse"
        # The kernel gives allow or deny; its reason tells a timeout from a no.
        if result.action == "continue":
            return "allow"
        reason = result.reason or ""
        if reason.startswith("Approval timeout"):
            return "expired"
        if reason.startswith("No approval system"):
            return "no_approver"
        return "refuse"


def question_text(ask: AskUser, call: ToolQuestion) -> str:
    """The scheduler's question followed by the very call that would run; neither hides the other."""
    return f"{shorten(printable(ask.prompt), MAX_PROMPT)}\n{shown_call(call.tool_name, call.tool_input)}"


def shown_call(tool_name: str, tool_input: Mapping[str, object]) -> str:
    """A call on one line, for a person who decides on it.

    Of long arguments each is shown in part, beginning and end: an LLM cannot fill the place with one of them.
    """
    arguments = _shown(tool_input)
    if len(arguments) > _MAX_ARGUMENTS:
        arguments = _in_part(tool_input, len(arguments))
    return f"{shorten(visible(tool_name), _MAX_TOOL)} {arguments}"


def _shown(value: object) -> str:
    return visible(json.dumps(value, ensure_ascii=False, default=str))


def _in_part(arguments: Mapping[str, object], length: int) -> str:
    """Each argument with as much of it as there is room for; the shorter ones whole."""
    parts = [f"{_shown(name)}: {_shown(value)}" for name, value in arguments.items()]
    hidden = max(0, len(parts) - _MAX_ARGUMENTS // _MIN_ARGUMENT)
    parts = parts[: len(parts) - hidden]
    room, left = _MAX_ARGUMENTS, len(parts)
    most: dict[int, int] = {}
    for place in sorted(range(len(parts)), key=lambda one: len(parts[one])):
        most[place] = room // left
        room, left = room - min(len(parts[place]), most[place]), left - 1
    cut = ", ".join(_ends(part, most[place]) for place, part in enumerate(parts))
    more = f", and {hidden} more arguments" if hidden else ""
    return f"{{{cut}{more}}} (in part: {length} characters in all)"


def _ends(part: str, most: int) -> str:
    if len(part) <= most:
        return part
    last = most // 3
    return f"{part[: most - last - 1]}…{part[-last:]}"
