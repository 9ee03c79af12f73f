"""Credentials that are taken away while everybody works: no hot loop, and all go on when they are back."""

import asyncio
import time

import pytest
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.system, pytest.mark.acceptance]

RIGHTS = ("on", ">secret", "~*", "&*", "+@all")
LOOK_S = 5.0
CLIENTS = 4
"""Links and pools of the gate and of the scheduler, of which each may try."""


async def connections(commands):
    """How many there have been since the server started."""
    info = (await commands.execute("INFO", "stats")).decode()
    lines = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    return int(lines["total_connections_received"])


async def test_who_is_shut_out_tries_no_more_than_once_a_second_and_comes_back(
    own_server, schedulers_on, wait_until
):
    commands = RedisCommands(own_server.url, "test")
    await commands.execute("ACL", "SETUSER", "app", *RIGHTS)
    url = own_server.url.replace("unix://", "unix://app:secret@")
    schedulers = schedulers_on(url)
    await schedulers.start("obedient:alpha")

    async def is_ruled():
        return (await gate.decide(Call("bash", {"n": 1}, ["bash"]))).outcome == "continue"

    async with Gate.open(redis=url, required=["alpha"], patience_ms=500) as gate:
        await wait_until(is_ruled)
        await commands.execute("ACL", "SETUSER", "app", "off")
        await commands.execute("CLIENT", "KILL", "USER", "app")
        await asyncio.sleep(1.0)  # what it does at once is one attempt for each connection
        before, began = await connections(commands), time.monotonic()
        while time.monotonic() - began < LOOK_S:
            assert not await is_ruled()
            await asyncio.sleep(0.05)
        tried, seconds = await connections(commands) - before, time.monotonic() - began
        print({"tried": tried, "seconds": seconds})
        assert tried <= (seconds + 1) * CLIENTS
        await commands.execute("ACL", "SETUSER", "app", "on")
        await wait_until(is_ruled)
    await commands.aclose()
