"""Clients over streamable HTTP: from this machine only, or with a token.

A client of the older era has a session and its own servers behind it. Clients of the newer era have no
session, and share one set of servers. A request without the token, for another host, or from a foreign web
page is refused before it is read.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

from toolgate_bus.commands.http_connection import serve_bounded

from toolgate_orchestrator.commands.mcp import sdk
from toolgate_orchestrator.commands.mcp.http_access import guard_access
from toolgate_orchestrator.commands.mcp.session import ProxySession

MAX_SESSIONS: Final = 1_000
MAX_CONNECTIONS: Final = 4_096
_STATE: Final = "toolgate"


class Sessions:
    """The sessions of all clients of a proxy."""

    def __init__(self, make: Callable[[str, bool], ProxySession]) -> None:
        """Make an empty set; `make` creates a session from its name and whether it is shared."""
        self._make = make
        self._shared: ProxySession | None = None
        self._living: set[asyncio.Task[None]] = set()

    async def handle(self, ctx: Any) -> dict[str, Any]:
        """Handle one message of a client."""
        exchange, connection = sdk.channels_of(ctx)
        session = self._find(connection)
        if ctx.request_id is not None:
            return await session.on_request(exchange, ctx.method, ctx.params)
        await session.on_notify(exchange, ctx.method, ctx.params)
        return {}

    def _find(self, connection: Any) -> ProxySession:
        if connection.session_id is None:
            if self._shared is None or self._shared.closed.is_set():
                self._shared = self._open("shared", shared=True)
            return self._shared
        found: ProxySession | None = connection.state.get(_STATE)
        if found is None:
            found = self._open(connection.session_id, shared=False)
            found.front = connection.outbound
            connection.state[_STATE] = found
            connection.exit_stack.callback(found.close)
        return found

    def _open(self, name: str, *, shared: bool) -> ProxySession:
        session = self._make(name, shared)
        task = asyncio.create_task(session.live(), name=f"mcp-session-{name[:8]}")
        self._living.add(task)
        task.add_done_callback(self._living.discard)
        return session

    async def aclose(self) -> None:
        """End all sessions and their servers."""
        living = list(self._living)
        for task in living:
            task.cancel()
        if living:
            await asyncio.wait(living)


async def serve_http(
    sessions: Sessions,
    bound: socket.socket,
    hosts: list[str],
    token: str | None,
    most: int,
    up: Callable[[], None],
) -> None:
    """Serve until cancelled, then end what runs and return."""
    async with sdk.http_front(sessions.handle, hosts=hosts, most=most, max_sessions=MAX_SESSIONS) as speak:
        try:
            app = guard_access(speak, token, most)
            await serve_bounded(app, bound, "mcp-http", MAX_CONNECTIONS, up)
        finally:
            await sessions.aclose()
