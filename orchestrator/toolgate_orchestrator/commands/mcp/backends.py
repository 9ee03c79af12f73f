"""The servers behind one client's session: a single one passed through as it is, or several combined.

Prefixes of tools and prompts tell several servers apart. A request for a resource goes to the server that
listed it, else to each in turn. Lists come without pages. Subscriptions of the newer era cannot be combined,
and are refused.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.printable import shorten, visible

from toolgate_orchestrator.commands.mcp import sdk
from toolgate_orchestrator.commands.mcp.messages import (
    DISCOVER,
    INITIALIZE,
    LIST,
    LISTS,
    Message,
    Params,
    envelope_of,
    version_of,
)
from toolgate_orchestrator.commands.mcp.upstream import Upstream

MAX_PAGES: Final = 1_000
"""Maximum number of pages of one list."""
MAX_LISTED: Final = 20_000
"""Maximum number of entries of one server's list."""
Read = Callable[[Upstream, list[Any]], Awaitable[list[Any]]]
"""Reads a server's list, and returns the entries that can be offered."""
_BY_URI: Final = ("resources/read", "resources/subscribe", "resources/unsubscribe")
_log = get_logger("toolgate.mcp")


class Backends:
    """The servers of a session."""

    def __init__(self, servers: Sequence[Upstream]) -> None:
        self.servers = servers
        self.is_plain = len(servers) == 1 and not servers[0].prefix
        """True if there is one server without a prefix, so that everything passes as it is."""
        self._resources: dict[str, Upstream] = {}

    def server(self, name: str) -> Upstream | None:
        """Return the living server of this name; None if there is none."""
        return next((one for one in self.servers if one.name == name and not one.closed.is_set()), None)

    async def request(self, exchange: sdk.Exchange | None, method: str, params: Params) -> Message:
        """Answer any request but a tool call. Raise MCPError."""
        if self.is_plain:
            return await self.servers[0].request(exchange, method, params)
        if method in (INITIALIZE, DISCOVER):
            return await self._open(exchange, method, params)
        if method in LISTS:
            return await self._list(method, params, _keep_all)
        return await self._ask(exchange, method, params)

    async def list_tools(self, params: Params, read: Read) -> Message:
        """Return the tools of all servers as one list. `read` selects the entries that can be offered."""
        return await self._list(LIST, params, read)

    async def notify(self, method: str, params: Params) -> None:
        """Pass a notification of the client to all servers."""
        for server in self._alive():
            await server.notify(method, params)

    def server_of(self, name: Any) -> Upstream | None:
        """Return the server of a tool with this name; None if there is none."""
        if self.is_plain:
            return self.servers[0]
        found = self.split_name(name) if isinstance(name, str) else None
        return None if found is None else found[0]

    def split_name(self, name: str) -> tuple[Upstream, str] | None:
        """Return the server of a tool or prompt, and its name there; None if no prefix fits."""
        for server in self._alive():
            if name.startswith(server.prefix):
                return server, name.removeprefix(server.prefix)
        return None

    def _alive(self) -> list[Upstream]:
        return [one for one in self.servers if not one.closed.is_set()]

    # ------------------------------------------------------------ several servers combined

    async def _open(self, exchange: sdk.Exchange | None, method: str, params: Params) -> Message:
        """Return the merged first answer of all servers. In the older era, a server that fails is left
        out."""
        found: list[Message] = []
        failed: sdk.MCPError | None = None
        for server in self._alive():
            try:
                found.append(await server.request(exchange, method, params))
            except sdk.MCPError as error:
                failed = error
                if method == DISCOVER:
                    raise sdk.MCPError(
                        sdk.METHOD_NOT_FOUND, "not all servers here speak this revision"
                    ) from None
                said = shorten(visible(error.message), 500)
                _log.error("a server cannot be used and is left out", server=server.name, error=said)
                server.closed.set()
        if not found:
            raise failed or sdk.MCPError(sdk.INTERNAL_ERROR, "no MCP server is available")
        return _merge(found, method)

    async def _list(self, method: str, params: Params, read: Read) -> Message:
        """Return the merged lists of all servers. A server that fails is left out, and reported on stderr."""
        key, _ = LISTS[method]
        entries: list[Any] = []
        answers: list[Message] = []
        failed: sdk.MCPError | None = None
        for server in self._alive():
            try:
                listed, answer = await self.list_all(server, method, params)
                listed = await read(server, listed)
            except sdk.MCPError as error:
                said = shorten(visible(error.message), 500)
                _log.error("a server cannot list and is left out", server=server.name, error=said)
                failed = error
                continue
            entries += [self._offer(server, key, entry) for entry in listed]
            answers += [answer] if answer is not None else []
        if failed is not None and not answers:
            raise failed
        result: Message = {key: entries}
        if version_of(params):
            result |= {
                "resultType": "complete",
                "ttlMs": min((_whole(one.get("ttlMs")) for one in answers), default=0),
            }
            public = answers and all(one.get("cacheScope") == "public" for one in answers)
            result["cacheScope"] = "public" if public else "private"
        return result

    def _offer(self, server: Upstream, key: str, entry: Any) -> Any:
        """Return an entry in the form that the client sees, and note the server of a resource."""
        if not isinstance(entry, Mapping):
            return entry
        if key in ("tools", "prompts") and isinstance(entry.get("name"), str):
            return {**entry, "name": server.prefix + entry["name"]}
        if key == "resources" and isinstance(entry.get("uri"), str) and len(self._resources) < MAX_LISTED:
            self._resources.setdefault(entry["uri"], server)
        return entry

    async def list_all(
        self, server: Upstream, method: str, params: Params
    ) -> tuple[list[Any], Message | None]:
        """Return all pages of a server's list, and its first answer. Raise MCPError if the list is too
        long."""
        key, capability = LISTS[method]
        if server.capabilities is not None and capability not in server.capabilities:
            return [], None
        entries: list[Any] = []
        asked, first = envelope_of(params), None
        for _ in range(MAX_PAGES):
            try:
                answer = await server.request(None, method, asked)
            except sdk.MCPError as error:
                if error.code == sdk.METHOD_NOT_FOUND and first is None:
                    return [], None
                raise
            first = first or answer
            page = answer.get(key)
            entries += islice(page, MAX_LISTED + 1) if isinstance(page, list) else []
            cursor = answer.get("nextCursor")
            if len(entries) > MAX_LISTED:
                break
            if not isinstance(cursor, str):
                return entries, first
            asked = {**envelope_of(params), "cursor": cursor}
        raise sdk.MCPError(
            sdk.INTERNAL_ERROR, f"the MCP server {server.name} lists more {capability} than the proxy accepts"
        )

    async def _ask(self, exchange: sdk.Exchange | None, method: str, params: Params) -> Message:
        """Answer a request that is for one of several servers, or for all."""
        given = params or {}
        if method == "ping":
            return {}
        if method == "logging/setLevel":
            for server in self._alive():
                if "logging" in (server.capabilities or ()):
                    await server.request(None, method, params)
            return {}
        ref = given.get("ref")
        if method == "prompts/get" or (isinstance(ref, Mapping) and ref.get("type") == "ref/prompt"):
            return await self._ask_by_name(exchange, method, given)
        if method in _BY_URI or (method == "completion/complete" and isinstance(ref, Mapping)):
            uri = given.get("uri") if method in _BY_URI else None
            return await self._ask_each(
                exchange, method, given, self._resources.get(uri) if isinstance(uri, str) else None
            )
        raise sdk.MCPError(
            sdk.METHOD_NOT_FOUND, f"{shorten(visible(method), 100)} cannot be used with several servers"
        )

    async def _ask_by_name(
        self, exchange: sdk.Exchange | None, method: str, given: Mapping[str, Any]
    ) -> Message:
        ref = given.get("ref")
        holder = given if method == "prompts/get" else ref if isinstance(ref, Mapping) else {}
        name = holder.get("name")
        found = self.split_name(name) if isinstance(name, str) else None
        if found is None:
            raise sdk.MCPError(sdk.INVALID_PARAMS, "there is no prompt of this name")
        server, own = found
        asked = {**given, "name": own} if holder is given else {**given, "ref": {**holder, "name": own}}
        return await server.request(exchange, method, asked)

    async def _ask_each(
        self, exchange: sdk.Exchange | None, method: str, given: Mapping[str, Any], whose: Upstream | None
    ) -> Message:
        """Ask the server that listed the resource, else each server until one knows it."""
        last = sdk.MCPError(sdk.INVALID_PARAMS, "no MCP server knows this resource")
        for server in [whose] if whose is not None else self._alive():
            try:
                return await server.request(exchange, method, given)
            except sdk.MCPError as error:
                last = error
        raise last


