"""The HTTP side of a sidecar, as an ASGI application: limits, tokens, bodies, errors. `routes` does the work.

A request that is not allowed is refused before its body is read. A body must come within `BODY_S` seconds and
`MAX_BODY` bytes. At most `MAX_REQUESTS` are answered at once. Each error says in words what to do.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final

from pydantic_core import PydanticSerializationError, to_json
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.json_values import UnreadableJson, read_json
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.coding_agents.translation import CLIENTS
from toolgate_orchestrator.commands.serve.access import AccessTokens
from toolgate_orchestrator.commands.serve.hook_handler import MAX_EVENT, HookHandler, timeout_of
from toolgate_orchestrator.commands.serve.patience import Abandonment, wait_at_most
from toolgate_orchestrator.commands.serve.problems import (
    PLAIN_TYPE,
    PROBLEM_TYPE,
    Problem,
    refuse_overload,
    refuse_stranger,
)
from toolgate_orchestrator.commands.serve.routes import OPEN_PAGES, PAGES, ROUTES, SidecarRoute, rulings_in
from toolgate_orchestrator.commands.serve.rulings import ENDING
from toolgate_orchestrator.commands.serve.service import SidecarService

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_BODY: Final = 1024 * 1024
MAX_REQUESTS: Final = 2048
BODY_S: Final = 10.0
MAX_REQUEST_ID: Final = 1024
JSON_TYPE: Final = b"application/json"
HOOKS: Final[Mapping[str, str]] = {f"/hooks/{client}": client for client in CLIENTS}
"""Paths for the hooks of coding agents, with their clients."""
_CLOSE: Final = frozenset({401, 408, 413, 503})
"""Statuses after which the connection is closed: the rest of the request is not read."""
_log = get_logger("toolgate.serve")


class _Caller:
    """The other end of one request."""

    __slots__ = ("_receive", "_task")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    async def gone(self) -> None:
        """Wait until the connection is closed."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._wait())
        await asyncio.shield(self._task)

    @property
    def is_gone(self) -> bool:
        """True if the connection is known to be closed."""
        return self._task is not None and self._task.done()

    def forget(self) -> None:
        """Stop watching the connection: the request is answered."""
        if self._task is not None:
            self._task.cancel()

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


