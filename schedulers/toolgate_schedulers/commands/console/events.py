"""An answer that goes on: server-sent events, until the page leaves or there are no more."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
from starlette.types import Receive, Scope, Send

__all__ = ["EventStream"]

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class EventStream:
    """Sends each event as it comes; the generator is closed as soon as the page is gone."""

    def __init__(self, events: AsyncGenerator[str]) -> None:
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._until_gone, receive, tasks.cancel_scope)
            async with aclosing(self._events) as events:
                await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
                async for event in events:
                    await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            tasks.cancel_scope.cancel()

    async def _until_gone(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()
