"""Who may speak to the proxy over HTTP: this machine, or who has the token; and where it listens."""

import hmac
import ipaddress
import json
import socket
from typing import Any, Final

from toolgate_bus.errors import ConfigError

PATH: Final = "/mcp"
MIN_TOKEN: Final = 16


def check_token(token: str) -> str:
    """A token that cannot be guessed; raises ConfigError."""
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"TOOLGATE_MCP_TOKEN: at least {MIN_TOKEN} printable ASCII characters without spaces "
            "(`openssl rand -hex 24`)"
        )
    return token


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def bind_socket(address: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any that is free. Raises ConfigError."""
    try:
        family, kind, proto, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigError(f"--address: {address} is no address of this machine: {error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
        bound.listen(1024)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConfigError(f"--http: {address} port {port} cannot be listened on: {error.strerror}") from None
    return bound


def guard_access(speak: Any, token: str | None) -> Any:
    """The application with its token, its one path, and whether it is up."""

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/healthz":
            await _answer(send, 200, "ok")
        elif token is not None and not _knows(scope, token):
            await _answer(
                send, 401, "a token is needed: Authorization: Bearer …", (b"www-authenticate", b"Bearer")
            )
        elif scope["path"].rstrip("/") != PATH:
            await _answer(send, 404, f"MCP is spoken at {PATH}")
        else:
            await speak(scope, receive, send)

    return app


def _knows(scope: dict[str, Any], token: str) -> bool:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    return len(given) == 1 and hmac.compare_digest(given[0], f"Bearer {token}".encode())


async def _answer(send: Any, status: int, words: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"detail": words}).encode()
    told = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})
