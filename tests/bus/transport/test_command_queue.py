"""What waits for a connection goes together; nobody waits for ever, and nobody's reply is another's."""

import asyncio
import time

import pytest
from toolgate_bus.errors import BusDown, TransportError
from toolgate_bus.transport.redis.client import command_queue
from toolgate_bus.transport.redis.client.command_queue import MAX_TOGETHER, CommandQueue, NoConnectionError
from toolgate_bus.transport.redis.client.connection import RedisCommands


class Line:
    """Connections that send when they are let: each round trip waits for `go`."""

    def __init__(self, connections=1, seconds=5.0, **options):
        self.sent, self.go, self.error = [], asyncio.Event(), None
        self.queue = CommandQueue(self.send, connections, seconds, **options)

    async def send(self, commands):
        self.sent.append([" ".join(words) for words in commands])
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return [words[-1] for words in commands]

    async def busy(self, *commands):
        """One round trip that does not end, and those that ask meanwhile."""
        asks = [asyncio.create_task(self.queue.ask([("GET", "first")]))]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asks += [asyncio.create_task(self.queue.ask([one.split()])) for one in commands]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return asks


async def test_what_waits_goes_in_one_round_trip_and_each_gets_its_own_reply():
    line = Line()
    asks = await line.busy(*(f"GET {number}" for number in range(3 + MAX_TOGETHER)))
    line.go.set()
    replies = [await ask for ask in asks]
    assert replies == [["first"], *([str(number)] for number in range(3 + MAX_TOGETHER))]
    assert [len(one) for one in line.sent] == [1, MAX_TOGETHER, 3]


async def test_what_holds_a_connection_up_goes_alone():
    line = Line()
    await line.busy("GET a", "XREAD BLOCK 1000 STREAMS s 0", "GET b", "GET c", "WAIT 1 100")
    line.go.set()
    await line.queue.drain(5)
    assert line.sent == [
        ["GET first"],
        ["GET a"],
        ["XREAD BLOCK 1000 STREAMS s 0"],
        ["GET b", "GET c"],
        ["WAIT 1 100"],
    ]


async def test_commands_of_one_caller_stay_together_however_many_they_are():
    line = Line()
    asks = await line.busy("GET a")
    many = asyncio.create_task(line.queue.ask([("GET", str(number)) for number in range(2 * MAX_TOGETHER)]))
    await asyncio.sleep(0)
    line.go.set()
    assert len(await many) == 2 * MAX_TOGETHER
    assert [len(one) for one in line.sent] == [1, 1, 2 * MAX_TOGETHER]
    assert await asks[1] == ["a"]


async def test_a_connection_that_fails_fails_all_that_went_by_it_and_the_next_go_on():
    line = Line()
    asks = await line.busy("GET a", "GET b")
    line.error = ConnectionResetError("gone")
    line.go.set()
    told = await asyncio.gather(*asks, return_exceptions=True)
    assert told == [line.error] * 3
    line.error = None
    assert await line.queue.ask([("GET", "c")]) == ["c"]


async def test_who_is_cancelled_leaves_its_command_and_the_others_their_replies():
    line = Line()
    first, left, stays = await line.busy("GET a", "GET b")
    first.cancel()
    left.cancel()
    line.go.set()
    assert await stays == ["b"]
    assert line.sent == [["GET first"], ["GET a", "GET b"]]


async def test_who_waits_for_too_long_is_told_and_its_command_is_not_sent(monkeypatch):
    line = Line(seconds=5.0)
    asks = await line.busy("GET a")
    now = time.monotonic()
    monkeypatch.setattr(command_queue.time, "monotonic", lambda: now + 6)
    line.go.set()
    with pytest.raises(NoConnectionError):
        await asks[1]
    assert line.sent == [["GET first"]]


async def test_so_many_go_at_a_time_as_there_are_connections():
    line = Line(connections=2)
    await line.busy("GET a", "GET b", "GET c")
    assert line.sent == [["GET first"], ["GET a", "GET b", "GET c"]]
    line.go.set()
    await line.queue.drain(5)
    assert await line.queue.ask([("GET", "d")]) == ["d"]


async def test_where_each_caller_is_to_be_alone_nothing_is_sent_together():
    line = Line(connections=99, most_together=1)
    asks = [asyncio.create_task(line.queue.ask([("GET", name), ("GET", "x")])) for name in "abc"]
    line.go.set()
    assert [await ask for ask in asks] == [["a", "x"], ["b", "x"], ["c", "x"]]
    assert line.sent == [["GET a", "GET x"], ["GET b", "GET x"], ["GET c", "GET x"]]


async def test_replies_that_are_too_few_are_nobodys():
    async def send(commands):
        return [b"one"]

    queue = CommandQueue(send, 1, 5.0)
    told = await asyncio.gather(*(queue.ask([("GET", "a")]) for _ in range(2)), return_exceptions=True)
    assert [str(one) for one in told] == ["1 replies to 2 commands"] * 2


async def test_each_caller_of_a_server_is_told_its_own_error(server_url, namespace):
    commands = RedisCommands(server_url, "test", connections=1)
    key = f"tg:{{{namespace}}}:test"
    try:
        told = await asyncio.gather(
            commands.execute("SET", key, "word", "PX", 60_000),
            commands.execute("INCR", key),
            commands.execute("GET", key),
            commands.pipeline([("LPUSH", key, "x"), ("GET", key)]),
            return_exceptions=True,
        )
    finally:
        await commands.aclose()
    assert (told[0], told[2]) == (b"OK", b"word")
    assert isinstance(told[1], TransportError)
    assert "integer" in str(told[1])
    assert "WRONGTYPE" in str(told[3][0])
    assert told[3][1] == b"word"


async def test_a_server_that_is_away_is_down_for_all_that_waited():
    commands = RedisCommands("redis://127.0.0.1:1", "test", connections=1)
    told = await asyncio.gather(*(commands.execute("PING") for _ in range(50)), return_exceptions=True)
    await commands.aclose()
    assert {type(one) for one in told} == {BusDown}
