"""The sockets of a sidecar, and uvicorn on them: requests that are too slow, too large or too many end here.

uvicorn waits for ever for a head that does not come. Here a connection has `HEAD_S` seconds for the head of
its first request, `IDLE_S` between two, and `MAX_HEAD` bytes for each head. If there are too many
connections, idle ones make room, the longest idle first.
"""

import asyncio
import re
import resource
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from toolgate_bus.commands.http_server import MAX_HEAD, HttpServer, make_config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from toolgate_orchestrator.commands.serve.access import TlsFiles
from toolgate_orchestrator.commands.serve.problems import PROBLEM_TYPE, Problem, refuse_overload

HEAD_S: Final = 10.0
IDLE_S: Final = 75.0
MAX_CONNECTIONS: Final = 2048
SPARE_FILES: Final = 128
"""Number of file descriptors of this process that are kept for the bus and logs."""
GRACE_S: Final = 2
"""Seconds that a connection has to take its answer after the last one was given."""
SWEEP_S: Final = 0.5
_UPGRADE: Final = re.compile(rb"\r\nupgrade *:", re.IGNORECASE)


class SidecarConnection(HttpToolsProtocol):
    """One connection."""

    waits_since: float = 0.0
    """Time since which it owes us the rest of a head; 0 while it owes nothing."""
    idle_since: float = 0.0
    """Time since which nothing is asked on it; 0 while something is."""
    _head: int = 0
    """Bytes that came since the last part of a request was complete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.waits_since = self.idle_since = self.loop.time()
        limit = find_max_connections()
        if len(self.connections) > limit and not self._make_room():
            self._refuse(refuse_overload(f"{limit} connections are open already"))

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        if self.idle_since:
            self.waits_since = self.waits_since or self.loop.time()
            data = ignore_upgrade(data)
        self._head += len(data)
        super().data_received(data)
        if self._head > MAX_HEAD:
            self._refuse(Problem(431, f"the head of a request may have at most {MAX_HEAD // 1024} KiB"))

    def on_headers_complete(self) -> None:
        """Note that the head is complete."""
        self.waits_since = self.idle_since = 0.0
        self._head = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        self._head = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        if not self.pipeline:
            self.idle_since = self.loop.time()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP."""
        self._refuse(Problem(400, "this is not an HTTP request; use HTTP/1.1"))

    def _unsupported_upgrade_warning(self) -> None:
        self._refuse(Problem(400, "this server speaks no other protocol; use HTTP/1.1 without Upgrade"))

    def find_overdue(self, now: float) -> Problem | None:
        """Return the problem of a connection that is too slow; None while it is not."""
        if self.waits_since and now - self.waits_since > HEAD_S:
            return Problem(408, f"the head of the request did not arrive within {HEAD_S:g} s")
        return None

    def end(self, problem: Problem) -> None:
        """Tell the reason, and close."""
        self._refuse(problem)

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        body = problem.as_json()
        head = [
            f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}".encode(),
            b"content-type: " + PROBLEM_TYPE,
        ]
        head += [f"{name}: {value}".encode() for name, value in problem.headers.items()]
        head += [b"content-length: %d" % len(body), b"connection: close", b"", body]
        self.transport.write(b"\r\n".join(head))
        self.transport.close()

    def _make_room(self) -> bool:
        """Close the connection that is idle for longest. Return False if none is idle."""
        others = [one for one in self.connections if isinstance(one, SidecarConnection) and one is not self]
        idle = [one for one in others if one.idle_since and not one.transport.is_closing()]
        if not idle:
            return False
        min(idle, key=lambda one: one.idle_since).transport.close()
        return True


def ignore_upgrade(data: bytes) -> bytes:
    """Return the beginning of a request without its Upgrade header, which some libraries send first.

    The parser would take what follows the head for that protocol.
    """
    if _UPGRADE.search(data) is None:
        return data
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"\r\nx-upgrade:", head) + end + rest


def find_max_connections() -> int:
    """Return how many connections may be open: fewer if this process may open few files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MAX_CONNECTIONS, max(8, soft - SPARE_FILES)) if soft > 0 else MAX_CONNECTIONS


class SidecarServer(HttpServer):
    """A server that ends connections that are too slow."""

    async def sweep(self) -> None:
        """End connections that are too slow, now and then, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            now = loop.time()
            for one in tuple(self.server_state.connections):
                if isinstance(one, SidecarConnection) and (problem := one.find_overdue(now)) is not None:
                    one.end(problem)


def make_server(app: Any, tls: TlsFiles | None) -> SidecarServer:
    """Make a server for an application; its callers need certificates if `tls` names their CA."""
    return SidecarServer(
        make_config(
            app,
            http=SidecarConnection,
            date_header=False,
            timeout_keep_alive=int(IDLE_S),
            timeout_graceful_shutdown=GRACE_S,
            ssl_certfile=tls.cert if tls else None,
            ssl_keyfile=tls.key if tls else None,
            ssl_ca_certs=str(tls.client_ca) if tls and tls.client_ca else None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if tls and tls.client_ca else ssl.CERT_NONE,
        )
    )


async def serve(
    server: SidecarServer,
    bound: socket.socket,
    up: Callable[[], None],
    end: Callable[[], Any],
    over: Callable[[], Any],
) -> None:
    """Serve until cancelled, or until `over` returns; then `end` answers what is open, and the sockets close.

    Both are coroutine functions.
    """
    sweeping = asyncio.create_task(server.sweep(), name="toolgate-serve-sweep")
    serving: asyncio.Task[None] | None = None
    try:
        serving = await server.begin(bound, "toolgate-serve-http")
        up()
        leaving = asyncio.create_task(over(), name="toolgate-serve-over")
        try:
            await asyncio.wait([serving, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
    except asyncio.CancelledError:  # cancellation is the signal to finish
        pass
    finally:
        sweeping.cancel()
    if serving is not None and serving.done():
        serving.result()  # it ended by itself: raise the reason
    await end()
    if serving is not None:
        await server.end(serving, 1.5 * GRACE_S)
