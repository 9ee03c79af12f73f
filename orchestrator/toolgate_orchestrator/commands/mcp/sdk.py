"""The one door to the official SDK of MCP: its messages, dispatchers and transports, as far as the proxy uses
them.

A dispatcher matches answers to requests over a pair of streams, and tells each side of cancellations; what
stands in the messages it leaves alone. `http_front` is the SDK's own server for streamable HTTP, for both
eras of the protocol, with one function in the place of all its handlers.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.dispatcher import CallOptions, Outbound
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
    ErrorData,
    JSONRPCError,
    jsonrpc_message_adapter,
)
from toolgate_bus.protocol.json_values import read_json

from toolgate_orchestrator.commands.mcp.http_access import HttpSessions

__all__ = [
    "CONNECTION_CLOSED",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "REQUEST_TIMEOUT",
    "CallOptions",
    "Closed",
    "Exchange",
    "MCPError",
    "Outbound",
    "SessionMessage",
    "http_front",
    "http_streams",
    "make_dispatcher",
    "message_stream",
]

SendStream = MemoryObjectSendStream[SessionMessage | Exception]
ReceiveStream = MemoryObjectReceiveStream[SessionMessage | Exception]
Streams = tuple[Any, Any]
"""What a transport gives: to read messages from, and to write them to."""
Closed: Final = (anyio.ClosedResourceError, anyio.BrokenResourceError)
"""What a stream raises whose other end is gone."""
_BUFFER: Final = 16


class Exchange(Outbound, Protocol):
    """One request or notification of a peer, and the way back to it while it is handled."""

    @property
    def request_id(self) -> str | int | None:
        """Its id; None for a notification."""

    @property
    def can_send_request(self) -> bool:
        """Whether the peer can be asked something meanwhile."""


OnRequest = Callable[[Any, str, Mapping[str, Any] | None], Awaitable[dict[str, Any]]]
"""Answers a request: its exchange, method and parameters. Raises MCPError."""
OnNotify = Callable[[Any, str, Mapping[str, Any] | None], Awaitable[None]]
"""Takes a notification."""


# ---------------------------------------------------------------- messages


def message_stream() -> tuple[Any, Any]:
    """Both ends of a short line of messages."""
    return anyio.create_memory_object_stream[SessionMessage | Exception](_BUFFER)


def read_message(line: bytes) -> SessionMessage | None:
    """Return the message that a line holds; None for what is none, or what programs read in several ways."""
    try:
        return SessionMessage(
            jsonrpc_message_adapter.validate_python(read_json(line, halves=False), by_name=False)
        )
    except (ValueError, RecursionError):
        return None


def write_message(message: SessionMessage | Exception) -> bytes:
    """A message as a line."""
    if isinstance(message, Exception):
        raise message
    return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def error_message(id_: str | int | None, code: int, words: str) -> SessionMessage:
    """The answer that a request has failed; None where nobody knows which."""
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id_, error=ErrorData(code=code, message=words)))


def make_dispatcher(streams: Streams) -> JSONRPCDispatcher[Any]:
    """A dispatcher over a transport; `initialize` is answered before what follows is looked at."""
    return JSONRPCDispatcher(*streams, inline_methods=frozenset({"initialize"}))


# ---------------------------------------------------------------- HTTP


def headers_for(
    method: str,
    params: Mapping[str, Any] | None,
    version: str,
    schema: Mapping[str, Any] | None,
    *,
    modern: bool,
) -> dict[str, str]:
    """The headers that a message bears over HTTP; in the newer era they repeat what stands in it."""
    headers = {MCP_PROTOCOL_VERSION_HEADER: version} if version else {}
    if not modern:
        return headers
    headers[MCP_METHOD_HEADER] = method
    given = params or {}
    name = given.get(NAME_BEARING_METHODS.get(method, ""))
    if isinstance(name, str):
        headers[MCP_NAME_HEADER] = encode_header_value(name)
    arguments = given.get("arguments")
    if method == "tools/call" and schema is not None and isinstance(arguments, Mapping):
        headers.update(mcp_param_headers(x_mcp_header_map(schema), arguments))
    return headers


def http_streams(url: str, client: Any, most: int) -> AbstractAsyncContextManager[Streams]:
    """The transport to a server over HTTP; no event in its streams is longer than so many bytes."""
    return streamable_http_client(url, http_client=client, max_sse_event_size=most)


def channels_of(ctx: ServerRequestContext[Any, Any]) -> tuple[Exchange, Any]:
    """The exchange that a message of a client over HTTP belongs to, and its connection.

    The SDK hands its handlers typed helpers; what passes through here has no types, and needs what is
    below them.
    """
    session: Any = ctx.session
    return session._request_outbound, session._connection


@asynccontextmanager
async def http_front(
    handle: Callable[[ServerRequestContext[Any, Any]], Awaitable[dict[str, Any]]],
    *,
    hosts: list[str],
    most: int,
    max_sessions: int,
) -> AsyncIterator[Any]:
    """An ASGI application that speaks MCP, in which `handle` answers every message; runs as long as the
    block."""

    async def relay(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "notifications/initialized":
            await call_next(ctx)
        return await handle(ctx)

    server: Server[Any] = Server("toolgate", get_tool_input_schema=lambda name: None)
    server.middleware = [relay]
    manager = StreamableHTTPSessionManager(
        server,
        security_settings=TransportSecuritySettings(
            enable_dns_rebinding_protection=bool(hosts),
            allowed_hosts=hosts,
            allowed_origins=[f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")],
        ),
        max_request_body_size=most,
        max_sessions=max_sessions,
    )

    async def end(session: str) -> None:
        transport = manager._server_instances.get(session)
        if transport is not None:
            await manager._discard_session(session, transport)

    async with manager.run():
        yield HttpSessions(manager.asgi_app, manager._server_instances, end, max_sessions).app
