"""One connected server behind the proxy: passes requests to it, and its messages back.

A message about a request, such as its progress or a subscription's event, goes to the exchange of that
request.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from toolgate_bus.protocol.json_values import holds_half
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_orchestrator.commands.mcp import sdk
from toolgate_orchestrator.commands.mcp.child import start_child
from toolgate_orchestrator.commands.mcp.config import McpConfig
from toolgate_orchestrator.commands.mcp.http_client import make_client, read_headers
from toolgate_orchestrator.commands.mcp.lines import open_lines
from toolgate_orchestrator.commands.mcp.messages import (
    CALL,
    CANCELLED,
    DISCOVER,
    INITIALIZE,
    LISTEN,
    PROGRESS,
    SUBSCRIPTION,
    Message,
    Params,
    meta_of,
    token_of,
    version_of,
    with_meta,
)

MAX_UNHEARD: Final = 1_000
"""Maximum number of notifications, or of requests, of one peer."""
_CLOSED: Final = "Connection closed"
"""Message of the SDK's error for a closed connection."""
_NO_HALVES: Final = (
    "a text in it holds half a character (a lone surrogate), which cannot be sent to a server over HTTP"
)
_log = get_logger("toolgate.mcp")


class MessageLimit:
    """Unrequested messages of one peer that wait to be passed on to the other.

    The SDK reads each message at once. A peer that sends more than the other one reads would fill the memory.
    """

    def __init__(self) -> None:
        self._count, self._dropped = 0, 0

    @contextlib.contextmanager
    def acquire(self, who: str) -> Iterator[bool]:
        """Take a place for one message during the block; yield False if there is none, and the message is
        dropped."""
        has_room = self._count < MAX_UNHEARD
        if not has_room:
            self._dropped += 1
            if self._dropped & (self._dropped - 1) == 0:  # the first, the second, the fourth …
                _log.warning("messages are dropped: nobody reads them", by=who, dropped=self._dropped)
        self._count += has_room
        try:
            yield has_room
        finally:
            self._count -= has_room


class Hearer(Protocol):
    """Receiver of messages that a server sends unasked."""

    async def answer(self, server: "Upstream", method: str, params: Params) -> Message:
        """Answer a server's request to the client. Raise MCPError."""

    async def hear(self, server: "Upstream", method: str, params: Params) -> None:
        """Take a notification that belongs to no request."""

    async def sift(self, server: "Upstream", method: str, params: Params) -> Sequence[Params]:
        """Return the parameters of a notification as the client may see them; empty if it may not."""


