"""NATS request-reply beside Toolgate: one publish, every scheduler's reply to the asker's inbox.

`python -m toolgate_orchestrator.commands.bench.peer_nats URL NAME` is the answering process. Core NATS: no
JetStream, nothing stored, nothing acknowledged; a question carries its number in the subject of the reply.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.embedded import Server

from toolgate_orchestrator.commands.bench.measure import Contender
from toolgate_orchestrator.commands.bench.peer_rules import answer, decide
from toolgate_orchestrator.commands.bench.processes import run_answering, start_processes

ALL = "bench.ask"
"""The subject to which all schedulers listen; `bench.ask.NAME` reaches one."""
START_S = 10.0


class NatsClient:
    """The asking side: questions out, replies to the decision that waits for them."""

    def __init__(self, client: Any, schedulers: Sequence[str]) -> None:
        self._client = client
        self._all = list(schedulers)
        self._inbox = client.new_inbox()
        self._open: dict[str, tuple[int, list[tuple[str, bytes]], asyncio.Future[Any]]] = {}
        self._number = 0

    async def start(self) -> None:
        """Listen for replies."""
        await self._client.subscribe(f"{self._inbox}.*.*", cb=self._hear)

    async def ask(self, question: bytes, schedulers: Sequence[str]) -> list[tuple[str, bytes]]:
        """One question to all of these."""
        self._number += 1
        number = str(self._number)
        future = asyncio.get_running_loop().create_future()
        self._open[number] = (len(schedulers), [], future)
        reply = f"{self._inbox}.{number}"
        if len(schedulers) == len(self._all):
            await self._client.publish(ALL, question, reply=reply)
        else:
            for name in schedulers:
                await self._client.publish(f"{ALL}.{name}", question, reply=reply)
        found: list[tuple[str, bytes]] = await future
        return found

    async def _hear(self, message: Any) -> None:
        _, number, name = message.subject.rsplit(".", 2)
        waiting = self._open.get(number)
        if waiting is None:
            return
        wanted, heard, future = waiting
        heard.append((name, message.data))
        if len(heard) == wanted:
            del self._open[number]
            if not future.done():
                future.set_result(heard)


def find_nats_server() -> str | None:
    """The server program: beside this Python, or on PATH."""
    own = Path(sys.executable).with_name("nats-server")
    return str(own) if own.exists() else shutil.which("nats-server")


@asynccontextmanager
async def open_nats(server: Server, names: Sequence[str]) -> AsyncIterator[Contender]:
    """A NATS server on loopback and the answering processes; all end with the block."""
    import nats

    binary = find_nats_server()
    if binary is None:
        raise ToolgateError("there is no nats-server")
    ports = server.directory / f"nats-{len(names)}"
    ports.mkdir()
    options = ("-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(ports), "-l", str(ports / "log"))
    program = (sys.executable, "-m", "toolgate_orchestrator.commands.bench.peer_nats")
    async with start_processes([(binary, *options)], "nats-server", wait=False) as (nats_server,):
        url = await _find_url(ports, nats_server.pid)
        async with start_processes([(*program, url, name) for name in names], "NATS") as running:
            client = await nats.connect(url, allow_reconnect=False)
            try:
                asker = NatsClient(client, names)
                await asker.start()
                answering = [one.pid for one in running]
                pids = {"gate": [os.getpid()], "server": [nats_server.pid], "schedulers": answering}
                yield Contender("nats", partial(decide, asker.ask, names), pids)
            finally:
                await client.close()


async def _find_url(ports: Path, pid: int) -> str:
    """Where the server listens, which it writes down."""
    with anyio.move_on_after(START_S):
        while True:
            if (url := _read_url(ports / f"nats-server_{pid}.ports")) is not None:
                return url
            await asyncio.sleep(0.02)
    raise ToolgateError(f"nats-server did not listen within {START_S:g} s")


def _read_url(file: Path) -> str | None:
    try:
        return str(json.loads(file.read_text())["nats"][0])
    except (OSError, ValueError, KeyError, IndexError):
        return None  # not there yet, or not whole


async def serve(url: str, name: str) -> None:
    """The answering side; it ends with its connection."""
    import nats

    gone = asyncio.Event()

    async def lost() -> None:
        gone.set()

    client = await nats.connect(url, allow_reconnect=False, closed_cb=lost)

    async def reply(message: Any) -> None:
        await client.publish(f"{message.reply}.{name}", answer(name, message.data))

    await client.subscribe(ALL, cb=reply)
    await client.subscribe(f"{ALL}.{name}", cb=reply)
    await client.flush()
    print("ready", flush=True)  # noqa: T201 - the bench waits for this line
    await gone.wait()


if __name__ == "__main__":
    run_answering(serve(sys.argv[1], sys.argv[2]))
