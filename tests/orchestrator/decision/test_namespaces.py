"""A misspelled namespace: schedulers are alive in another one, and whoever may see that is told."""

import pytest
from toolgate_bus.transport.heartbeats import encode_member
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate


@pytest.fixture
def server_url(own_server):
    """A server of its own: on the shared one other tests have namespaces, too."""
    return own_server.url


@pytest.fixture
async def commands(server_url):
    commands = RedisCommands(server_url, "test")
    yield commands
    await commands.aclose()


async def announce(commands, namespace, name):
    """A scheduler of this name stands on the roster of a namespace, for a moment."""
    await Roster(commands, namespace).write(f"s:{name}:r-1", encode_member(Member(name, "r-1")))


@pytest.mark.parametrize("config", [{}, {"required": ["policy"], "patience_ms": 50}])
async def test_the_line_names_the_namespace_in_which_schedulers_are_alive(
    commands, server_url, namespace, fresh_lines, config
):
    async with Gate.open(redis=server_url, namespace=f"{namespace}x", **config) as gate:
        await announce(commands, namespace, "policy")
        await gate.decide(Call("pay", {}, ["pay"]))
    (line,) = fresh_lines.values()
    assert f"namespace {namespace}x, but some are in namespace" in line
    assert f"{namespace} (policy)" in line


async def test_who_may_not_list_keys_is_told_the_rest(commands, server_url, namespace, fresh_lines):
    await commands.execute("ACL", "SETUSER", namespace, "on", ">secret", "~*", "&*", "+@all", "-scan")
    url = server_url.replace("unix://", f"unix://{namespace}:secret@")
    async with Gate.open(redis=url, namespace=f"{namespace}x") as gate:
        await announce(commands, namespace, "policy")
        await gate.decide(Call("pay", {}, ["pay"]))
    await commands.execute("ACL", "DELUSER", namespace)
    (line,) = fresh_lines.values()
    assert f"namespace {namespace}x; start a scheduler" in line


async def test_among_hundreds_of_namespaces_the_most_alike_is_named(commands, server_url, fresh_lines):
    for number in range(200):
        await announce(commands, f"tenant-{number}", "policy")
    await announce(commands, "production", "policy")
    async with Gate.open(redis=server_url, namespace="producton") as gate:
        await gate.decide(Call("pay", {}, ["pay"]))
    (line,) = fresh_lines.values()
    assert "but some are in namespaces production (policy)" in line


async def test_the_look_for_other_namespaces_is_made_once_however_many_calls_are_denied(
    commands, server_url, namespace, fresh_lines
):
    async def looks():
        info = (await commands.execute("INFO", "commandstats")).decode()
        (line,) = [line for line in info.splitlines() if line.startswith("cmdstat_scan:")] or ["calls=0,"]
        return int(line.partition("calls=")[2].partition(",")[0])

    async with Gate.open(redis=server_url, namespace=namespace, required=["policy"], patience_ms=50) as gate:
        await gate.decide(Call("pay", {}, ["pay"]))
        before = await looks()
        assert before > 0
        for _ in range(5):
            assert (await gate.decide(Call("pay", {}, ["pay"]))).outcome == "deny"
    async with Gate.open(redis=server_url, namespace=namespace, required=["policy"], patience_ms=50) as gate:
        await gate.decide(Call("pay", {}, ["pay"]))
    assert await looks() == before
    assert len(fresh_lines) == 1
