"""The only access to the official MCP SDK: the messages, dispatchers and transports that the proxy uses.

A dispatcher matches answers to requests over a pair of streams, and reports cancellations to each side. It
does not read the contents of messages. `http_front` is the SDK's own server for streamable HTTP, for both
eras of the protocol, with one function in place of all its handlers.
"""

import json
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
from pydantic_core import PydanticSerializationError
from toolgate_bus.protocol.json_values import HalfCharacter, read_json

from toolgate_orchestrator.commands.mcp.http_access import HttpSessions
from toolgate_orchestrator.commands.mcp.messages import CALL

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
"""Streams of a transport: one to read messages from, and one to write them to."""
Closed: Final = (anyio.ClosedResourceError, anyio.BrokenResourceError)
"""Errors of a stream whose other end is gone."""
_BUFFER: Final = 16


class Exchange(Outbound, Protocol):
    """One request or notification of a peer, with the way back to it during its handling."""

    @property
    def request_id(self) -> str | int | None:
        """Id of the request; None for a notification."""

    @property
    def can_send_request(self) -> bool:
        """True if requests can be sent to the peer meanwhile."""


OnRequest = Callable[[Any, str, Mapping[str, Any] | None], Awaitable[dict[str, Any]]]
"""Answers a request: its exchange, method and parameters. Raises MCPError."""
OnNotify = Callable[[Any, str, Mapping[str, Any] | None], Awaitable[None]]
"""Takes a notification."""


# ---------------------------------------------------------------- messages


def message_stream() -> tuple[Any, Any]:
    """Return both ends of a short queue of messages."""
    return anyio.create_memory_object_stream[SessionMessage | Exception](_BUFFER)


def read_message(line: bytes, *, halves: bool = False) -> SessionMessage | None:
    """Return the message in a line; None if it holds none, or programs could read it in several ways.

    With `halves` a call may hold half a character, as at the other doors: the gate rules on it.
    """
    try:
        try:
            found = read_json(line, halves=False)
        except HalfCharacter as half:
            found = half.value
            if not halves or not isinstance(found, dict) or found.get("method") != CALL:
                return None
        return SessionMessage(jsonrpc_message_adapter.validate_python(found, by_name=False))
    except (ValueError, RecursionError):
        return None


def write_message(message: SessionMessage | Exception) -> bytes:
    """Return a message as a line."""
    if isinstance(message, Exception):
        raise message
    try:
        return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except PydanticSerializationError:  # half a character, which only an escape can spell
        return json.dumps(message.message.model_dump(by_alias=True, exclude_unset=True)).encode() + b"\n"


def error_message(id_: str | int | None, code: int, words: str) -> SessionMessage:
    """Return the error answer to a request; `id_` is None if the request is unknown."""
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id_, error=ErrorData(code=code, message=words)))


def make_dispatcher(streams: Streams) -> JSONRPCDispatcher[Any]:
    """Return a dispatcher over a transport. It answers `initialize` before it reads later messages."""
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
    """Return the HTTP headers of a message. In the newer era they repeat parts of the message."""
    headers = {MCP_PROTOCOL_VERSION_HEADER: version} if version else {}
    if not modern:
        return headers
    headers[MCP_METHOD_HEADER] = method
    given = params or {}
    name = given.get(NAME_BEARING_METHODS.get(method, ""))
    if isinstance(name, str):
        headers[MCP_NAME_HEADER] = encode_header_value(name)
    arguments = given.get("arguments")
    if method == CALL and schema is not None and isinstance(arguments, Mapping):
        headers.update(mcp_param_headers(x_mcp_header_map(schema), arguments))
    return headers


def http_streams(url: str, client: Any, most: int) -> AbstractAsyncContextManager[Streams]:
    """Open the transport to a server over HTTP; an event in its streams has at most `most` bytes."""
    return streamable_http_client(url, http_client=client, max_sse_event_size=most)


def channels_of(ctx: ServerRequestContext[Any, Any]) -> tuple[Exchange, Any]:
    """Return the exchange and the connection of a client's message over HTTP.

    The SDK gives its handlers typed helpers. The proxy passes on untyped messages, and so needs the layer
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
    """Run an ASGI application that speaks MCP for the length of the block; `handle` answers every message."""

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
