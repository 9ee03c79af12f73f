"""Asks the hooks about a step before it is taken, and reads their answers the same way each time.

A deny, or a person's refusal, comes back as `denied` with its reason; injections go to the turn's
`Injections`; changed data comes back as `data` (the kernel reports a modify as a `continue` whose
data differ). What the step is, and what a changed field means, is the caller's affair.
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
    """A thin coat over a hook registry (the kernel's, or anything with `emit`).

    An `emit` without a handler takes the kernel over 100 µs; asking who listens takes a fraction of one. So
    the handlers are looked up each time, and hooks may register whenever they like.
    """

    def __init__(self, hooks: Any) -> None:
        self.hooks = hooks

    def handlers(self, event: str, besides: str = "") -> int | None:
        """How many handlers an event has; None where the registry cannot say.

        Those whose name begins with `besides` are not counted.
        """
        lookup = getattr(self.hooks, "list_handlers", None)
        found = lookup(event) if callable(lookup) else None
        if not isinstance(found, dict):
            return None
        names = found.get(event, ())
        return sum(not str(name).startswith(besides) for name in names) if besides else len(names)

    def has_listeners(self, event: str) -> bool:
        """Whether emitting could reach anyone; true where the registry cannot say."""
        return self.handlers(event) != 0

    async def emit(self, event: str, payload: Payload) -> HookResult | None:
        """Emit as exact JSON; None when nobody listens. A callable payload is built only if heard."""
        if not self.has_listeners(event):
            return None
        data = payload() if callable(payload) else payload
        result: HookResult | None = await self.hooks.emit(event, jsonable(data))
        return result

    async def collect(self, event: str, payload: Payload, timeout_s: float) -> list[dict[str, Any]]:
        """Each handler's own data, all given the original; empty where the registry cannot do it."""
        collect = getattr(self.hooks, "emit_and_collect", None)
        if collect is None:
            return []
        data = payload() if callable(payload) else payload
        answers = await collect(event, jsonable(data), timeout_s)
        return [answer for answer in answers if isinstance(answer, dict)]


@dataclass(frozen=True, slots=True)
class HookResponse:
    """What the hooks said about one step."""

    denied: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


class Hooks(Emitter):
    """An emitter that also acts on what the hooks answer."""

    def __init__(self, hooks: Any, coordinator: Any | None, injections: Injections) -> None:
        super().__init__(hooks)
        self.coordinator = coordinator
        self.injections = injections
        self.asking = asyncio.Lock()
        """A person is asked one thing at a time, however many calls run."""

    async def consult(self, event: str, payload: Payload, subject: str = "orchestrator") -> HookResponse:
        """Emit and read the answer; `subject` is the hook or tool name told to the app."""
        result = await self.emit(event, payload)
        return HookResponse() if result is None else await self.read(result, event, subject)

    async def read(self, result: HookResult, event: str, subject: str) -> HookResponse:
        """What one answer means; injections are kept, a person is asked, messages are shown."""
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
        """The kernel asks the app's approval system; without one, and on any failure, it is a no."""
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
        """Let the app display a hook's message to the user, if there is one."""
        # Registries other than the kernel's give answers that may have an action and nothing else.
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
