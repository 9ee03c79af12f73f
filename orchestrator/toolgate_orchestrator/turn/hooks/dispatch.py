"""Asks the hooks about a step before it is taken, and reads their answers in one way.

A deny, or a person's refusal, comes back as `denied` with its reason. Injections go to the turn's
`Injections`. Changed data comes back as `data` (the kernel reports a modify as a `continue` whose data
differ). The caller interprets the step and its changed fields.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import HookResult
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.turn.hooks.injections import Injections
from toolgate_orchestrator.turn.values.jsonable import jsonable

logger = logging.getLogger(__name__)

_NOBODY = "this needs a person's approval, and nobody is there to ask"

Payload = Mapping[str, Any] | Callable[[], Mapping[str, Any]]


class Emitter:
    """Thin wrapper of a hook registry (the kernel's, or anything with `emit`).

    An `emit` without a handler takes the kernel over 100 µs; to list handlers takes a fraction of one. So the
    handlers are listed each time, and hooks may register at any time.
    """

    def __init__(self, hooks: Any) -> None:
        self.hooks = hooks

    def handlers(self, event: str, besides: str = "") -> int | None:
        """Return the number of handlers of an event; None if the registry cannot tell.

        Handlers whose name begins with `besides` are not counted.
        """
        lookup = getattr(self.hooks, "list_handlers", None)
        found = lookup(event) if callable(lookup) else None
        if not isinstance(found, dict):
            return None
        names = found.get(event, ())
        return sum(not str(name).startswith(besides) for name in names) if besides else len(names)

    def has_listeners(self, event: str) -> bool:
        """Return whether an event has a handler; True if the registry cannot tell."""
        return self.handlers(event) != 0

    async def emit(self, event: str, payload: Payload) -> HookResult | None:
        """Emit an event as exact JSON; None without a handler. A callable payload is only built for a
        handler."""
        if not self.has_listeners(event):
            return None
        data = payload() if callable(payload) else payload
        result: HookResult | None = await self.hooks.emit(event, jsonable(data))
        return result

    async def collect(self, event: str, payload: Payload, timeout_s: float) -> list[dict[str, Any]]:
        """Return each handler's own data, all from the original payload; empty if the registry cannot do
        this."""
        collect = getattr(self.hooks, "emit_and_collect", None)
        if collect is None:
            return []
        data = payload() if callable(payload) else payload
        answers = await collect(event, jsonable(data), timeout_s)
        return [answer for answer in answers if isinstance(answer, dict)]


@dataclass(frozen=True, slots=True)
class HookResponse:
    """Answer of the hooks about one step."""

    denied: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


class Hooks(Emitter):
    """Emitter that also acts on the hooks' answers."""

    def __init__(self, hooks: Any, coordinator: Any | None, injections: Injections) -> None:
        super().__init__(hooks)
        self.coordinator = coordinator
        self.injections = injections
        self.asking = asyncio.Lock()
        """Lock that makes a person get one question at a time, however many calls run."""

    async def consult(self, event: str, payload: Payload, subject: str = "orchestrator") -> HookResponse:
        """Emit and read the answer; `subject` is the name of the hook or tool for the app."""
        result = await self.emit(event, payload)
        return HookResponse() if result is None else await self.read(result, event, subject)

    async def read(self, result: HookResult, event: str, subject: str) -> HookResponse:
        """Apply one answer: keep injections, ask a person, show messages."""
        if result.action == "ask_user":
            result = await self._ask(result, event, subject)
        else:
            await self.show(result, event, subject)
        if result.action == "deny":
            return HookResponse(denied=result.reason or "a hook refused without a reason")
        if result.action == "inject_context":
            self.injections.take(result, event)
        return HookResponse(data=result.data if isinstance(result.data, dict) else {})

    async def _ask(self, result: HookResult, event: str, subject: str) -> HookResult:
        """Ask the app's approval system through the kernel; without one, and on any failure, deny."""
        if self.coordinator is None:
            return HookResult(action="deny", reason=_NOBODY)
        try:
            async with self.asking:
                answer: HookResult = await self.coordinator.process_hook_result(result, event, subject)
        except Exception as error:  # noqa: BLE001 - an approval system of the app's may raise anything
            logger.warning("the approval system failed on %s: %s", event, where(error))
            return HookResult(action="deny", reason=f"approval could not be obtained: {error}")
        if answer.action == "ask_user":
            return HookResult(action="deny", reason=_NOBODY)
        return answer

    async def show(self, result: HookResult, event: str, subject: str) -> None:
        """Let the app show a hook's message to the user, if there is one."""
        # Answers of registries other than the kernel's may have only an action.
        if self.coordinator is None or not getattr(result, "user_message", None):
            return
        shown = HookResult(
            user_message=result.user_message,
            user_message_level=result.user_message_level,
            user_message_source=result.user_message_source,
        )
        try:
            await self.coordinator.process_hook_result(shown, event, subject)
        except Exception as error:  # noqa: BLE001 - a display that fails must not end the turn
            logger.warning("a hook's message was not shown: %s", where(error))
