"""What operators hear of agents' tools: with the heartbeat, once for each set, and never of arguments."""

import pytest
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.tool_sets import ToolSet, digest_tools, encode_tools, narrow
from toolgate_bus.transport.redis.asking.orchestrator import RedisOrchestratorBus
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient

SEARCH = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOLS = {"search": SEARCH, "bash": None}


@pytest.fixture
async def commands(server_url):
    commands = RedisCommands(server_url, "test")
    yield commands
    await commands.aclose()


async def test_the_tools_of_living_agents_are_seen_and_those_of_agents_that_left_are_not(
    server_url, namespace, commands, wait_until
):
    fleet = AgentDirectory(commands, namespace)
    async with Gate.open(redis=server_url, namespace=namespace) as gate:
        await gate.decide(Call("search", {"query": "the password is hunter2"}, TOOLS))

        async def are_told():
            return bool((await fleet.tools()).tools)

        await wait_until(are_told)
        found = await fleet.tools()
        assert found.tools == {"search": (narrow(SEARCH),), "bash": ()}
        assert (found.processes, found.silent, found.whole) == (1, 0, True)
        (key,) = await commands.execute("KEYS", Keys(namespace).tools("*"))
        assert b"hunter2" not in await commands.execute("GET", key)
        assert 0 < await commands.execute("PTTL", key) <= 180_000
    assert (await fleet.tools()).processes == 0


async def test_processes_with_the_same_tools_share_one_set(server_url, namespace, commands, wait_until):
    fleet = AgentDirectory(commands, namespace)
    clients = [GateClient(RedisOrchestratorBus(server_url, namespace)) for _ in range(2)]
    try:
        for client in clients:
            await client.start()
            for _ in range(3):  # as adapters do: made anew for each call
                client.catalog.note({"search": dict(SEARCH), "bash": None})

        async def are_told():
            return (await fleet.tools()).processes == 2

        await wait_until(are_told)
        assert len(await commands.execute("KEYS", Keys(namespace).tools("*"))) == 1
    finally:
        for client in clients:
            await client.bus.aclose()
            client.close()


async def test_a_caller_that_names_no_tools_but_its_own_makes_no_set_that_is_whole(
    server_url, namespace, commands, wait_until
):
    fleet = AgentDirectory(commands, namespace)
    async with Gate.open(redis=server_url, namespace=namespace) as gate:
        await gate.decide(Call("search", {}, ["search"]))

        async def are_told():
            return "search" in (await fleet.tools()).tools

        await wait_until(are_told)
        assert not (await fleet.tools()).whole


async def test_a_set_that_somebody_else_put_in_its_place_is_not_believed(
    server_url, namespace, commands, wait_until
):
    fleet, keys = AgentDirectory(commands, namespace), Keys(namespace)
    async with Gate.open(redis=server_url, namespace=namespace) as gate:
        await gate.decide(Call("search", {}, TOOLS))

        async def are_told():
            return bool((await fleet.tools()).tools)

        await wait_until(are_told)
        (key,) = await commands.execute("KEYS", keys.tools("*"))
        for forged in (encode_tools(ToolSet({"serach": ()})), b"\xc1" * 200_000, b""):
            await commands.execute("SET", key, forged)
            found = await fleet.tools()
            assert (found.tools, found.processes, found.silent, found.whole) == ({}, 0, 1, False)
        told = encode_tools(ToolSet({"search": (narrow(SEARCH),), "bash": ()}))
        assert key.decode().endswith(digest_tools(told))
