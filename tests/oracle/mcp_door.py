"""The door of MCP: the proxy of `toolgate mcp` between a client and a server, with lines of JSON to each.

Both are in this process, at the other ends of socket pairs: the proxy's own readers, writers, dispatchers and
sessions carry each message. Only the program that would be the server is not started.
"""

import asyncio
import contextlib
import itertools
import json
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from carrying import OTHER, is_json, setting
from meanings import Written
from readings import Call
from station import Station
from toolgate_orchestrator.commands.mcp import sdk, upstream
from toolgate_orchestrator.commands.mcp.config import McpConfig
from toolgate_orchestrator.commands.mcp.lines import CLIENT, Peer, open_lines
from toolgate_orchestrator.commands.mcp.messages import CALL_ID, GROUP, SESSION
from toolgate_orchestrator.commands.mcp.pins import Pins
from toolgate_orchestrator.commands.mcp.questions import Questions
from toolgate_orchestrator.commands.mcp.session import ProxySession
from toolgate_orchestrator.guard.guard import Guard

__all__ = ["McpDoor"]

LONGEST = 1 << 24
COMMAND = "oracle"
"""The program that is this process."""
TOOLS = ("bash", "write_file", "read_file", "send_mail", "pay", "set_role", "fetch", "book", "deploy", OTHER)
OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "oracle", "version": "1"},
}
_numbers = itertools.count(1)
_servers: dict[str, "_Server"] = {}
"""By the last word of the command that would start each."""


class McpDoor:
    """Calls of a client of MCP; each agent has a proxy of its own."""

    name = "mcp"
    can = frozenset(("ask", "tool"))

    def __init__(self, station: Station, stack: contextlib.AsyncExitStack) -> None:
        self._station, self._stack = station, stack
        self._clients: dict[str, _Client] = {}

    @staticmethod
    def carries(call: Call, written: Written) -> bool:
        """Values of JSON; a user's request is not told."""
        return not (call.rewrites or call.who.request) and is_json(call.arguments)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, station: Station) -> AsyncIterator["McpDoor"]:
        """See Door."""
        async with contextlib.AsyncExitStack() as stack:
            yield cls(station, stack)

    async def make(self, call: Call) -> None:
        """See Door."""
        who = call.who
        meta = {SESSION: who.session, CALL_ID: f"call-{next(_numbers)}"}
        meta |= {GROUP: f"g{call.iteration}"} if call.iteration else {}
        client = await self._find(call)
        params = {"name": call.tool, "arguments": call.arguments, "_meta": meta}
        await client.request("tools/call", params)

    async def _find(self, call: Call) -> "_Client":
        own = setting(call.who)
        key = json.dumps([own, call.schema and [call.tool, call.schema]])
        if key not in self._clients:
            server = _Server(self._station, {call.tool: call.schema} if call.schema else {})
            client = await self._stack.enter_async_context(_open_proxy(self._station, own, server))
            self._clients[key] = client
        return self._clients[key]


@contextlib.asynccontextmanager
async def _open_proxy(
    station: Station, own: Mapping[str, Any], server: "_Server"
) -> AsyncIterator["_Client"]:
    """A client whose calls go through a proxy to a server, as `serve_stdio` lays them."""
    word = str(next(_numbers))
    config = McpConfig.model_validate(
        {"servers": {"own": {"command": [COMMAND, word]}}, "toolgate": {**station.settings, **own}}
    )
    _servers[word] = server
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(_servers.pop, word)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tg-oracle-")))
        guard = await stack.enter_async_context(Guard(config.toolgate, notice=config.notice))
        session = ProxySession(config, guard, Pins(folder / "pins.json"), Questions(), f"mcp-{word}")
        front, back = await _pair()
        streams = await stack.enter_async_context(open_lines(Peer(CLIENT, *back), config.max_message))
        session.front = dispatcher = sdk.make_dispatcher(streams)
        living = asyncio.create_task(session.live())
        serving = asyncio.create_task(dispatcher.run(session.on_request, session.on_notify))
        client = _Client(station, *front)
        hearing = asyncio.create_task(client.hear())
        try:
            await client.request("initialize", OPENING)
            client.say(method="notifications/initialized")
            yield client
        finally:
            session.close()
            for task in (serving, hearing, living):
                task.cancel()
            await asyncio.wait([serving, hearing, living])
            front[1].close()
            back[1].close()


class _Client:
    """The client's side: one request at a time, whatever it is asked meanwhile."""

    def __init__(self, station: Station, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._station, self._reader, self._writer = station, reader, writer
        self._waits: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count(1)

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """The answer to a request."""
        id_ = next(self._ids)
        waits = self._waits[id_] = asyncio.get_running_loop().create_future()
        try:
            self.say(id=id_, method=method, params=params)
            return await waits
        except asyncio.CancelledError:
            self.say(method="notifications/cancelled", params={"requestId": id_})
            raise
        finally:
            del self._waits[id_]

    def say(self, **message: Any) -> None:
        """Write a message."""
        self._writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def hear(self) -> None:
        """Read what comes, until it ends."""
        while line := await self._reader.readline():
            message = json.loads(line)
            if "method" in message:
                if "id" in message:  # the one question there is
                    action = "accept" if self._station.agree() else "decline"
                    self.say(id=message["id"], result={"action": action, "content": {}})
            elif (waits := self._waits.get(message.get("id"))) is not None and not waits.done():
                waits.set_result(message)


class _Server:
    """The server's side: tools that take anything."""

    def __init__(self, station: Station, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._station = station
        self._tools = [
            {"name": one, "inputSchema": {"type": "object", **schemas.get(one, {})}} for one in TOOLS
        ]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the connection ends."""
        while line := await reader.readline():
            message = json.loads(line)
            if "id" not in message or "method" not in message:
                continue
            result = self._answer(message["method"], message.get("params") or {})
            if result is not None:
                told = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                writer.write(json.dumps(told).encode() + b"\n")

    def _answer(self, method: str, params: Mapping[str, Any]) -> Any:
        if method == "initialize":
            told = {"capabilities": {"tools": {}}, "serverInfo": {"name": "own", "version": "1"}}
            return {"protocolVersion": params["protocolVersion"], **told}
        if method == "tools/list":
            return {"tools": self._tools}
        if method == "tools/call":
            self._station.take(params["name"], params.get("arguments") or {})
            return None if self._station.keeps_open else {"content": [{"type": "text", "text": "done"}]}
        return {}


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _pair() -> tuple[Ends, Ends]:
    one, other = socket.socketpair()
    return (
        await asyncio.open_connection(sock=one, limit=LONGEST),
        await asyncio.open_connection(sock=other, limit=LONGEST),
    )


# ---------------------------------------------------------------------- in the place of a program


class _Child(NamedTuple):
    peer: Peer

    async def how_it_ended(self) -> str:
        """See Child."""
        return "it is over"


_start_program = upstream.start_child


@contextlib.asynccontextmanager
async def _start(name: str, command: tuple[str, ...], *beside: Any) -> AsyncIterator[Any]:
    """See `start_child`; a server of ours is in this process."""
    if command[0] != COMMAND:
        async with _start_program(name, command, *beside) as child:
            yield child
        return
    ours, theirs = await _pair()
    serving = asyncio.create_task(_servers[command[1]].serve(*theirs))
    try:
        yield _Child(Peer(name, *ours))
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        ours[1].close()
        theirs[1].close()


upstream.start_child = _start
