"""Floor under a decision: raw XADD/XREAD ping-pong over RESP, nothing encoded, nothing checked.

It uses the server, socket, event loop and parser of the real thing, but no groups, no acknowledgements and
no deadlines. `python -m toolgate_orchestrator.commands.bench.floor URL NAME` is the answering process.
"""

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from toolgate_bus.server.embedded import Server
from toolgate_bus.transport.redis.client.connection import open_link
from toolgate_bus.transport.redis.client.link import Link, pack_command

from toolgate_orchestrator.commands.bench.measure import Contender
from toolgate_orchestrator.commands.bench.mix import SIZES, Mix, MixedCall
from toolgate_orchestrator.commands.bench.processes import run_answering, start_processes

_ID_BYTES = 16


class Floor:
    """Asking side: writes a payload to every stream and counts the answers by its id."""

    def __init__(self, names: Sequence[str]) -> None:
        self._asks = [f"floor:q:{name}".encode() for name in names]
        self._streams = [f"floor:a:{name}".encode() for name in names]
        self._last = dict.fromkeys(self._streams, b"0-0")
        self._open: dict[bytes, list[Any]] = {}
        self._queue: list[bytes] = []
        self._seq = secrets.randbits(64) << 32  # the streams may hold an earlier floor's entries

    async def start(self, url: str) -> None:
        """Open the two connections and start reading."""
        self._loop = asyncio.get_running_loop()
        self._write: Link = await open_link(url, "floor-write", lambda reply, tag: None)
        self._read: Link = await open_link(url, "floor-read", self._reply)
        self._next()

    def close(self) -> None:
        """Close both connections."""
        self._write.drop()
        self._read.drop()

    async def ask(self, call: MixedCall) -> None:
        """Send one payload of the call's size to all streams and wait for all answers."""
        self._seq += 1
        id_ = self._seq.to_bytes(_ID_BYTES, "big")
        future = self._loop.create_future()
        self._open[id_] = [len(self._asks), future]
        if not self._queue:
            self._loop.call_soon(self._flush)
        payload = id_ + bytes(SIZES[call.size] - _ID_BYTES)
        self._queue += [pack_command(("XADD", stream, "*", "d", payload)) for stream in self._asks]
        await future

    def _flush(self) -> None:
        queue, self._queue = self._queue, []
        self._write.write(b"".join(queue), (None,) * len(queue))

    def _next(self) -> None:
        self._read.write(
            pack_command(
                ("XREAD", "COUNT", 512, "BLOCK", 5000, "STREAMS", *self._streams, *self._last.values())
            )
        )

    def _reply(self, reply: Any, tag: Any = None) -> None:
        for stream, entries in reply or ():
            self._last[stream] = entries[-1][0]
        self._next()
        for _, entries in reply or ():
            for _, fields in entries:
                waiting = self._open.get(fields[1])
                if waiting is None:
                    continue
                waiting[0] -= 1
                if waiting[0] == 0:
                    del self._open[fields[1]]
                    waiting[1].set_result(None)


@asynccontextmanager
async def open_floor(server: Server, names: Sequence[str]) -> AsyncIterator[Contender]:
    """Open the floor with an answering process for each name."""
    program = (sys.executable, "-m", "toolgate_orchestrator.commands.bench.floor", server.url)
    async with start_processes([(*program, name) for name in names], "the floor") as running:
        floor = Floor(names)
        await floor.start(server.url)
        try:
            pids = {"gate": [os.getpid()], "server": [server.pid], "schedulers": [one.pid for one in running]}
            yield Contender("floor", floor.ask, pids, Mix(names))
        finally:
            floor.close()


async def answer(url: str, name: str) -> None:
    """Answer every entry of a stream with its id, until the server ends."""
    asks, answers, last = f"floor:q:{name}", f"floor:a:{name}", b"0-0"

    def reply(got: Any, tag: Any = None) -> None:
        nonlocal last
        if type(got) is bytes:
            return
        out: list[bytes] = []
        for _, entries in got or ():
            last = entries[-1][0]
            out += [pack_command(("XADD", answers, "*", "d", fields[1][:_ID_BYTES])) for _, fields in entries]
        out.append(pack_command(("XREAD", "COUNT", 512, "BLOCK", 5000, "STREAMS", asks, last)))
        link.write(b"".join(out), (None,) * len(out))

    link = await open_link(url, f"floor-{name}", reply)
    reply(None)
    print("ready", flush=True)  # noqa: T201 - the bench waits for this line
    await link.lost


if __name__ == "__main__":
    run_answering(answer(sys.argv[1], sys.argv[2]))
