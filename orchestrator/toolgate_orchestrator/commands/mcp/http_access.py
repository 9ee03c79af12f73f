"""Access to the proxy over HTTP: checks token, path and body before the SDK reads a request.

A client that dies tells nobody, and its session stays open. So that one client cannot take all sessions, a
new session ends the quietest one of the address with the most of them. The proxy answers its client with 404
from then on, and the client begins anew.
"""

import hmac
import json
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from toolgate_bus.protocol.json_values import NotJson, UnreadableJson, read_json
from toolgate_bus.telemetry.loggers import get_logger

PATH: Final = "/mcp"
SESSION: Final = b"mcp-session-id"
_PARSE_ERROR: Final = -32700
"""Error code of JSON-RPC for a message that cannot be parsed."""
_log = get_logger("toolgate.mcp")


def guard_access(speak: Any, token: str | None, most: int) -> Any:
    """Return the application behind its token and its one path; a body has at most `most` bytes."""

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/healthz":
            await _answer(send, 200, {"detail": "ok"})
        elif token is not None and not _knows(scope, token):
            words = {"detail": "send the token: Authorization: Bearer …"}
            await _answer(send, 401, words, (b"www-authenticate", b"Bearer"))
        elif scope["path"].rstrip("/") != PATH:
            await _answer(send, 404, {"detail": f"MCP is served at {PATH}"})
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
            words = f"programs could read this message differently: {self._fault}"
            error = {"code": _PARSE_ERROR, "message": words}
            await _answer(self._send, 400, {"jsonrpc": "2.0", "id": None, "error": error})


class _Seat:
    """One session, and the calls of its client that are under way."""

    def __init__(self, address: str) -> None:
        self.address, self.busy = address, 0


class HttpSessions:
    """The sessions of all clients, the one that was quiet for longest first."""

    def __init__(
        self, speak: Any, living: Collection[str], end: Callable[[str], Awaitable[None]], most: int
    ) -> None:
        """`speak` is the application that has them, `living` are their ids, and `end` ends one of them.

        There are `most` at a time.
        """
        self._speak, self._living, self._end, self._most = speak, living, end, most
        self._seats: dict[str, _Seat] = {}

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, as `speak` does."""
        id_ = next((value.decode("latin-1") for name, value in scope["headers"] if name == SESSION), "")
        seat = self._seats.pop(id_, None)
        if seat is not None:
            self._seats[id_] = seat  # now it is the newest
        elif not id_ and scope["method"] == "POST" and len(self._living) >= self._most:
            await self._make_room()
        address = (scope.get("client") or ("",))[0]

        async def watch(message: Any) -> None:
            if message["type"] == "http.response.start":
                self._heed(id_, address, message)
            await send(message)

        is_call = (
            seat is not None and scope["method"] == "POST"
        )  # (a stream of GET lasts as long as a session)
        if seat is not None:
            seat.busy += is_call
        try:
            await self._speak(scope, receive, watch)
        finally:
            if seat is not None:
                seat.busy -= is_call

    def _heed(self, id_: str, address: str, answer: Any) -> None:
        given = {name.lower(): value for name, value in answer["headers"]}.get(SESSION)
        if not id_ and given is not None and answer["status"] < 400:
            self._seats[given.decode("latin-1")] = _Seat(address)

    async def _make_room(self) -> None:
        each: dict[str, list[str]] = {}
        self._seats = {id_: seat for id_, seat in self._seats.items() if id_ in self._living}
        for id_, seat in self._seats.items():
            each.setdefault(seat.address, []).append(id_)
        if not each:  # all of them are being opened: the SDK says so
            return
        most = max(each.values(), key=len)
        ended = next((id_ for id_ in most if not self._seats[id_].busy), most[0])
        seat = self._seats.pop(ended)
        _log.warning("all sessions are taken: a quiet one is ended", address=seat.address)
        await self._end(ended)


def _knows(scope: dict[str, Any], token: str) -> bool:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    return len(given) == 1 and hmac.compare_digest(given[0], f"Bearer {token}".encode())


async def _answer(send: Any, status: int, words: Any, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps(words).encode()
    told = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})
