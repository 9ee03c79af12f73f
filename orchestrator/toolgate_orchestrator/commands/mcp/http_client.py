"""The HTTP client for servers elsewhere: bounded answers, and whatever a server does is an error of one
request.

What the SDK does not expect ends its connection, and with it all that wait; so it is turned into what it does
expect. Answers are not asked for compressed, nor taken so: a small one may be of any size.
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
"""How long a server may take to take note of a notification: what is sent after it waits."""
_NOTICE: Final = re.compile(rb'\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"method"')
_AWAY: Final = '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"%s"}}'


class _BoundedBody(httpx2.AsyncByteStream):
    """A body of which no more than so many bytes are read."""

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
        """Leave the rest."""
        await self._stream.aclose()


class _Transport(httpx2.AsyncHTTPTransport):
    """Connects; what cannot be reached answers as a gateway would."""

    def __init__(self, most: int) -> None:
        limits = httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=20)
        super().__init__(limits=limits)
        self._most = most

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One request."""
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
    """Headers whose values are in the environment; raises ConfigError that names what is missing."""
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
    """A client for one server; `read_s` is how long it may be silent."""
    return httpx2.AsyncClient(
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_S, read=read_s),
        transport=_Transport(most),
    )
