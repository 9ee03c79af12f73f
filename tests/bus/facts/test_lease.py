"""Leases on a real server and in memory: one leads; a leader that slept through its end finds that out."""

from typing import Any

import pytest
from toolgate_bus.facts.lease import Checkpoint, KeeperLease, Lease
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.packing import pack
from toolgate_bus.transport.memory import MemoryStore
from toolgate_bus.transport.redis.storage.store import RedisStore

SECONDS = 3000.0
"""Far more than a test takes."""


def two_leases(commands: Any, namespace: str) -> tuple[Lease, Lease]:
    """Leases of two processes for the same work."""
    return Lease(commands, namespace, "work", SECONDS), Lease(commands, namespace, "work", SECONDS)


async def run_out(commands: Any, namespace: str) -> None:
    """Have the lease end at once."""
    await commands.execute("DEL", Keys(namespace).store_key("work:leader"))


async def test_what_a_leader_keeps_is_written_unless_another_has_led_since(
    commands: Any, namespace: str
) -> None:
    slow, other = two_leases(commands, namespace)
    assert await slow.take()
    assert await slow.read("state") is None
    await run_out(commands, namespace)
    more = ("HSET", "more", "a", b"1", "b", b"2"), ("HDEL", "more", "a")
    assert await slow.keep(("SET", "state", b"one"), *more)
    assert not await other.take()
    await slow.leave()
    assert await other.take()
    assert await other.read("state") == b"one"
    await other.leave()
    assert not await slow.keep(("SET", "state", b"two"), ("DEL", "more"))
    assert not await slow.keep()
    assert await slow.read("state") == b"one"
    assert await slow.read("more", "HVALS") == [b"2"]


async def test_a_lease_lasts_its_seconds_from_the_renewal_that_succeeded_last(
    commands: Any, namespace: str
) -> None:
    slow, other = two_leases(commands, namespace)
    assert slow.renewed_at == float("-inf")
    assert await slow.take()
    begun, left_ms = slow.renewed_at, await commands.execute("PTTL", Keys(namespace).store_key("work:leader"))
    assert SECONDS * 500 < left_ms <= SECONDS * 1000
    assert await slow.keep()
    assert (kept := slow.renewed_at) > begun
    await run_out(commands, namespace)
    assert await other.take()
    assert not await slow.keep()
    assert not await slow.take()
    assert slow.renewed_at == kept


async def test_who_stands_by_ends_no_other_process_lease(commands: Any, namespace: str) -> None:
    leader, other = two_leases(commands, namespace)
    assert await leader.take()
    await other.leave()
    assert not await other.take()


async def test_services_of_other_versions_read_these_keys(commands: Any, namespace: str) -> None:
    lease, _ = two_leases(commands, namespace)
    await lease.take()
    await lease.keep(("SET", "state", b"counts"))
    keys = [Keys(namespace).store_key(f"work:{name}") for name in ("leader", "led", "state")]
    leader, led, state = await commands.execute("MGET", *keys)
    assert leader == led
    assert state == b"counts"


@pytest.mark.parametrize("kind", ["memory", "server"])
async def test_a_keeper_that_begins_anew_knows_that_another_may_have_led(
    kind: str, commands: Any, namespace: str
) -> None:
    store = MemoryStore() if kind == "memory" else RedisStore(commands, namespace)
    one, other = (KeeperLease(store, "book:keeper", name, SECONDS) for name in ("r1", "r2"))
    assert await one.renew()
    assert await one.renew()
    assert one.term == 1
    assert not await other.renew()
    assert other.term == 0
    assert await store.get("book:keeper") == b"r1"
    assert SECONDS / 2 < (await store.seconds_left("book:keeper") or 0) <= SECONDS
    await store.delete("book:keeper")  # it ran out
    assert await other.renew()
    assert not await one.renew()
    await store.delete("book:keeper")
    assert await one.renew()
    assert one.term == 2


@pytest.mark.pure
def test_a_checkpoint_is_read_as_it_was_written_and_anything_else_is_an_empty_one() -> None:
    for whole in (Checkpoint({"o": "1-0"}, {"o": 7}, b"again"), Checkpoint({"o": "1-0"}, {"o": 7})):
        assert Checkpoint.from_bytes(whole.to_bytes()) == whole
    assert Checkpoint.from_bytes(pack({"o": "1-0"})) == Checkpoint({"o": "1-0"})  # as slots note it
    for odd in (None, b"", b"\xc1", pack([]), pack([1, 2]), pack(["o"]), pack([{}, {"o": "x"}])):
        assert Checkpoint.from_bytes(odd) == Checkpoint()