class Upstream:
    """A connected server; `connect` makes it."""

    def __init__(
        self,
        name: str,
        config: McpConfig,
        dispatcher: Any,
        hearer: Hearer,
        how: Callable[[], Awaitable[str]],
        *,
        shared: bool,
    ) -> None:
        """Make a server; `how` returns the way in which it ended.

        `shared` means that its requests come from several clients, perhaps with the same ids.
        """
        self.name, self.prefix = name, config.prefix_of(name)
        self.capabilities: Mapping[str, Any] | None = None
        """Capabilities of the server; None until it reports them."""
        self.version = ""
        """Agreed revision of MCP, in the older era."""
        self.ready, self.closed = asyncio.Event(), asyncio.Event()
        self._config, self._dispatcher, self._hearer, self._shared = config, dispatcher, hearer, shared
        self._how = how
        self._is_remote = config.servers[name].command is None
        self._told: dict[str | int, tuple[sdk.Exchange, str | int]] = {}
        """Exchange of each request and its own token there, by the server's progress token or
        subscription."""
        self._asks, self._tells = MessageLimit(), MessageLimit()
        self._count = 0

    async def request(
        self,
        exchange: sdk.Exchange | None,
        method: str,
        params: Params,
        schema: Mapping[str, Any] | None = None,
    ) -> Message:
        """Return the server's answer. `exchange` is the client's request that needs it. Raise MCPError."""
        if method == CALL and self._is_remote and holds_half(params):
            raise sdk.MCPError(sdk.INVALID_PARAMS, _NO_HALVES)
        opts = self._options(method, params, schema)
        if exchange is None:
            opts["timeout"] = min(self._config.start_timeout_s, self._config.call_timeout_s)
        self._count += 1
        own = f"toolgate-{self._count}"
        id_ = exchange.request_id if exchange is not None and not self._shared else own
        opts["request_id"] = own if id_ is None else id_
        sent, known = self._listen_for(exchange, method, params, own, opts["request_id"])
        try:
            result: Message = await self._dispatcher.send_raw_request(method, sent, opts)
        except ValueError:
            raise sdk.MCPError(
                sdk.INVALID_REQUEST, f"an earlier request with the id {id_!r} is still open"
            ) from None
        except sdk.MCPError as error:
            if error.code == sdk.CONNECTION_CLOSED and error.message == _CLOSED:
                raise await self.end_error() from None
            if error.code == sdk.REQUEST_TIMEOUT:
                seconds = opts.get("timeout")
                raise sdk.MCPError(
                    sdk.REQUEST_TIMEOUT, f"the MCP server {self.name} did not answer in {seconds:g} s"
                ) from None
            raise
        finally:
            for key in known:
                self._told.pop(key, None)
        self._learn(method, result)
        return result

    async def end_error(self) -> sdk.MCPError:
        """Return the error for requests to a server that has ended."""
        return sdk.MCPError(
            sdk.CONNECTION_CLOSED, f"the MCP server {self.name} has ended: {await self._how()}"
        )

    def started(self, value: object = None) -> None:
        """Note that the server can take requests; the dispatcher calls this."""
        self.ready.set()

    async def notify(self, method: str, params: Params) -> None:
        """Send a notification to the server."""
        headers = sdk.headers_for(
            method, params, self._version(params), None, modern=bool(version_of(params))
        )
        await self._dispatcher.notify(method, params, {"headers": headers} if headers else None)

    def _options(self, method: str, params: Params, schema: Mapping[str, Any] | None) -> sdk.CallOptions:
        opts: sdk.CallOptions = {}
        if method in (INITIALIZE, DISCOVER):
            opts["timeout"] = self._config.start_timeout_s
            opts["cancel_on_abandon"] = method != INITIALIZE
        elif method != LISTEN:
            opts["timeout"] = self._config.call_timeout_s
        modern = bool(version_of(params))
        if headers := sdk.headers_for(method, params, self._version(params), schema, modern=modern):
            opts["headers"] = headers
        return opts

    def _version(self, params: Params) -> str:
        return version_of(params) or self.version

    def _listen_for(
        self, exchange: sdk.Exchange | None, method: str, params: Params, own: str, id_: str | int
    ) -> tuple[Params, list[str | int]]:
        """Return the parameters for the server, and the keys under which it will report on this request."""
        if exchange is None:
            return params, []
        known: list[str | int] = []
        if method == LISTEN and exchange.request_id is not None:
            self._told[id_] = exchange, exchange.request_id
            known.append(id_)
        token = token_of(params)
        if token is not None:
            taken = self._shared or token in self._told
            key = own if taken else token
            self._told[key] = exchange, token
            known.append(key)
            params = with_meta(params, progressToken=own) if taken else params
        return params, known

    def _learn(self, method: str, result: Message) -> None:
        if method not in (INITIALIZE, DISCOVER):
            return
        told = result.get("capabilities")
        self.capabilities = told if isinstance(told, Mapping) else {}
        version = result.get("protocolVersion")
        self.version = version if isinstance(version, str) and method == INITIALIZE else ""

    # ------------------------------------------------------------ unasked messages of the server

    async def on_request(self, exchange: Any, method: str, params: Params) -> Message:
        """Handle a request of the server to the client."""
        with self._asks.acquire(self.name) as has_room:
            if not has_room:
                raise sdk.MCPError(sdk.INTERNAL_ERROR, f"{MAX_UNHEARD} requests are still open")
            return await self._hearer.answer(self, method, params)

    async def on_notify(self, exchange: Any, method: str, params: Params) -> None:
        """Handle a notification of the server, about one request or none."""
        if method == CANCELLED:
            return  # the dispatcher has handled it
        with self._tells.acquire(self.name) as has_room:
            if has_room:
                await self._pass_on(method, params)

    async def _pass_on(self, method: str, params: Params) -> None:
        subscription = meta_of(params).get(SUBSCRIPTION)
        key = (params or {}).get("progressToken") if method == PROGRESS else subscription
        whose = self._told.get(key) if isinstance(key, str | int) else None
        if whose is None and method == PROGRESS:
            return
        for told in await self._hearer.sift(self, method, params):
            if whose is None:
                await self._hearer.hear(self, method, told)
                continue
            to, name = whose
            await to.notify(
                method,
                {**(told or {}), "progressToken": name}
                if method == PROGRESS
                else with_meta(told, **{SUBSCRIPTION: name}),
            )


@contextlib.asynccontextmanager
async def connect(
    name: str, config: McpConfig, hearer: Hearer, *, shared: bool = False
) -> AsyncIterator[Upstream]:
    """Connect a server for the length of the block. Raise ConfigError if it cannot be started."""
    server = config.servers[name]
    async with contextlib.AsyncExitStack() as stack:
        how: Callable[[], Awaitable[str]] = _say_closed
        if server.command is not None:
            child = await stack.enter_async_context(start_child(name, server.command, server.env, server.cwd))
            streams = await stack.enter_async_context(open_lines(child.peer, config.max_message))
            how = child.how_it_ended
        else:
            client = make_client(
                read_headers(name, server.headers_env), config.max_message, config.call_timeout_s
            )
            await stack.enter_async_context(client)
            streams = await stack.enter_async_context(
                sdk.http_streams(server.url or "", client, config.max_message)
            )
        dispatcher = sdk.make_dispatcher(streams)
        upstream = Upstream(name, config, dispatcher, hearer, how, shared=shared)
        serving = asyncio.create_task(_serve(dispatcher, upstream), name=f"mcp-{name}")
        try:
            await upstream.ready.wait()
            yield upstream
        finally:
            serving.cancel()
            await asyncio.wait([serving])


async def _serve(dispatcher: Any, upstream: Upstream) -> None:
    try:
        await dispatcher.run(upstream.on_request, upstream.on_notify, task_status=upstream)
    finally:
        upstream.started()
        upstream.closed.set()


async def _say_closed() -> str:
    return "the connection was closed"
