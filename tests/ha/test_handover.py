"""A real primary is asked whether it has handed over: by itself, by an operator, or not at all."""

import asyncio

import pytest
from replicated_world import Replicated
from sentinel_world import until
from toolgate_bus.transport.redis.client.driver import make_pool
from toolgate_bus.transport.redis.client.handover import Move, PrimaryHandover

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(120)]

ASKED_S = 0.5
"""Longer than a handover on loopback takes to be seen."""
NAME = "toolgate-role"


@pytest.fixture
def servers(short_directory):
    world = Replicated(short_directory)
    try:
        world.start()
        yield world
    finally:
        for node in (world.primary, *world.replicas):
            node.kill()


def address(node):
    return "127.0.0.1", node.port


async def successor(move, primary):
    """Who is found to follow within a moment."""
    done = asyncio.Event()
    handover = PrimaryHandover(lambda at: make_pool(f"redis://{at[0]}:{at[1]}", NAME), done.set)
    handover.begin(move, primary, ASKED_S)
    try:
        await asyncio.wait_for(done.wait(), ASKED_S)
    except TimeoutError:
        assert handover.find_successor() is None
        return None
    return handover.find_successor()


def is_asked(node):
    """Whether the server ever heard of one who asks for its role."""
    return "cmdstat_role" in node.answer("INFO", "commandstats")


async def test_a_primary_that_hands_over_names_who_follows(servers):
    old, new = servers.primary, servers.replicas[0]
    move = Move(address(old), address(new))
    assert await successor(move, address(old)) is None
    assert old.answer("FAILOVER", "TO", "127.0.0.1", new.port) == "OK"
    assert await successor(move, address(old)) == address(new)


async def test_a_replica_that_was_promoted_beside_the_primary_is_not_followed(servers):
    old, new = servers.primary, servers.replicas[0]
    new.answer("REPLICAOF", "NO", "ONE")
    assert await successor(Move(address(old), address(new)), address(old)) is None
    assert not is_asked(new), "nobody but the primary names who follows it"


async def test_a_primary_that_an_operator_had_follow_another_is_not_believed_to_have_handed_over(servers):
    old, new = servers.primary, servers.replicas[0]
    other = servers.replicas[1]
    for node in (new, other):
        node.answer("REPLICAOF", "NO", "ONE")
    old.answer("REPLICAOF", "127.0.0.1", other.port)
    until(lambda: old.answer("ROLE")[3] == "connected", 10)
    assert await successor(Move(address(old), address(new)), address(old)) is None
    assert await successor(Move(address(old), address(other)), address(old)) == address(other)


async def test_a_replica_that_follows_another_itself_is_no_primary(servers):
    old, new = servers.primary, servers.replicas[0]
    other = servers.replicas[1]
    other.answer("REPLICAOF", "NO", "ONE")
    new.answer("REPLICAOF", "127.0.0.1", other.port)
    until(lambda: new.answer("ROLE")[3] == "connected", 10)
    old.answer("REPLICAOF", "127.0.0.1", new.port)
    until(lambda: old.answer("ROLE")[3] == "connected", 10)
    assert await successor(Move(address(old), address(new)), address(old)) is None


async def test_nobody_is_asked_whom_one_sentinel_alone_calls_the_primary(servers):
    old, new = servers.primary, servers.replicas[0]
    old.answer("FAILOVER", "TO", "127.0.0.1", new.port)
    until(lambda: new.answer("ROLE")[0] == "master", 10)
    for node in (old, new):
        node.answer("CONFIG", "RESETSTAT")
    assert await successor(Move(address(old), address(new)), address(servers.replicas[1])) is None
    assert not is_asked(old)
    assert not is_asked(new)


async def test_who_may_not_ask_for_a_role_waits_for_the_sentinels(servers):
    old, new = servers.primary, servers.replicas[0]
    old.answer("FAILOVER", "TO", "127.0.0.1", new.port)
    until(lambda: new.answer("ROLE")[0] == "master", 10)
    old.answer("ACL", "SETUSER", "default", "-role")
    assert await successor(Move(address(old), address(new)), address(old)) is None
