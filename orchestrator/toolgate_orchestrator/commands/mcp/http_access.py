"""Who may speak to the proxy over HTTP: this machine, or who has the token."""

import hmac
import json
from typing import Any, Final

PATH: Final = "/mcp"


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
