"""A command that looks once at the embedded server does so without redis-py, and sees the same."""

import asyncio
import contextlib

import pytest
from toolgate_bus.errors import ToolgateError
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.client.link import MAX_BYTES
from toolgate_bus.transport.redis.client.local_commands import LocalCommands, open_commands
from toolgate_bus.transport.redis.client.local_commands import socket_of as read_socket

NOT_PLAIN = {
    "an error": b"-ERR I am not the one\r\n",
    "no reply at all": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "too many bytes": b"$%d\r\n" % (MAX_BYTES + 1),
    "fewer items than it says": b"*1000001\r\n:1\r\n",
    "too deep": b"*1\r\n" * 1000,
    "a line without end": b"+" * 100_000,
    "half a reply": b"$10\r\nhalf",
}


@pytest.fixture
async def both(server_url):
    """The same server by both ways."""
    ordinary = RedisCommands(server_url, "toolgate-test")
    async with open_commands(server_url, "toolgate-test") as local:
        yield local, ordinary
    await ordinary.aclose()


@pytest.fixture
async def stranger(short_directory):
    """`stranger(bytes)`: the URL of a socket on which somebody greets as a server does, and answers that."""
    path = f"{short_directory}/s.sock"
    said = []

    async def read_line(reader):
        return (await reader.readuntil(b"\r\n"))[:-2]

    async def talk(reader, writer):
        command = []
        while command != [b"PING"]:
            if command:
                writer.write(b"+OK\r\n")
            words = int((await read_line(reader))[1:])
            command = [(await read_line(reader), await read_line(reader))[1] for _ in range(words)]
        writer.write(said[0])
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(talk, path):
        yield lambda text: said.append(text) or f"unix://{path}?db=0"


async def test_every_kind_of_reply_is_the_same_by_both_ways(both, namespace):
    text = bytes(range(256)) * 40
    done = (
        ("SET", f"{namespace}:a", text, "PX", 60_000),
        ("HSET", f"{namespace}:h", "f", 1.5, "g", 7),
        ("XADD", f"{namespace}:x", "1-1", "k", "v"),
        ("GET", f"{namespace}:a"),
        ("MGET", f"{namespace}:a", f"{namespace}:none"),
        ("HGETALL", f"{namespace}:h"),
        ("XRANGE", f"{namespace}:x", "-", "+"),
        ("GET", f"{namespace}:none"),
        ("KEYS", f"{namespace}:none"),
        ("CLIENT", "GETNAME"),
        ("DEL", f"{namespace}:a", f"{namespace}:h", f"{namespace}:x"),
    )
    local, ordinary = both
    one_by_one = [[await way.execute(*command) for command in done] for way in both]
    assert one_by_one[0] == one_by_one[1]
    assert one_by_one[0][3] == text
    assert await local.pipeline(done) == await ordinary.pipeline(done)
    assert local._ordinary is None


async def test_the_database_of_the_url_is_the_one_that_is_looked_at(server_url, namespace):
    async with (
        open_commands(server_url, "test") as first,
        open_commands(server_url.replace("db=0", "db=1"), "test") as second,
    ):
        await second.execute("SET", namespace, "there", "EX", 60)
        assert [await one.execute("EXISTS", namespace) for one in (first, second)] == [0, 1]
        await second.execute("DEL", namespace)


async def test_an_error_reply_is_told_as_ever_in_words_and_among_replies(both, namespace):
    said = []
    for way in both:
        with pytest.raises(ToolgateError) as error:
            await way.execute("LPUSH", namespace)
        replies = await way.pipeline([("SET", namespace, "1", "EX", 60), ("LPUSH", namespace, "x")])
        said.append((type(error.value), str(error.value), [type(one) for one in replies]))
        await way.execute("DEL", namespace)
    assert said[0] == said[1]


@pytest.mark.parametrize("told", NOT_PLAIN.values(), ids=NOT_PLAIN)
async def test_what_is_no_plain_reply_is_left_to_the_ordinary_client(stranger, told):
    url = stranger(told)
    said = []
    for way in (LocalCommands(url, "test", 0.5), RedisCommands(url, "test", 1, 0.5)):
        with pytest.raises(ToolgateError) as error:
            await way.execute("PING")
        said.append((type(error.value), str(error.value)))
        await way.aclose()
    assert said[0] == said[1]


async def test_where_nobody_listens_it_says_so_as_ever(short_directory):
    said = []
    url = f"unix://{short_directory}/none.sock?db=0"
    for way in (LocalCommands(url, "test"), RedisCommands(url, "test")):
        with pytest.raises(ToolgateError) as error:
            await way.execute("PING")
        said.append((type(error.value), str(error.value)))
        await way.aclose()
    assert said[0] == said[1]


async def test_who_gives_up_does_not_leave_half_a_reply_to_the_next_command(server_url, namespace):
    async with open_commands(server_url, "test") as commands:
        await commands.execute("SET", namespace, "mine", "EX", 60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await commands.execute("BLPOP", f"{namespace}:list", 1)
        assert await commands.execute("GET", namespace) == b"mine"
        await commands.execute("DEL", namespace)


@pytest.mark.parametrize(
    "url",
    ["redis://localhost:6379/0", "rediss://h:1", "unix://user:word@/s.sock", "unix:///s.sock?password=x"],
)
def test_servers_with_passwords_or_on_the_network_are_not_for_it(url):
    with pytest.raises(ValueError, match="not a socket without a password"):
        read_socket(url)
