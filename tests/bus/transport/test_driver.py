"""What is ours in redis-py's connections: how commands are packed, and how many round trips one costs."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import BusDown
from toolgate_bus.transport.redis.client import connection
from toolgate_bus.transport.redis.client.connection import RedisCommands, open_link, open_links
from toolgate_bus.transport.redis.client.driver import Connection, TcpConnection
from toolgate_bus.transport.redis.client.link import Link
from toolgate_bus.transport.redis.client.topology import topology_of

words = st.one_of(st.binary(), st.text(st.characters(codec="utf-8")), st.integers(), st.floats())
commands_ = st.lists(st.tuples(st.sampled_from(["GET", "CLIENT LIST", b"XADD"]), words, words), min_size=1)


@given(commands_)
def test_commands_are_packed_as_redis_py_packs_them(several: Sequence[tuple[Any, ...]]) -> None:
    ours, theirs = TcpConnection(), Connection()
    spelled = [(*(one[0].split() if isinstance(one[0], str) else one[:1]), *one[1:]) for one in several]
    assert b"".join(ours.pack_commands(spelled)) == b"".join(theirs.pack_commands(several))
    for command in several:
        assert b"".join(ours.pack_command(*command)) == b"".join(theirs.pack_command(*command))


def test_no_round_trip_tells_the_server_which_client_this_is() -> None:
    made: Any = topology_of("redis://localhost").make_pool("test").make_connection()
    assert getattr(made, "driver_info", None) is None  # of a newer redis-py, and of an older one
    assert getattr(made, "lib_name", None) is None


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("end", ["refused", "cancelled"])
async def test_of_links_that_belong_together_none_stays_where_one_cannot_be_made(
    server_url: str, monkeypatch: pytest.MonkeyPatch, end: str, at_once: bool
) -> None:
    made: list[Link] = []
    second = asyncio.Event()

    async def open_first(url: str, name: str, *args: Any, **options: Any) -> Link:
        if name == "first":
            made.append(await open_link(url, name, *args, **options))
            return made[0]
        while not made:
            await asyncio.sleep(0)
        second.set()
        if end == "refused":
            raise BusDown("no more connections")
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(connection, "open_link", open_first)
    names = ("first", "second")
    opening = asyncio.create_task(open_links(server_url, names, lambda reply, tag: None, at_once=at_once))
    await second.wait()
    if end == "cancelled":
        opening.cancel()
    with pytest.raises(BusDown if end == "refused" else asyncio.CancelledError):
        await opening
    assert (await made[0].lost, made[0].up) == ("closed", False)


async def test_links_that_belong_together_are_given_in_the_order_of_their_names(
    server_url: str, commands: RedisCommands, namespace: str
) -> None:
    names = [f"{namespace}-{one}" for one in ("read", "write")]
    links = await open_links(server_url, names, lambda reply, tag: None, at_once=True)
    links[0].drop()
    await links[0].lost
    while names[0] in (listing := (await commands.execute("CLIENT", "LIST")).decode()):
        await asyncio.sleep(0)
    assert names[1] in listing
    links[1].drop()
