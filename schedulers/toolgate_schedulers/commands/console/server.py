"""Serve the console: connections are bounded, and open pages do not delay its end."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp
from toolgate_bus.commands.http_connection import BoundedConnection
from toolgate_bus.commands.http_server import MAX_HEAD, HttpServer, make_config
from toolgate_bus.errors import ConfigError

GRACE_S: Final = 3
MAX_CONNECTIONS: Final = 256
Tls = tuple[Path, Path]
"""Files of certificate and key."""


def check_tls(cert: Path, key: Path) -> Tls:
    """Return certificate and key if they fit together; raise ConfigError if not."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--tls-cert, --tls-key: cannot be used: {error}") from None
    return cert, key


async def serve(
    app: ASGIApp, bound: socket.socket, tls: Tls | None, up: Callable[[], None], ending: Callable[[], None]
) -> None:
    """Serve until cancelled; then end the streams (`ending`), finish open answers, and return."""
    config = make_config(
        app,
        http=BoundedConnection,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEAD,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )
    server = HttpServer(config)
    serving: asyncio.Task[None] | None = None
    try:
        serving = await server.begin(bound, "console-http")
        up()
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        ending()
        if serving is not None:
            await server.end(serving, GRACE_S)