class SidecarApp:
    """The application that uvicorn calls with each request."""

    def __init__(
        self,
        service: SidecarService,
        tokens: AccessTokens,
        pages: Mapping[str, Callable[[bytes], tuple[int, bytes, bytes]]],
        hooks: HookHandler | None = None,
        max_requests: int = MAX_REQUESTS,
    ) -> None:
        """`pages` maps each of `routes.PAGES` to a function of an Accept header: status, content type, body.

        `hooks` answers coding agents, at `/hooks/{client}`.
        """
        self._service, self._tokens, self._pages = service, tokens, pages
        self._hooks = hooks
        self._max_requests = max_requests
        self.requests = 0
        """Number of requests that are being answered."""
        self.last_request = 0.0
        """Time of the last request, by the event loop's clock."""

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        if len(headers) < len(scope["headers"]) and _is_twice(scope["headers"]):
            headers[b"authorization"] = b""  # programs differ in which of two they use
        path, method = scope["path"], scope["method"]
        route = ROUTES.get(path)
        extra: list[tuple[bytes, bytes]] = []
        request_id = headers.get(b"x-request-id")
        if request_id is not None and len(request_id) <= MAX_REQUEST_ID:
            extra.append((b"x-request-id", request_id))
        self.requests += 1
        self.last_request = asyncio.get_running_loop().time()
        try:
            if self.requests > self._max_requests:
                raise refuse_overload(f"the sidecar is answering {self._max_requests} requests already")
            if self._hooks is not None and path in HOOKS:
                told = bytes(scope.get("query_string", b""))
                body = await self._answer_hook(self._hooks, path, method, headers, told, receive)
                status, kind = 200, JSON_TYPE
            else:
                status, kind, body = await self._answer(route, path, method, headers, receive)
        except Problem as problem:
            status, kind, body = _tell(problem, route)
            extra += [(name.encode(), value.encode()) for name, value in problem.headers.items()]
        except Abandonment:  # nobody is there to read an answer
            return
        except Exception as error:  # noqa: BLE001 - a fault of ours; nobody may run a call for it
            _log.error("a request could not be answered", path=path[:64], error=where(error))
            words = "the sidecar failed on this request and let nothing run; see its log"
            status, kind, body = _tell(Problem(500, words), route)
        finally:
            self.requests -= 1
        if status in _CLOSE:
            extra.append((b"connection", b"close"))
        metrics.count(
            metrics.SERVE_REQUESTS, path if route or path in PAGES or path in HOOKS else "other", str(status)
        )
        head = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *extra]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})

    async def wait_idle(self, seconds: float) -> None:
        """Wait until nothing was requested for `seconds`, and nothing is open; for 0, for ever."""
        loop = asyncio.get_running_loop()
        self.last_request = self.last_request or loop.time()
        while True:
            left = self.last_request + seconds - loop.time()
            if seconds and left <= 0 and not self.requests and self._is_idle:
                return
            await asyncio.sleep(min(max(left, 0.1), 5.0))

    @property
    def _is_idle(self) -> bool:
        return self._service.is_idle and (self._hooks is None or self._hooks.is_idle)

    async def _answer_hook(
        self,
        hooks: HookHandler,
        path: str,
        method: str,
        headers: Mapping[bytes, bytes],
        query: bytes,
        receive: Receive,
    ) -> bytes:
        """Return the answer for a coding agent, even to a malformed event: it could not read our errors."""
        if method != "POST":
            raise Problem(405, f"{path} takes POST only", {"allow": "POST"})
        if not self._tokens.admits(headers.get(b"authorization")):
            raise refuse_stranger()
        if self._service.is_ending:
            raise refuse_overload(ENDING, 5)
        body = await _read_body(headers, receive, MAX_EVENT)
        seconds = timeout_of(headers.get(b"toolgate-timeout"), query)
        agent = headers.get(b"toolgate-agent", b"").decode("ascii", "replace")
        caller = _Caller(receive)
        try:
            return await hooks.answer(HOOKS[path], body, seconds, caller.gone, agent)
        finally:
            caller.forget()

    async def _answer(
        self,
        route: SidecarRoute | None,
        path: str,
        method: str,
        headers: Mapping[bytes, bytes],
        receive: Receive,
    ) -> tuple[int, bytes, bytes]:
        if route is None and path not in self._pages:
            there = ", ".join((*ROUTES, *PAGES, *(HOOKS if self._hooks is not None else ())))
            raise Problem(404, f"this path does not exist; use one of: {there}")
        allowed = ("POST",) if route is not None else ("GET", "HEAD")
        if method not in allowed:
            raise Problem(405, f"{path} takes {allowed[0]} only", {"allow": ", ".join(allowed)})
        if path not in OPEN_PAGES and not self._tokens.admits(headers.get(b"authorization")):
            raise refuse_stranger()
        if route is None:
            return self._pages[path](headers.get(b"accept", b""))
        if self._service.is_ending:
            raise refuse_overload(ENDING, 5)
        _check_type(headers.get(b"content-type", b""), route)
        try:
            value = read_json(await _read_body(headers, receive))
        except UnreadableJson as error:
            raise Problem(400, f"the body is not JSON that every program can read: {error}") from None
        caller = _Caller(receive)
        try:
            answer = await route.handle(self._service, value, caller.gone)
            if caller.is_gone:
                for ruling in rulings_in(answer):
                    self._service.release(ruling)
        except ConfigError as error:
            raise Problem(400, str(error)) from None
        finally:
            caller.forget()
        return 200, JSON_TYPE, _write(answer)


def _tell(problem: Problem, route: SidecarRoute | None) -> tuple[int, bytes, bytes]:
    if route is not None and route.is_authzen:
        return problem.status, PLAIN_TYPE, problem.as_text()
    return problem.status, PROBLEM_TYPE, problem.as_json()


def _write(answer: Mapping[str, Any]) -> bytes:
    try:
        return to_json(answer, inf_nan_mode="strings")
    except PydanticSerializationError:  # half of a character, which only an escape can write
        return json.dumps(answer).encode()


def _is_twice(fields: Iterable[tuple[bytes, bytes]]) -> bool:
    return sum(name == b"authorization" for name, _ in fields) > 1


def _check_type(told: bytes, route: SidecarRoute) -> None:
    kind = told.partition(b";")[0].strip().lower()
    if kind != JSON_TYPE:
        words = "send JSON with the header Content-Type: application/json"
        raise Problem(400 if route.is_authzen else 415, words)


async def _read_body(headers: Mapping[bytes, bytes], receive: Receive, limit: int = MAX_BODY) -> bytes:
    told = headers.get(b"content-length", b"0")
    if told.isdigit() and (len(told) > 9 or int(told) > limit):
        raise _too_large(limit)
    try:
        body = await wait_at_most(_join_parts(receive, limit), BODY_S)
    except TimeoutError:
        raise Problem(408, f"the body did not arrive within {BODY_S:g} s; send it in one piece") from None
    if len(body) > limit:
        raise _too_large(limit)
    return body


async def _join_parts(receive: Receive, limit: int) -> bytes:
    """Return a body, or the beginning of one that is too large. Raises Abandonment if the caller left."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts = bytearray(body)
        while message.get("more_body") and len(parts) <= limit:
            message = await receive()
            parts += message.get("body", b"")
        body = bytes(parts)
    if message["type"] == "http.disconnect":
        raise Abandonment("gone")
    return body


def _too_large(limit: int) -> Problem:
    return Problem(
        413,
        f"the body is larger than {limit // 1024} KiB; send what rules need, and leave out long contents",
    )
