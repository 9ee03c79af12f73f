"""Limit HTTP connections in time and number.

uvicorn waits forever for a request that never comes, or comes byte by byte. At its limit of connections it
refuses everybody. Here a connection has `REQUEST_S` seconds for each request, head and body. If there are
too many connections, the one that has waited for its request for longest is closed. Connections whose
request is being answered (the streams of open pages) are left alone.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from toolgate_bus.commands.http_server import MAX_HEAD, HttpServer, make_config

REQUEST_S: Final = 10.0
GRACE_S: Final = 3
"""Seconds that open answers have at the end."""
ROOM: Final = 16
"""Number of connections below the limit at which idle connections begin to be closed."""
UNACKNOWLEDGED_MS: Final = 30_000
"""Milliseconds without an acknowledgement after which a peer counts as gone. Ends abandoned streams."""


class BoundedConnection(H11Protocol):
    """Connection with a time limit for requests. `_idle` has those that wait for a request, oldest first."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        found = transport.get_extra_info("socket")
        if found is not None and hasattr(socket, "TCP_USER_TIMEOUT") and found.family != socket.AF_UNIX:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, UNACKNOWLEDGED_MS // 1000)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
        self._wait()
        limit = self.limit_concurrency
        if limit is not None and len(self.connections) > limit - ROOM:
            next(iter(self._idle)).give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the wait for a request."""
        self._wait_no_longer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        if not self._awaits_request:
            self._wait_no_longer()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing() and self._awaits_request:
            self._wait()

    def give_up(self) -> None:
        """Close the connection without a reply, because it sent no whole request."""
        self._wait_no_longer()
        self.transport.abort()

    @property
    def _awaits_request(self) -> bool:
        """True while head or body is incomplete. A peer that closed after its request has sent it all."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    @property
    def _idle(self) -> dict["BoundedConnection", asyncio.TimerHandle]:
        found: dict[BoundedConnection, asyncio.TimerHandle] = self.server_state.__dict__.setdefault(
            "toolgate_idle", {}
        )
        return found

    def _wait(self) -> None:
        self._wait_no_longer()
        self._idle[self] = self.loop.call_later(REQUEST_S, self.give_up)

    def _wait_no_longer(self) -> None:
        timer = self._idle.pop(self, None)
        if timer is not None:
            timer.cancel()


async def serve_bounded(
    app: Any,
    bound: socket.socket,
    name: str,
    most: int,
    up: Callable[[], None],
    ending: Callable[[], None] = lambda: None,
    **options: Any,
) -> None:
    """Serve an application with at most `most` connections until cancelled; then call `ending`, finish open
    answers, and return. `options` go to uvicorn.
    """
    server = HttpServer(
        make_config(
            app,
            http=BoundedConnection,
            limit_concurrency=most,
            h11_max_incomplete_event_size=MAX_HEAD,
            timeout_graceful_shutdown=GRACE_S,
            **options,
        )
    )
    serving: asyncio.Task[None] | None = None
    try:
        serving = await server.begin(bound, name)
        up()
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        ending()
        if serving is not None:
            await server.end(serving, GRACE_S)
