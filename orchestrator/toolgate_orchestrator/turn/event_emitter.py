"""Emits kernel events, and costs nothing where nobody listens.

An `emit` without a handler takes the kernel over 100 µs; asking who listens takes a fraction of
one. So the handlers are looked up each time, and hooks may register whenever they like. What a
hook's answer means is decided elsewhere.
"""

from collections.abc import Callable, Mapping
from typing import Any

from amplifier_core import HookResult

from toolgate_orchestrator.turn.jsonable import jsonable

__all__ = ["Emitter", "Payload"]

Payload = Mapping[str, Any] | Callable[[], Mapping[str, Any]]


class Emitter:
    """A thin coat over a hook registry (the kernel's, or anything with `emit`)."""

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

    def heard(self, event: str) -> bool:
        """Whether emitting could reach anyone; true where the registry cannot say."""
        return self.handlers(event) != 0

    async def emit(self, event: str, payload: Payload) -> HookResult | None:
        """Emit as exact JSON; None when nobody listens. A callable payload is built only if heard."""
        if not self.heard(event):
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