async def _keep_all(server: Upstream, listed: list[Any]) -> list[Any]:
    return listed


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _merge(found: Sequence[Message], method: str) -> Message:
    """Merge the first answers of several servers into one."""
    told = [one.get("instructions") for one in found]
    merged: Message = {**found[0], "capabilities": _merge_capabilities(found, modern=method == DISCOVER)}
    merged.pop("instructions", None)
    if words := "\n\n".join(one for one in told if isinstance(one, str)):
        merged["instructions"] = words
    if method == INITIALIZE:
        merged["protocolVersion"] = min(str(one.get("protocolVersion")) for one in found)
        merged["serverInfo"] = {"name": "toolgate", "version": ""}
        return merged
    told_versions = (one.get("supportedVersions") for one in found)
    versions = [one if isinstance(one, list) else [] for one in told_versions]
    shared = [one for one in versions[0] if all(one in other for other in versions)]
    if not shared:
        raise sdk.MCPError(sdk.METHOD_NOT_FOUND, "not all servers here speak this revision")
    merged["supportedVersions"] = shared
    merged.pop("_meta", None)
    return merged


def _merge_capabilities(found: Sequence[Message], *, modern: bool) -> Message:
    """Return the capabilities that at least one server has and that can be combined."""
    merged: Message = {}
    for one in found:
        told = one.get("capabilities")
        for name in ("tools", "prompts", "resources", "logging", "completions"):
            if isinstance(told, Mapping) and isinstance(told.get(name), Mapping):
                flags = {} if modern else {key: True for key, on in told[name].items() if on is True}
                merged[name] = {**merged.get(name, {}), **flags}
    return merged
