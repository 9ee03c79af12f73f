"""Opening a gate never hangs: where waiting would not mend it, it says what to do; nothing is left behind."""

import asyncio

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_orchestrator.decision.gate import Gate

RIGHTS = ("on", ">secret", "~*", "&*", "+@all")


async def opened(url, namespace="default"):
    """What came of opening a gate, and the tasks that are left."""
    before = asyncio.all_tasks()
    try:
        async with Gate.open(redis=url, namespace=namespace) as gate:
            told = f"up: {gate._client.up}"
    except ConfigError as error:
        told = str(error)
    await asyncio.sleep(0)
    return told, asyncio.all_tasks() - before


async def test_a_roster_of_another_type_is_named_with_what_to_do(server_url, namespace):
    commands = RedisCommands(server_url, "test")
    try:
        look = Roster(commands, namespace).asks(everything=True)
        keys = [str(command[1]) for command in look.commands]
        for key in keys:
            await commands.execute("SET", key, "rubbish")
        told, left = await opened(server_url, namespace)
    finally:
        await commands.aclose()
    assert told.startswith(tuple(f"{key}: it holds something of another type" for key in keys))
    assert "DEL" in told
    assert not left


@pytest.mark.parametrize("right", ["-set", "-xread", "-ping"])
async def test_a_right_that_is_not_there_is_named(own_server, right):
    commands = RedisCommands(own_server.url, "test")
    await commands.execute("ACL", "SETUSER", "poor", *RIGHTS, right)
    await commands.aclose()
    told, left = await opened(own_server.url.replace("unix://", "unix://poor:secret@"))
    assert f"'{right[1:]}'" in told
    assert not left


async def test_who_gives_up_while_it_opens_or_closes_leaves_nothing(server_url, namespace, wait_until):
    before = asyncio.all_tasks()
    for milliseconds in range(0, 20, 2):
        opening = asyncio.create_task(opened(server_url, namespace))
        await asyncio.sleep(milliseconds / 1000)
        opening.cancel()
        await asyncio.wait([opening])
    await wait_until(lambda: asyncio.all_tasks() <= before)
