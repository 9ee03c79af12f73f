"""What sentinels say, and what follows from it: no server, no sentinel."""

import asyncio

import pytest
from toolgate_bus.errors import BusDown, ConfigError
from toolgate_bus.protocol.sentinel_url import read_sentinel_url
from toolgate_bus.transport.redis.client import sentinels
from toolgate_bus.transport.redis.client.handover import Move
from toolgate_bus.transport.redis.client.sentinels import (
    SentinelWatch,
    agree,
    explain_disagreement,
    read_move,
)

pytestmark = pytest.mark.pure

A, B = ("a", 6379), ("b", 6380)
S1, S2, S3 = ("s1", 26379), ("s2", 26379), ("s3", 26379)


@pytest.mark.parametrize(
    ("answers", "primary"),
    [
        ({S1: A, S2: A, S3: B}, A),
        ({S1: A, S2: A}, A),  # nobody need wait for the third
        ({S1: A}, None),
        ({S1: A, S2: B}, None),
        ({S1: A, S2: "timed out", S3: None}, None),
        ({}, None),
    ],
)
def test_the_primary_is_who_more_than_half_of_all_sentinels_name(answers, primary):
    assert agree(answers, 3) == primary


def test_one_sentinel_of_one_is_enough():
    assert agree({S1: A}, 1) == A


def test_sentinels_that_do_not_agree_are_each_told_of():
    error = explain_disagreement("fleet", {S1: A, S2: "timed out", S3: None})
    assert isinstance(error, BusDown)
    assert str(error) == (
        "the sentinels do not agree who is the primary of fleet: s1:26379 says a:6379; "
        "s2:26379 does not answer (timed out); s3:26379 does not know it"
    )


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({S1: None, S2: None}, "no sentinel knows the service fleet"),
        ({S1: "NOAUTH Authentication required.", S2: "timed out"}, "TOOLGATE_SENTINEL_PASSWORD_FILE"),
    ],
)
def test_what_waiting_would_not_mend_is_an_error_of_the_configuration(answers, why):
    error = explain_disagreement("fleet", answers)
    assert isinstance(error, ConfigError)
    assert why in str(error)


@pytest.mark.parametrize(
    ("channel", "text", "move"),
    [
        (b"+switch-master", b"fleet a 6379 b 6380", (A, B)),
        (b"+promoted-slave", b"slave b:6380 b 6380 @ fleet a 6379", (A, B)),
        (b"+failover-state-send-slaveof-noone", b"slave b:6380 b 6380 @ fleet a 6379", (A, B)),
        (b"+switch-master", b"other a 6379 b 6380", None),
        (b"+promoted-slave", b"slave b:6380 b 6380 @ other a 6379", None),
        (b"+switch-master", b"fleet a 6379 b", None),
        (b"+switch-master", b"fleet a 6379 b 99999999999", None),
        (b"+switch-master", b"fleet a x b 6380", None),
        (b"+sdown", b"master fleet a 6379", None),
        (b"+switch-master", b"\xff" * 1000, None),
    ],
)
def test_a_move_is_read_off_what_sentinels_publish(channel, text, move):
    assert read_move(channel, text, "fleet") == move


class Transport:
    """A connection, as far as a watch knows of it."""

    def __init__(self):
        self.closed = False

    def abort(self):
        self.closed = True

    def is_closing(self):
        return self.closed


async def test_connections_lead_to_the_primary_that_was_found_last_and_to_no_other(monkeypatch):
    """Sentinels may agree on another before any of them is heard saying so."""
    watch = SentinelWatch(read_sentinel_url("redis+sentinel://s1,s2,s3/fleet"))
    found = [A, B]

    async def search():
        return found.pop(0)

    async def listen():
        pass

    monkeypatch.setattr(watch, "_search_once", search)
    monkeypatch.setattr(watch, "_watch", listen)
    one, other, late = Transport(), Transport(), Transport()
    watch.keep(one, await watch.find())
    assert await watch.find() == B
    watch.keep(other, B)
    assert (one.closed, other.closed) == (True, False)
    with pytest.raises(BusDown, match="a:6379 was the primary of fleet until a moment ago"):
        watch.keep(late, A)
    assert (late.closed, other.closed) == (True, False)


@pytest.mark.parametrize("heard", [{S1, S2}, {S1, S2, S3}])
async def test_sentinels_are_asked_again_and_again_unless_all_of_them_are_listened_to(monkeypatch, heard):
    """To ask each means to connect, for every process of a fleet."""
    monkeypatch.setattr(sentinels, "WORD_SECONDS", 0.0)
    watch = SentinelWatch(read_sentinel_url("redis+sentinel://s1,s2,s3/fleet"))
    watch._heard, found = set(heard), [A, A, B]

    async def search():
        return found.pop(0)

    monkeypatch.setattr(watch, "_search_once", search)
    watch._follow(Move(A, B))
    finding = asyncio.create_task(watch.find())
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(found) == (2 if heard == {S1, S2, S3} else 0)
    for _ in range(len(found)):
        watch._wake()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert await finding == B


async def test_who_connects_to_a_server_that_says_nothing_gives_up_once_the_primary_moves():
    watch = SentinelWatch(read_sentinel_url("redis+sentinel://s1,s2,s3/fleet"))
    connecting = asyncio.create_task(watch.wait_while_primary(A, asyncio.Event().wait()))
    await asyncio.sleep(0)
    watch._wake()  # something else was said
    await asyncio.sleep(0)
    assert not connecting.done()
    watch._follow(Move(A, B))
    with pytest.raises(BusDown, match="moving fleet away from a:6379"):
        await connecting


async def test_who_connects_while_nothing_moves_is_told_what_came_of_it():
    watch = SentinelWatch(read_sentinel_url("redis+sentinel://s1,s2,s3/fleet"))

    async def refused():
        await asyncio.sleep(0)
        raise ConnectionRefusedError("nobody listens")

    await watch.wait_while_primary(A, asyncio.sleep(0))
    with pytest.raises(ConnectionRefusedError):
        await watch.wait_while_primary(A, refused())
