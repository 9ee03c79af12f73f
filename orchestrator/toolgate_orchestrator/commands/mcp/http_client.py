"""HTTP client for remote servers: answers have a limit, and each failure is an error of one request only.

An answer that the SDK does not expect ends its connection, and with it all waiting requests. So the client
turns such an answer into an error that the SDK expects. It neither asks for compressed answers nor accepts
them: a small one could expand to any size.
"""

import os
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import httpx2
from toolgate_bus.errors import ConfigError

CONNECT_S: Final = 30.0
MAX_CONNECTIONS: Final = 1_000
NOTICE_S: Final = 15.0
"""Longest wait for a server to accept a notification, in seconds. Later messages wait behind it."""
_NOTICE: Final = re.compile(rb'\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"method"')
_AWAY: Final = '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"%s"}}'


class _BoundedBody(httpx2.AsyncByteStream):
    """Body that fails after a maximum number of bytes."""

    def __init__(self, stream: Any, most: int) -> None:
        self._stream, self._most = stream, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most
        try:
            async for chunk in self._stream:
                left -= len(chunk)
                if left < 0:
                    raise httpx2.StreamError(f"the answer has more than {self._most} bytes")
                yield chunk
        except httpx2.TransportError as error:
            raise httpx2.StreamError(f"the answer broke off: {type(error).__name__}") from None

    async def aclose(self) -> None:
        """Close the stream without reading the rest."""
        await self._stream.aclose()


class _Transport(httpx2.AsyncHTTPTransport):
    """Transport that answers like a gateway if the server cannot be reached."""

    def __init__(self, most: int) -> None:
        limits = httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=20)
        super().__init__(limits=limits)
        self._most = most

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request, and return its response or an error."""
        if request.method == "POST" and _NOTICE.match(request.content):
            request.extensions["timeout"]["read"] = NOTICE_S
        try:
            response = await super().handle_async_request(request)
        except httpx2.TransportError as error:
            return _make_error(f"the MCP server cannot be reached: {type(error).__name__}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            return _make_error("the MCP server sends a compressed answer, which nobody asked for")
        if response.headers.get("content-type", "").lower().startswith("application/json"):
            response.stream = _BoundedBody(response.stream, self._most)
        return response


def _make_error(words: str) -> httpx2.Response:
    return httpx2.Response(502, headers={"content-type": "application/json"}, content=_AWAY % words)


def read_headers(name: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return headers with their values from the environment. Raise ConfigError that names a missing
    variable."""
    found = {}
    for header, variable in variables.items():
        value = os.environ.get(variable, "").strip()
        if not value or not value.isprintable():
            raise ConfigError(
                f"servers.{name}.headers_env.{header}: the variable {variable} is not set, or holds no header"
            )
        found[header] = value
    return found


def make_client(headers: Mapping[str, str], most: int, read_s: float) -> Any:
    """Return a client for one server; `read_s` is the longest silence in seconds."""
    return httpx2.AsyncClient(
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_S, read=read_s),
        transport=_Transport(most),
    )
