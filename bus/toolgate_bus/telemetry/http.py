"""Serve a page of metrics over HTTP, from a thread of its own.

    /metrics   the page, in the format that the reader asks for by its Accept header
    /healthz   200 while the process does its work, 503 while it does not
    /livez     200 while the process lives

The caller decides what is on the page (`metrics`). Each connection has one request and
`MAX_SECONDS` seconds in all; beyond `MAX_CONNECTIONS` the oldest makes room for the newest.
"""

import contextlib
import errno
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6, SHUT_RDWR, gaierror, socket
from socketserver import TCPServer
from threading import Thread
from typing import Any, Final

from toolgate_bus.errors import ConfigError

Page = Callable[[str], tuple[str, bytes]]
"""Function from an Accept header to content type and body."""
Health = Callable[[], tuple[bool, str]]
"""Function that returns whether all is well, and a sentence about it."""
SLOW_READER_S: Final = 10.0
MAX_SECONDS: Final = 30.0
MAX_CONNECTIONS: Final = 64
_PLAIN: Final = "text/plain; charset=utf-8"


class PageServer:
    """Server of one page, which runs until it is closed."""

    def __init__(self, server: "_HttpServer") -> None:
        self._server = server
        self.address, self.port = server.server_address[:2]
        host = f"[{self.address!s}]" if ":" in str(self.address) else str(self.address)
        self.url = f"http://{host}:{self.port}/metrics"
        """URL of the metrics."""
        Thread(target=server.serve_forever, name="toolgate-metrics", args=(0.1,), daemon=True).start()

    def close(self) -> None:
        """Stop, and free the port."""
        self._server.shutdown()
        self._server.server_close()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    page: Page
    health: Health

    def __init__(self, *args: Any) -> None:
        self._open: dict[socket, float] = {}
        """Time of acceptance of each connection, the oldest first; changed by one operation at a time."""
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread. End the oldest connection if there are too many."""
        self._open[request] = time.monotonic()
        if len(self._open) > MAX_CONNECTIONS:
            self._end(next(iter(tuple(self._open))))
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that is over."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that have taken too long. Called ten times a second."""
        before = time.monotonic() - MAX_SECONDS
        for request, since in tuple(self._open.items()):
            if since < before:
                self._end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a reader that went away, or was told to, is no event."""

    def _end(self, request: socket) -> None:
        """Shut a connection down, so that its thread finds that nothing more comes."""
        self._open.pop(request, None)
        with contextlib.suppress(OSError):  # it has just ended by itself
            request.shutdown(SHUT_RDWR)

    def server_bind(self) -> None:
        """Bind without looking up the name of this machine, which may take its time."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]


class _Server6(_HttpServer):
    address_family = AF_INET6


class _Handler(BaseHTTPRequestHandler):
    timeout = SLOW_READER_S
    server: _HttpServer

    def do_GET(self) -> None:
        """Answer one request."""
        path = self.path.partition("?")[0]
        if path in ("/metrics", "/"):
            self._answer(200, *self.server.page(self.headers.get("Accept", "")))
        elif path in ("/healthz", "/livez"):
            well, words = self.server.health() if path == "/healthz" else (True, "it lives")
            self._answer(200 if well else 503, _PLAIN, f"{words}\n".encode())
        else:
            self._answer(404, _PLAIN, b"There are /metrics, /healthz and /livez.\n")

    def log_message(self, *_: object) -> None:
        """Say nothing: a scrape is no event."""

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve_page(port: int, address: str, page: Page, health: Health = lambda: (True, "it runs")) -> PageServer:
    """Serve at address:port, where 0 is any free port. Raise ConfigError if it cannot listen there."""
    made = _Server6 if ":" in address else _HttpServer
    try:
        server = made((address, port), _Handler)
    except (OSError, OverflowError) as error:
        number, why = getattr(error, "errno", None), f"cannot listen on port {port} of {address}: {error}"
        if number == errno.EADDRINUSE:
            why = f"port {port} of {address} is in use; give another one, or 0 for any that is free"
        elif isinstance(error, gaierror) or number == errno.EADDRNOTAVAIL:
            why = f"{address} is no address of this machine"
        raise ConfigError(f"metrics port: {why}") from error
    server.page, server.health = page, health
    return PageServer(server)
