"""One connection: each reply belongs to its command, and a server that is not the one is not believed."""

import asyncio

import pytest
from toolgate_bus.transport.redis.client.link import READ, Link, ServerError

pytestmark = pytest.mark.pure


class Wire:
    """A transport that keeps what it is given."""

    def __init__(self):
        self.sent, self.closing = b"", False

    def write(self, data):
        self.sent += data

    def is_closing(self):
        return self.closing

    def abort(self):
        self.closing = True

    def set_protocol(self, protocol):
        """Nobody reads here."""


@pytest.fixture
async def heard():
    return []


@pytest.fixture
async def link(heard):
    made = Link(lambda reply, tag: heard.append((reply, tag)), most_bytes=1000)
    made.take_over(Wire(), None)
    return made


async def test_an_error_reply_to_another_command_does_not_end_the_blocking_read(link, heard):
    link.write(b"two", ("verdict", READ))
    link.data_received(b"-OOM command not allowed\r\n")
    assert [(str(reply), tag) for reply, tag in heard] == [("OOM command not allowed", "verdict")]
    assert link.reading
    link.data_received(b"*-1\r\n")
    assert heard[1] == (None, READ)
    assert not link.reading


async def test_of_commands_whose_refusals_alone_matter_nothing_else_is_handed_on(link, heard):
    link.unanswered = str
    link.write(b"three", ("question", "question", 7))
    link.data_received(b"$3\r\n1-0\r\n-OOM command not allowed\r\n$3\r\n2-0\r\n")
    assert [(str(reply), tag) for reply, tag in heard] == [
        ("OOM command not allowed", "question"),
        ("b'2-0'", 7),
    ]
    assert not link.owed


async def test_a_second_read_while_one_blocks_ends_the_connection(link):
    link.write(b"one", (READ,))
    link.write(b"two", ("verdict", READ))
    assert not link.up
    assert await asyncio.wait_for(link.lost, 30) == "a second read while one blocks"
    assert list(link.owed) == [READ, "verdict", READ]


@pytest.mark.parametrize(
    "error",
    ["READONLY", "MOVED 1 a:1", "ASK 1 a:1", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED", "LOADING"],
)
async def test_a_server_that_is_not_the_one_is_left_before_its_reply_is_believed(link, heard, error):
    link.write(b"three", ("a", "b", "c"))
    link.data_received(b"$2\r\n1-\r\n-" + error.encode() + b" you can't\r\n$2\r\n2-\r\n")
    assert heard == [(b"1-", "a")]
    assert list(link.owed) == ["b", "c"]
    assert isinstance(link.refusal, ServerError)
    assert not link.up


async def test_what_a_lost_connection_was_given_is_owed(link):
    link.drop()
    link.write(b"one", ("verdict",))
    assert list(link.owed) == ["verdict"]


async def test_a_reply_that_is_too_long_ends_the_connection_before_it_is_there(link, heard):
    link.write(b"one", ("stream",))
    link.data_received(b"$5000\r\n" + b"x" * 1001)
    assert (link.flooded, link.up, heard) == (True, False, [])
    assert list(link.owed) == ["stream"]


async def test_a_reply_that_nobody_asked_for_ends_the_connection(link, heard):
    link.data_received(b"+OK\r\n")
    assert (link.up, heard) == (False, [])


async def test_a_blocking_read_may_take_half_a_second_longer_than_anything_else(link):
    assert link.due == float("inf")
    link.write(b"one", ("verdict",))
    soon = link.due
    link.data_received(b"+OK\r\n")
    link.write(b"one", (READ,))
    assert 0.4 < link.due - soon < 0.7
