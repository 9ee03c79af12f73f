"""Who is being decided stands in a row: who comes later hears of all before it, and keeps its place."""

import asyncio
import random

import pytest
from toolgate_bus.errors import TransportError
from toolgate_bus.state import claims as claims_module
from toolgate_bus.state.claims import ClaimRules, MemoryClaims, RedisClaims
from toolgate_bus.transport.redis.client.connection import RedisCommands


@pytest.fixture(params=["memory", "redis"])
async def claims(request, namespace):
    """Each kind in turn: two that share their rows."""
    if request.param == "memory":
        both = MemoryClaims()
        yield both, both
        return
    commands = RedisCommands(request.getfixturevalue("server_url"), "test", connections=2)
    yield RedisClaims(commands, namespace), RedisClaims(commands, namespace)
    await commands.aclose()


async def test_of_many_who_come_at_once_each_hears_of_exactly_those_before_it(claims):
    asked = [claims[number % 2].claim(["r"], f"c{number}", b"w\0%d" % number) for number in range(40)]
    heard = await asyncio.gather(*asked)
    assert sorted(map(len, heard)) == list(range(40))
    longest = [one.who for one in max(heard, key=len)]
    for before in heard:
        assert [one.who for one in before] == longest[: len(before)]
        assert all(one.words == b"w\0" + one.who[1:].encode() for one in before)


async def test_a_place_is_kept_given_back_and_runs_out(claims, monkeypatch, wait_until):
    one, other = claims
    assert await one.claim(["r"], "a", b"") == []
    assert [place.who for place in await other.claim(["r", "s"], "b", b"")] == ["a"]
    assert await one.claim(["r"], "a", b"") == []  # it stood before b, and does
    await one.give_back(["r"], "a")
    assert [place.who for place in await other.claim(["r"], "a", b"")] == ["b"]  # now it is behind
    assert [place.who for place in await one.claim(["s"], "c", b"")] == ["b"]
    await one.renew(["r"], "a", b"")
    await one.renew(["s", "u"], "d", b"")  # it had none
    assert [place.who for place in await other.claim(["r", "s", "u"], "e", b"")] == [*"ba", *"bcd", "d"]
    monkeypatch.setattr(claims_module, "KEPT_MS", 1)
    await one.claim(["t"], "a", b"")

    async def has_run_out():
        return await other.claim(["t"], "b", b"") == []

    await wait_until(has_run_out)


async def test_a_row_has_an_end(claims, monkeypatch):
    monkeypatch.setattr(claims_module, "MAX_ROW", 2)
    for who in ("a", "b", "a"):
        await claims[0].claim(["r"], who, b"")
    with pytest.raises(TransportError, match="so many are being decided"):
        await claims[1].claim(["r"], "c", b"")


async def test_the_script_and_the_rules_say_the_same(server_url, namespace):
    commands = RedisCommands(server_url, "test", connections=1)
    chance, on_server, rules = random.Random(7), RedisClaims(commands, namespace), ClaimRules()
    for _ in range(600):
        keys, who = chance.sample("rst", chance.randint(1, 3)), f"c{chance.randrange(12)}"
        if chance.random() < 0.4:
            await on_server.give_back(keys, who)
            rules.give_back(keys, who)
        elif chance.random() < 0.3:
            await on_server.renew(keys, who, who.encode())
            rules.claim(keys, who, who.encode(), 0)
        else:
            assert await on_server.claim(keys, who, who.encode()) == rules.claim(keys, who, who.encode(), 0)
    await commands.aclose()
