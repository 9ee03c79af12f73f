"""Hooks on `tool:selecting` in this process, as one scheduler named `in-process`.

    emit              finds deny, ask_user and injections
    emit_and_collect  if data changed and there are several hooks: each hook's own modify, of
                      which the highest data["priority"] wins (without one: the first registered)

In the phase `verify` the whole replacement is emitted once more. Changes of hooks to another scheduler's
replacement are laid over it. Both spellings of a modify are read: `tool`/`tool_name`,
`arguments`/`tool_input`.

Known limit: after another hook's modify, a hook gets only the fields that the other hook returned. A hook
that expects the original fields raises, and the kernel skips it. It gets its turn in `verify`, unless the
first hook modifies the replacement as well.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import HookResult
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Modify, ToolQuestion, Verdict
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.decision.question.plain_values import to_plain
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.values.jsonable import find_change, jsonable

logger = logging.getLogger(__name__)

TOOL_SELECTING = "tool:selecting"
_MAX_SECONDS = 86_400.0
OBSERVERS = "hooks-logging"
"""Prefix of handlers that only log. A hook besides them is alone, and need not be asked twice."""
_PRIORITY_LIMIT = 2**31
_NOT_FOR_HOOKS = ("id", "trace", "ttl_ms", "request", "again", "result", "session_labels", "required_labels")


@dataclass(frozen=True, slots=True)
class HookScheduler:
    """Asks the handlers of `tool:selecting`; call it with a question for their verdicts."""

    _hooks: Hooks
    _timeout_s: float
    _also: Mapping[str, Any] = field(default_factory=dict)
    """Fields for hooks besides the question."""

    async def __call__(self, question: ToolQuestion) -> Sequence[Verdict]:
        """Return the most restrictive of all handlers' answers: deny, ask_user, modify, continue."""
        payload = {**payload_of(question), **self._also}
        result = await self._hooks.emit(TOOL_SELECTING, payload)
        if result is None:
            return [Continue()]
        await self._hooks.show(result, TOOL_SELECTING, question.tool_name)
        try:
            return [await self._answer(question, payload, result)]
        except Exception as error:  # noqa: BLE001 - a hook's answer may hold anything
            logger.warning("the answer of a hook could not be read: %s", where(error))
            return [Deny(reason="a hook objected to this call or changed it, and its answer cannot be read")]

    async def _answer(self, question: ToolQuestion, payload: dict[str, Any], result: HookResult) -> Verdict:
        """Return the verdict in the kernel's single result of all handlers."""
        if result.action == "deny":
            reason = result.reason or "a hook refused without a reason"
            return Deny(reason=reason, priority=_priority(result.data))
        if result.action == "ask_user":
            options = tuple(str(option) for option in result.approval_options or ())[:16]
            seconds = result.approval_timeout
            return AskUser(
                prompt=result.approval_prompt or f"Allow the tool {question.tool_name!r}?",
                options=options or ("Allow", "Deny"),
                timeout_s=_MAX_SECONDS if math.isnan(seconds) else min(max(seconds, 0.001), _MAX_SECONDS),
                default=result.approval_default,
                reason=result.reason,
                priority=_priority(result.data),
            )
        if result.action == "inject_context" and question.phase != "verify":
            self._hooks.injections.take(result, TOOL_SELECTING)
        return await self._modify(question, payload, result) or Continue()

    @property
    def rules(self) -> bool:
        """True if a hook listens that may object; hooks that only write a log do not count."""
        return self._hooks.handlers(TOOL_SELECTING, besides=OBSERVERS) != 0

    async def _modify(
        self, question: ToolQuestion, payload: dict[str, Any], result: HookResult
    ) -> Modify | None:
        """Return the modify that counts among the handlers' answers; None if there is none."""
        own = modify_in(result.data, question)
        if isinstance(result.data, dict) and own is None:
            return None
        if self._hooks.handlers(TOOL_SELECTING, besides=OBSERVERS) == 1:
            return own
        answers = await self._hooks.collect(TOOL_SELECTING, payload, self._timeout_s)
        modifies = [modify for answer in answers if (modify := modify_in(answer, question))]
        # The highest priority, the first registered among equals; one that can run before one that cannot.
        able = [modify for modify in modifies if modify.tool in question.available_tools] or modifies
        return max(able, key=lambda modify: modify.priority or 0, default=None) or own


def payload_of(question: ToolQuestion) -> dict[str, Any]:
    """Return the payload for hooks on tool:selecting: the seed's fields and all others of the question."""
    fields = (name for name in ToolQuestion._fields if name not in _NOT_FOR_HOOKS)
    payload: dict[str, Any] = {name: jsonable(to_plain(getattr(question, name))) for name in fields}
    return {**payload, "decision_id": question.id}


def modify_in(data: Mapping[str, Any] | None, question: ToolQuestion) -> Modify | None:
    """Return the replacement that returned data ask for; None if they leave the call unchanged."""
    if not isinstance(data, Mapping):
        return None
    tool = find_change(data, ("tool", "tool_name"), str, question.tool_name)
    arguments = find_change(data, ("arguments", "tool_input"), dict, jsonable(to_plain(question.tool_input)))
    agent = find_change(data, ("agent_target",), str, question.agent_target)
    if tool is None and arguments is None and agent is None:
        return None
    reason = data.get("reason")
    return Modify(
        tool=tool or question.tool_name,
        arguments=dict(question.tool_input) if arguments is None else arguments,
        agent_target=agent,
        reason=reason if isinstance(reason, str) else None,
        priority=_priority(data),
    )


def _priority(data: Any) -> int | None:
    value = data.get("priority") if isinstance(data, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= _PRIORITY_LIMIT:
        return None
    return value
