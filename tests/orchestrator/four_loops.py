"""What tests that run under every loop share: the loops, short hook results, a turn begun by hand."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from amplifier_core import HookResult

__all__ = [
    "ASKING",
    "LOOPS",
    "Recording",
    "begin_turn",
    "causes_of",
    "data_told",
    "inject",
    "modify",
    "order_of",
    "run_by_hand",
    "sent_results",
]

LOOPS = ("loop-basic", "loop-streaming", "loop-events", "loop-reactive")
ASKING: dict[str, Any] = {"toolgate": {}}
"""Makes loop-basic and loop-streaming ask before each call too; the other two always do."""


def modify(**data: Any) -> HookResult:
    return HookResult(action="modify", data=data)


def inject(text: str, **fields: Any) -> HookResult:
    return HookResult(action="inject_context", context_injection=text, **fields)


def data_told(loop: str, content: str) -> Any:
    """The output of a call that was changed, as the LLM reads it: loop-reactive tells it in a message."""
    return json.loads(content)["data"] if loop == "loop-reactive" else content


def order_of(messages: Sequence[Any]) -> list[str]:
    return [message["role"] for message in messages]


async def run_by_hand(a: Any, hooks: Any = None, **keywords: Any) -> str:
    """The loop's own `execute`, as somebody calls it who passes no coordinator."""
    get = a.session.coordinator.get
    parts = (get("context"), get("providers"), get("tools"), hooks or a.hooks)
    answer: str = await asyncio.wait_for(get("orchestrator").execute("hello", *parts, **keywords), 10)
    return answer


def begin_turn(a: Any, made: Any) -> asyncio.Task[str]:
    """Begin a turn in a task of its own, so that a cancellation reaches it as it is."""
    get = a.session.coordinator.get
    parts = (get("context"), get("providers"), get("tools"), a.hooks)
    begun: asyncio.Task[str] = asyncio.ensure_future(
        made.execute("hello", *parts, coordinator=a.session.coordinator)
    )
    return begun


def causes_of(error: BaseException | None) -> list[str]:
    """Return an error with all that it bears."""
    return [] if error is None else [repr(error), *causes_of(error.__cause__), *causes_of(error.__context__)]


class Recording:
    """A registry that says nothing of who listens, so that everything is emitted; remembers what."""

    def __init__(self, registry: Any) -> None:
        self.registry = registry
        self.emitted: list[str] = []

    async def emit(self, event: str, data: dict[str, Any]) -> Any:
        self.emitted.append(event)
        return await self.registry.emit(event, data)


def sent_results(request: Any) -> list[str]:
    """The results of calls that a request to the LLM holds."""
    return [message.content for message in request.messages if message.role == "tool"]
