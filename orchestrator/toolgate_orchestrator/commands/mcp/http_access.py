"""Access to the proxy over HTTP: checks token, path and body before the SDK reads a request."""

import hmac
import json
from typing import Any, Final

from toolgate_bus.protocol.json_values import NotJson, UnreadableJson, read_json

PATH: Final = "/mcp"
_PARSE_ERROR: Final = -32700
"""Error code of JSON-RPC for a message that cannot be parsed."""


def guard_access(speak: Any, token: str | None, most: int) -> Any:
    """Return the application behind its token and its one path; a body has at most `most` bytes."""

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/healthz":
            await _answer(send, 200, {"detail": "ok"})
        elif token is not None and not _knows(scope, token):
            words = {"detail": "a token is needed: Authorization: Bearer …"}
            await _answer(send, 401, words, (b"www-authenticate", b"Bearer"))
        elif scope["path"].rstrip("/") != PATH:
            await _answer(send, 404, {"detail": f"MCP is spoken at {PATH}"})
        else:
            exchange = _Exchange(receive, send, most)
            await speak(scope, exchange.receive, exchange.send)

    return app


class _Exchange:
    """One request to the SDK. A body that programs could read in several ways is refused."""

    def __init__(self, receive: Any, send: Any, most: int) -> None:
        self._receive, self._send, self._most = receive, send, most
        self._is_read, self._fault = False, ""

    async def receive(self) -> Any:
        """Return the body in one piece, then all later messages."""
        message = await self._receive()
        if self._is_read or message["type"] != "http.request":
            return message
        self._is_read = True
        body = bytearray(message.get("body", b""))
        while message.get("more_body") and len(body) <= self._most:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
        try:
            if len(body) <= self._most:
                read_json(bytes(body), halves=False)
        except NotJson:
            pass  # the SDK reports it
        except UnreadableJson as error:
            self._fault, body = str(error), bytearray()
        return {**message, "body": bytes(body)}

    async def send(self, message: Any) -> None:
        """Send the SDK's answer, or an error in its place."""
        if not self._fault:
            await self._send(message)
        elif message["type"] == "http.response.start":
            words = f"programs read the message in several ways: {self._fault}"
            error = {"code": _PARSE_ERROR, "message": words}
            await _answer(self._send, 400, {"jsonrpc": "2.0", "id": None, "error": error})


def _knows(scope: dict[str, Any], token: str) -> bool:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    return len(given) == 1 and hmac.compare_digest(given[0], f"Bearer {token}".encode())


async def _answer(send: Any, status: int, words: Any, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps(words).encode()
    told = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})
