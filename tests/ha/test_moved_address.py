"""An address that names another server from now on, while the old one lives on as its replica.

As a virtual address, a name or a service of Kubernetes does it: nobody cuts the old connections.
"""

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest
from free_ports import find_free_ports
from load import load_on
from promises import longest
from sentinel_world import SERVER, Node, until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

ROUNDS = int(os.environ.get("TOOLGATE_HA_ROUNDS", "1"))
RECOVERED_S = 5.0


class MovableAddress:
    """A port that leads new connections to one server or another; those that are there stay."""

    def __init__(self, port: int) -> None:
        self.target = port
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "MovableAddress":
        self._server = await asyncio.start_server(self._lead, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", self.target)
        for source, sink in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(self._copy(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
        finally:
            sink.close()


@pytest.fixture
def two_servers(short_directory: Path):
    """A primary and its replica, in step."""
    ports = find_free_ports(2)
    lines = [f"{name} {value or chr(34) * 2}" for name, value in SERVER]
    nodes = [
        Node(short_directory, ports[0], lines),
        Node(short_directory, ports[1], [*lines, f"replicaof 127.0.0.1 {ports[0]}"]),
    ]
    try:
        for node in nodes:
            node.start()
        until(lambda: "connected" in (nodes[1].answer("ROLE") or ()), 15.0)
        yield nodes
    finally:
        for node in nodes:
            node.kill()


def hand_over(old: Node, new: Node) -> None:
    """The new one is the primary, the old one its replica; its connections are not cut."""
    assert new.answer("REPLICAOF", "NO", "ONE") == "OK"
    assert old.answer("REPLICAOF", "127.0.0.1", new.port) == "OK"


async def test_a_server_demoted_in_place_is_left_for_the_one_that_its_address_now_names(
    two_servers, schedulers_on
):
    old, new = two_servers
    async with MovableAddress(old.port) as address:
        schedulers = schedulers_on(address.url)
        for name in ("alpha", "beta"):
            await schedulers.start(f"obedient:{name}")
        async with load_on(address.url) as load:
            for _ in range(ROUNDS):
                moment = time.monotonic()
                address.target = new.port
                await asyncio.to_thread(hand_over, old, new)
                await load.goes_on(time.monotonic(), longest(RECOVERED_S))
                assert load.wrong == []
                assert load.stuck == []
                await asyncio.to_thread(
                    until, lambda node=old: "connected" in (node.answer("ROLE") or ()), 15.0
                )
                old, new = new, old
            print("outage", round(load.outage(moment), 2), len(load.rows))
