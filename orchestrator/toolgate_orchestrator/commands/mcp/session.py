"""One client's session: passes messages between the client and its servers, and has tool calls ruled on.

Tool calls are ruled on, and so are results of tools, resources and prompts. Words that a server sends by
itself are withheld while results of it are ruled on, its questions ruled on. Lists of tools are read. Other
requests that the proxy knows pass unchanged, but for tasks; the rest are refused. A list is read on its way:
it tells the tools with their schemas, and which descriptions have changed since they were first seen.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import where
from toolgate_bus.telemetry.printable import shorten, visible

from toolgate_orchestrator.commands.mcp import sdk
from toolgate_orchestrator.commands.mcp.backends import Backends
from toolgate_orchestrator.commands.mcp.calls import Calls
from toolgate_orchestrator.commands.mcp.catalog import MAX_TOOLS, Catalog, KnownTool, read_tool
from toolgate_orchestrator.commands.mcp.config import McpConfig
from toolgate_orchestrator.commands.mcp.messages import (
    CALL,
    CANCELLED,
    INITIALIZE,
    LIST,
    LISTEN,
    LOG,
    NOTIFICATIONS,
    PROGRESS,
    READS,
    REQUESTS,
    TOOLS_CHANGED,
    WORDLESS,
    Message,
    Params,
    can_elicit,
    is_wordless,
    list_subscribed,
    version_of,
    without_task,
    without_tasks,
    without_words,
)
from toolgate_orchestrator.commands.mcp.pins import Pins, identity_of
from toolgate_orchestrator.commands.mcp.questions import Questions
from toolgate_orchestrator.commands.mcp.upstream import MessageLimit, Upstream, connect
from toolgate_orchestrator.guard.guard import Guard

MAX_IN_FLIGHT: Final = 10_000
"""Maximum number of concurrent requests of one client."""
MAX_URIS: Final = 10_000
"""Maximum number of addresses of one client of which changes are reported while words are withheld."""
LAST_WORDS_S: Final = 3.0
"""Longest wait for answers to open requests once the servers are gone, in seconds."""
LIST_AGE_S: Final = 60.0
"""Age in seconds at which a list is read again, if no server would report a change."""
_WITHOUT_MODES: Final = ("2024-11-05", "2025-03-26", "2025-06-18")
_KINDS: Final = {PROGRESS: "progress", LOG: "log"}
_log = get_logger("toolgate.mcp")


class ProxySession:
    """A client, and the servers that are connected for it."""

    def __init__(
        self,
        config: McpConfig,
        guard: Guard,
        pins: Pins,
        questions: Questions,
        session: str,
        *,
        shared: bool = False,
    ) -> None:
        """Make a session that is not connected yet; `shared` means that it serves all clients without a
        session."""
        self.front: sdk.Outbound | None = None
        """Way to the client outside of its requests; None until it is known."""
        self.name, self.ready, self.closed = session, asyncio.Event(), asyncio.Event()
        self.problem: BaseException | None = None
        """Reason that the session could not be opened, or that it ended."""
        self._config, self._guard, self._pins, self._shared = config, guard, pins, shared
        self._backends: Backends | None = None
        self._catalog = Catalog()
        self._calls = Calls(guard, questions, session, self._find, config.cost_meta)
        self._in_flight: dict[int, sdk.Exchange] = {}
        self._idle = asyncio.Event()
        """Set while no request is open."""
        self._idle.set()
        self._count = 0
        self._listed: dict[str, float] = {}
        """Time at which a server's whole list was read, by the loop's clock."""
        self._unlisted: set[str] = set()
        """Servers that could not list their tools at the last attempt."""
        self._listing: dict[str, asyncio.Lock] = {}
        """Lock for each server, held while its list is read."""
        self._end = asyncio.Event()
        self._running: set[asyncio.Task[Any]] = set()
        self._limit = MessageLimit()
        self._uris: set[str] = set()
        """Addresses that the client has named."""

    # ------------------------------------------------------------ life

    async def live(self) -> None:
        """Connect the servers, and keep them until the session is closed or all of them are gone."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                connected = [
                    await stack.enter_async_context(connect(name, self._config, self, shared=self._shared))
                    for name in self._config.servers
                ]
                self._backends = Backends(connected)
                stack.enter_context(self._guard.turn(self._guard.at(self.name), self._stop))
                self.ready.set()
                gone = asyncio.create_task(_all_closed(connected), name="mcp-gone")
                closing = asyncio.create_task(self._end.wait(), name="mcp-closing")
                try:
                    await asyncio.wait([closing, gone], return_when=asyncio.FIRST_COMPLETED)
                    if not closing.done():
                        self.problem = await connected[0].end_error()
                        await self.drain(LAST_WORDS_S)
                finally:
                    gone.cancel()
                    closing.cancel()
        except Exception as error:  # noqa: BLE001 - ends this session only; its requests get the error
            self.problem = self.problem or error
        finally:
            self.ready.set()
            self.closed.set()

    def close(self) -> None:
        """End the session."""
        self._end.set()

    async def drain(self, seconds: float) -> None:
        """Wait until all open requests are answered, for at most this many seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)

    def _stop(self, now: bool) -> None:
        """Apply an operator's stop: with `now`, running calls are cancelled; the guard denies later ones."""
        if now:
            for task in list(self._running):
                task.get_loop().call_soon_threadsafe(task.cancel)

    async def backends(self) -> Backends:
        """Return the servers once they are connected. Raise MCPError if they are not available."""
        await self.ready.wait()
        if self._backends is None or self.closed.is_set():
            problem = self.problem
            if isinstance(problem, sdk.MCPError):
                raise problem
            words = str(problem) if isinstance(problem, ConfigError) else "the MCP server is not available"
            raise sdk.MCPError(sdk.INTERNAL_ERROR, words)
        return self._backends

    # ------------------------------------------------------------ from the client

    async def on_request(self, exchange: Any, method: str, params: Params) -> Message:
        """Answer a request of the client. Raise MCPError."""
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            raise sdk.MCPError(sdk.INTERNAL_ERROR, f"more than {MAX_IN_FLIGHT} requests are open at a time")
        self._count += 1
        number = self._count
        self._in_flight[number] = exchange
        self._idle.clear()
        try:
            return await self._answer(exchange, method, params)
        except (sdk.MCPError, *sdk.Closed):
            raise
        except ToolgateError as error:
            raise sdk.MCPError(sdk.INTERNAL_ERROR, f"{error}") from None
        except Exception as error:
            _log.error("a request could not be answered", error=where(error))
            words = f"the proxy failed on this request: {type(error).__name__}"
            raise sdk.MCPError(sdk.INTERNAL_ERROR, words) from error
        finally:
            del self._in_flight[number]
            if not self._in_flight:
                self._idle.set()

    async def _answer(self, exchange: sdk.Exchange, method: str, params: Params) -> Message:
        if method not in REQUESTS:
            told = f"the proxy does not pass on {shorten(visible(method), 100)}"
            raise sdk.MCPError(sdk.METHOD_NOT_FOUND, told)
        if not isinstance((params or {}).get("_meta"), Mapping | None):
            raise sdk.MCPError(sdk.INVALID_REQUEST, "_meta must be an object")
        params = without_task(params)
        backends = await self.backends()
        self._note_uris(method, params)
        if method == CALL:
            return await self._call(exchange, params or {}, backends)
        if method == LIST:
            return await self._list(exchange, params, backends)
        if method == INITIALIZE and isinstance(params, Mapping):
            self._calls.elicits = can_elicit(params.get("capabilities"))
        if method in READS:
            return await self._calls.read(exchange, method, params or {}, backends)
        result = await backends.request(exchange, method, params)
        if method == INITIALIZE:
            self._calls.old_form = result.get("protocolVersion") in _WITHOUT_MODES
        if "capabilities" in result:
            result = {**result, "capabilities": without_tasks(result["capabilities"])}
        return result

    async def _call(self, exchange: sdk.Exchange, params: Mapping[str, Any], backends: Backends) -> Message:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("no task")
        self._running.add(task)
        try:
            return await self._calls.call(exchange, params, backends)
        finally:
            self._running.discard(task)

    async def on_notify(self, exchange: Any, method: str, params: Params) -> None:
        """Pass on a notification of the client.

        A message that is none by its name, such as a call without an id, is dropped: some servers would take
        it for a request.
        """
        if not method.startswith(NOTIFICATIONS):
            _log.warning("a request without an id is skipped", method=shorten(visible(method), 100))
        elif method != CANCELLED:  # the dispatcher has cancelled the request already
            with self._limit.acquire("the client") as has_room:
                if has_room:
                    await (await self.backends()).notify(method, params)

    # ------------------------------------------------------------ lists of tools

    async def _list(self, exchange: sdk.Exchange, params: Params, backends: Backends) -> Message:
        """Return the list of tools for the client, and read exactly the entries that the client gets."""
        if not backends.is_plain:
            return await backends.list_tools(params, self._offer_all)
        server = backends.servers[0]
        result = await backends.request(exchange, LIST, params)
        listed = result.get("tools")
        if not isinstance(listed, list):
            return result
        if len(listed) + self._catalog.count(server.name) > 2 * MAX_TOOLS:
            raise _too_many(server)
        kept = await self._offer(server, await self._learn(server, listed, whole=False))
        return result if len(kept) == len(listed) else {**result, "tools": kept}

    async def _offer_all(self, server: Upstream, listed: list[Any]) -> list[Any]:
        return await self._offer(server, await self._learn_all(server, listed))

    async def _offer(self, server: Upstream, listed: list[Any]) -> list[Any]:
        """Return these entries without tools of which a local table denies every call."""
        names = [server.prefix + entry["name"] for entry in listed]
        denied = await self._guard.find_denied(names, self._guard.at(self.name))
        return [entry for entry, name in zip(listed, names, strict=True) if name not in denied]

    async def _find(self, params: Mapping[str, Any]) -> Catalog:
        """Return the catalog, after reading lists that this call needs. Raise ConfigError or MCPError.

        If a server cannot list its tools, only calls for that server fail.
        """
        backends = await self.backends()
        whose = backends.server_of(params.get("name"))
        for server in backends.servers:
            listing = self._listing.setdefault(server.name, asyncio.Lock())
            # Wait for a list of this server that is being read: else the called tool would be unknown.
            is_read = server is whose and listing.locked()
            if server.closed.is_set() or not (is_read or self._is_due(server, whose, params)):
                continue
            async with listing:
                if self._is_due(server, whose, params):
                    await self._read_whole(server, whose, params, backends)
        return self._catalog

    def _is_due(self, server: Upstream, whose: Upstream | None, params: Params) -> bool:
        """Return whether a server's tools must be read for a call."""
        read = self._listed.get(server.name)
        if read is None or (server.name in self._unlisted and server is whose):
            return True
        return bool(version_of(params)) and asyncio.get_running_loop().time() - read > LIST_AGE_S

    async def _read_whole(
        self, server: Upstream, whose: Upstream | None, params: Params, backends: Backends
    ) -> None:
        self._listed[server.name] = asyncio.get_running_loop().time()
        self._unlisted.discard(server.name)
        try:
            listed, _ = await backends.list_all(server, LIST, params)
            await self._learn_all(server, listed)
        except sdk.MCPError as error:
            self._unlisted.add(server.name)
            if server is whose:
                raise
            said = shorten(visible(error.message), 500)
            _log.warning("a server does not list its tools", server=server.name, error=said)
        except BaseException:
            self._listed.pop(server.name, None)
            raise

    async def _learn_all(self, server: Upstream, listed: list[Any]) -> list[Any]:
        """Replace the known tools of a server by its whole list; return the entries that can be offered."""
        if len(listed) > MAX_TOOLS:
            raise _too_many(server)
        self._listed[server.name] = asyncio.get_running_loop().time()
        self._unlisted.discard(server.name)
        return await self._learn(server, listed, whole=True)

    async def _learn(self, server: Upstream, listed: list[Any], *, whole: bool) -> list[Any]:
        """Add the tools that a server lists; return the entries that can be offered, each name once."""
        known: dict[str, KnownTool] = {}
        kept = []
        for entry in listed:
            tool = read_tool(server.name, server.prefix, entry)
            if tool is not None and tool.own not in known:
                known[tool.own] = tool
                kept.append(entry)
        if left_out := len(listed) - len(kept):
            _log.error(
                "tools with unprintable or duplicate names are left out",
                server=server.name,
                tools=left_out,
            )
        if whole:
            self._catalog.replace(server.name, known.values())
        else:
            self._catalog.learn(known.values())
        identity = identity_of(server.name, self._config.servers[server.name])
        changed = await asyncio.to_thread(self._pins.observe, identity, self._catalog.digests(server.name))
        for name in sorted(self._catalog.mark(server.name, changed)):
            metrics.count(metrics.MCP_CHANGED_TOOLS)
            told = shorten(visible(name), 128)
            _log.warning("the description of a tool has changed", server=server.name, tool=told)
        return kept

    # ------------------------------------------------------------ from the servers

    async def answer(self, server: Upstream, method: str, params: Params) -> Message:
        """Pass a server's request to the client. Raise MCPError.

        Its words are ruled on as a result of each call that the server works on.
        """
        if method in WORDLESS:
            params = {} if await self._withholds_words(server) else params
        elif not await self._may_ask(server, method, params):
            metrics.count(metrics.MCP_WITHHELD_WORDS, "request")
            raise sdk.MCPError(sdk.INVALID_REQUEST, "the words of this request are withheld from the client")
        way = self._way_back(method, asks=True)
        if way is None:
            raise sdk.MCPError(sdk.METHOD_NOT_FOUND, "there is no client to ask")
        return dict(await way.send_raw_request(method, params))

    async def sift(self, server: Upstream, method: str, params: Params) -> Sequence[Params]:
        """Return a server's notification as the client may see it; empty if it may not."""
        if is_wordless(method, params) or not await self._withholds_words(server):
            return (params,)
        told = without_words(method, params, self._uris)
        if told != (params or {}):
            metrics.count(metrics.MCP_WITHHELD_WORDS, _KINDS.get(method, "other"))
        return () if told is None else (told,)

    async def _withholds_words(self, server: Upstream) -> bool:
        """Return whether any scheduler rules on results of this server."""
        tools = None
        if server.name in self._listed:
            tools = (*self._catalog.names(server.name), *READS, *self._calls.open_tools(server.name))
        return await self._guard.rules_on_results(tools)

    async def _may_ask(self, server: Upstream, method: str, params: Params) -> bool:
        """Return whether the client may see a server's request."""
        if not await self._withholds_words(server):
            return True
        return await self._calls.may_show(server.name, {method: dict(params or {})})

    def _note_uris(self, method: str, params: Params) -> None:
        """Keep the addresses that the client names, so that it can be told of their changes."""
        told: Mapping[str, Any] = params if isinstance(params, Mapping) else {}
        listed = list_subscribed(told.get("notifications")) if method == LISTEN else ()
        for uri in (told.get("uri"), *listed):
            if isinstance(uri, str) and len(self._uris) < MAX_URIS:
                self._uris.add(uri)

    async def hear(self, server: Upstream, method: str, params: Params) -> None:
        """Pass on a server's notification that belongs to no particular request."""
        if method == TOOLS_CHANGED:
            self._listed.pop(server.name, None)
        way = self._way_back(method, asks=False)
        if way is not None:
            with contextlib.suppress(*sdk.Closed):
                await way.notify(method, params)

    def _way_back(self, method: str, *, asks: bool) -> sdk.Outbound | None:
        """Return the way to the client: within the open request if that can be known, else outside all
        requests."""
        if self._shared:
            return next(iter(self._in_flight.values())) if len(self._in_flight) == 1 and not asks else None
        if asks or method == LOG:
            for exchange in reversed(self._in_flight.values()):
                if not asks or exchange.can_send_request:
                    return exchange
        return self.front


async def _all_closed(servers: list[Upstream]) -> None:
    for server in servers:
        await server.closed.wait()


def _too_many(server: Upstream) -> sdk.MCPError:
    return sdk.MCPError(sdk.INTERNAL_ERROR, f"the MCP server {server.name} lists more than {MAX_TOOLS} tools")
