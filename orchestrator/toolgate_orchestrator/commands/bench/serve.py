"""A sidecar beside a gate, in one run: the same calls, the same schedulers, over HTTP and in process.

The caller is a few lines on a socket, as light as it can be: what is measured is the sidecar. What became
of a call is not reported, on neither side.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.embedded import Server
from toolgate_bus.server.settings import BusSettings

from toolgate_orchestrator.commands.bench.measure import Contender, Sample, run_block
from toolgate_orchestrator.commands.bench.mix import TOOLS, Answer, Mix, MixedCall, name_schedulers
from toolgate_orchestrator.commands.bench.processes import READY_S, read_line, start_processes
from toolgate_orchestrator.commands.bench.toolgate_side import (
    PATIENCE_MS,
    environment_of,
    lay_out,
    open_gate,
    side_of,
)
from toolgate_orchestrator.commands.host.scheduler_processes import scheduler_processes

BLOCKS: Final = 8
"""Of each side, in turns."""
WARM_UP: Final = 500
_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length: "


class _HttpLane(asyncio.Protocol):
    """One connection, one request at a time."""

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
        """The body of the answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer


class SidecarLanes:
    """Connections to one sidecar, each taken by one call at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._free: list[_HttpLane] = []
        self._all: list[_HttpLane] = []

    async def decide(self, call: MixedCall) -> Answer:
        """One call over HTTP."""
        lane = self._free.pop() if self._free else await self._connect()
        ruling = json.loads(await lane.ask(_request(call)))
        self._free.append(lane)
        # Who was heard is not told to callers: what came of it shows that they were.
        return Answer(
            ruling["outcome"], ruling["tool"], ruling["arguments"], ruling["reason"], call.expected.heard
        )

    async def _connect(self) -> _HttpLane:
        _, lane = await asyncio.get_running_loop().create_unix_connection(_HttpLane, str(self._path))
        self._all.append(lane)
        return lane

    def close(self) -> None:
        """Close all connections."""
        for lane in self._all:
            lane.transport.close()


def _request(call: MixedCall) -> bytes:
    body = json.dumps(
        {
            "tool": call.tool_name,
            "arguments": call.tool_input,
            "tools": TOOLS,
            "session": call.session,
            "call_id": call.tool_call_id,
            "agent": "bench",
        }
    ).encode()
    head = b"POST /v1/decide HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


@asynccontextmanager
async def open_sidecar(
    server: Server, bus: BusSettings, names: Sequence[str], schedulers: Sequence[int]
) -> AsyncIterator[Contender]:
    """A sidecar process that requires these schedulers, to be measured."""
    path, config = server.directory / "bench-serve.sock", server.directory / "bench-serve.json"
    config.write_text(json.dumps({"patience_ms": PATIENCE_MS, "required": list(names)}))
    words = ("serve", "--socket", str(path), "--config", str(config), "--json")
    command = (sys.executable, "-m", "toolgate_bus", *words)
    async with start_processes([command], "the sidecar", wait=False, env=environment_of(bus)) as (process,):
        await read_line(process, "the sidecar", READY_S)
        lanes = SidecarLanes(path)
        pids = {
            "gate": [process.pid],
            "server": [server.pid],
            "schedulers": schedulers,
            "caller": [os.getpid()],
        }
        try:
            yield Contender("serve", lanes.decide, pids)
        finally:
            lanes.close()


async def run_serve(
    server: Server, schedulers: int, loads: Sequence[int], decisions: int
) -> list[dict[str, Any]]:
    """Both sides with so many schedulers, for each number in flight; a row each. Raises WrongVerdictError."""
    names = name_schedulers(schedulers)
    bus = BusSettings(redis=server.url, namespace=f"bench-serve-{schedulers}")
    rows: list[dict[str, Any]] = []
    async with scheduler_processes(lay_out(server.directory, names), bus) as running:
        pids = [one.pid for one in running]
        async with open_gate(bus, names) as gate, open_sidecar(server, bus, names, pids) as sidecar:
            sides = (side_of("gate", gate, server, pids), sidecar)
            mix = Mix(names)
            for in_flight in loads:
                samples = {side.name: Sample() for side in sides}
                for side in sides:
                    await run_block(side, mix.take(WARM_UP), in_flight)
                for _ in range(BLOCKS):
                    for side in sides:
                        block = await run_block(side, mix.take(max(1, decisions // BLOCKS)), in_flight)
                        samples[side.name].add(block)
                figures = {name: sample.figures() for name, sample in samples.items()}
                rows.append(
                    {"schedulers": schedulers, "in_flight": in_flight, "sides": figures} | _core(figures)
                )
    return rows


def _core(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What one core of the sidecar's would decide a second, by the CPU that each decision took it."""
    spent = figures["serve"]["cpu_by_kind_us"]
    return {"per_core": None if not spent else round(1e6 / spent["gate"])}
