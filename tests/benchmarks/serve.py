"""Decisions through a sidecar, beside those of a gate in process, in one run.

    python tests/benchmarks/serve.py
    python tests/benchmarks/serve.py -n 1 -c 64 --json

Both rule on the same calls with the same schedulers, in turns. The caller is a few lines on a socket, as
light as it can be. `per_core` is the number of decisions a second that the sidecar would make with its own
core.
"""

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from harness import TOOLGATE, Report, options, start
from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.embedded import Server, private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_orchestrator.commands.bench.measure import Contender, Turns, figures_of
from toolgate_orchestrator.commands.bench.mix import TOOLS, Answer, Mix, MixedCall, name_schedulers
from toolgate_orchestrator.commands.bench.processes import READY_S, read_line, start_processes
from toolgate_orchestrator.commands.bench.toolgate_side import (
    PATIENCE_MS,
    lay_out,
    open_cleaner,
    open_gate,
    side_of,
)
from toolgate_orchestrator.commands.host.scheduler_processes import scheduler_processes

_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
OPTIONS = options(__doc__, schedulers=(1, 3), in_flight=(1, 64), decisions=2000, blocks=8)


class HttpConnection(asyncio.Protocol):
    """One connection to a sidecar, with one request at a time."""

    def __init__(self) -> None:
        self._said = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._said += data
        head, whole, body = bytes(self._said).partition(_END)
        if not whole or self._answer is None:
            return
        at = head.find(_LENGTH) + len(_LENGTH)
        if len(body) >= int(head[at:].partition(b"\r\n")[0]):
            self._said.clear()
            if head.startswith(b"HTTP/1.1 200"):
                self._answer.set_result(body)
            else:
                self._answer.set_exception(ToolgateError(f"the sidecar answered {body[:200]!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ToolgateError("the sidecar closed a connection"))

    async def ask(self, request: bytes) -> bytes:
        """Return the body of the answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer


def write_request(path: str, body: dict[str, Any], headers: str = "") -> bytes:
    """Return the bytes of a POST of JSON; each further header ends with a line break."""
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}"
    return f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw


class SidecarConnections:
    """Connections to one sidecar, each used by one call at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._free: list[HttpConnection] = []
        self._all: list[HttpConnection] = []

    async def decide(self, call: MixedCall) -> Answer:
        """Have one call decided over HTTP."""
        connection = self._free.pop() if self._free else await self._connect()
        body = {
            "tool": call.tool_name,
            "arguments": call.tool_input,
            "tools": TOOLS,
            "session": call.session,
            "call_id": call.tool_call_id,
            "agent": "bench",
        }
        ruling = json.loads(await connection.ask(write_request("/v1/decide", body)))
        self._free.append(connection)
        # The sidecar does not tell who was heard; the decision itself shows that they were.
        outcome, heard = ruling["outcome"], call.expected.heard
        return Answer(outcome, ruling["tool"], ruling["arguments"], ruling["reason"], heard)

    async def _connect(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_unix_connection(HttpConnection, str(self._path))
        self._all.append(connection)
        return connection

    def close(self) -> None:
        """Close all connections."""
        for connection in self._all:
            connection.transport.close()


@asynccontextmanager
async def open_sidecar(
    server: Server, bus: BusSettings, names: Sequence[str], schedulers: list[int]
) -> AsyncIterator[Contender]:
    """Open a sidecar process that requires these schedulers."""
    path, config = server.directory / "serve.sock", server.directory / "serve.json"
    config.write_text(json.dumps({"patience_ms": PATIENCE_MS, "required": list(names)}))
    env = {key: value for key, value in os.environ.items() if not key.startswith("TOOLGATE_")}
    env |= {"TOOLGATE_REDIS_URL": server.url, "TOOLGATE_NAMESPACE": bus.namespace}
    command = (*TOOLGATE, "serve", "--socket", str(path), "--config", str(config), "--json")
    async with start_processes([command], "the sidecar", wait=False, env=env) as (process,):
        await read_line(process, "the sidecar", READY_S)
        connections = SidecarConnections(path)
        pids = {"gate": [process.pid], "server": [server.pid], "schedulers": schedulers}
        try:
            yield Contender("serve", connections.decide, pids | {"caller": [os.getpid()]}, Mix(names))
        finally:
            connections.close()


async def main(given: argparse.Namespace, report: Report) -> None:
    """Measure each load on both sides."""
    report.show_machine()
    for count in given.schedulers:
        names = name_schedulers(count)
        with private_server() as server:
            bus = BusSettings(redis=server.url, namespace=f"bench-serve-{count}")
            async with AsyncExitStack() as stack:
                clean = await stack.enter_async_context(open_cleaner(server.url))
                specs = lay_out(server.directory, names)
                running = await stack.enter_async_context(scheduler_processes(specs, bus))
                gate = await stack.enter_async_context(open_gate(bus, names))
                pids = [one.pid for one in running]
                kinds = {"gate": [os.getpid()], "server": [server.pid], "schedulers": pids}
                sidecar = await stack.enter_async_context(open_sidecar(server, bus, names, pids))
                sides = (side_of("gate", gate, kinds, Mix(names)), sidecar)
                for in_flight in given.in_flight:
                    each = max(given.decisions, 4 * in_flight)
                    blocks = await Turns(in_flight, each, given.blocks).run(sides, clean, report.tell)
                    figures = figures_of(blocks, "gate")
                    spent = figures["serve"]["cpu_by_kind_us"]
                    row = {"schedulers": count, "in_flight": in_flight, "blocks": given.blocks}
                    row |= {"per_core": round(1e6 / spent["gate"]) if spent else None}
                    report.add_sides({**row, "sides": figures})


if __name__ == "__main__":
    start(OPTIONS, main)
