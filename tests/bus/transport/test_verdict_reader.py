"""The one read of all verdict streams: what comes in many small replies is counted as what comes in few."""

import asyncio
from types import SimpleNamespace

import pytest
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.asking import verdicts
from toolgate_bus.transport.redis.asking.quarantine import MAX_BYTES
from toolgate_bus.transport.redis.asking.verdicts import VerdictReader
from toolgate_bus.transport.redis.client.link import Link

pytestmark = pytest.mark.pure
KEYS = Keys("test")
SMALL = 2000
"""Bytes of one reply: far less than any that is looked at for itself."""


class Commands:
    """Ordinary commands, kept."""

    def __init__(self):
        self.deleted = []

    async def pipeline(self, commands):
        self.deleted += [key for _, key in commands]


class Wire:
    """A transport that sends nowhere."""

    def write(self, data):
        """Nobody reads here."""

    def is_closing(self):
        return False

    def set_protocol(self, protocol):
        """Replies are handed in by the test."""


@pytest.fixture
async def reader(monkeypatch):
    """One that reads the streams of two schedulers; its clock stands still until a test moves it."""
    made, clock = VerdictReader("redis://x", KEYS, "o", Commands()), SimpleNamespace(now=100.0)
    monkeypatch.setattr(verdicts, "time", SimpleNamespace(monotonic=lambda: clock.now))
    made.heard, made.clock = 0, clock

    def hear(frames):
        made.heard += len(frames)

    made.listen(hear, lambda: None, lambda order: None)
    made.want(frozenset(("loud", "quiet")))
    made._link = Link(made._reply)
    made._link.take_over(Wire(), None)
    made._read()
    return made


def reply_of(name, size):
    """An entry of a verdict stream of so many bytes, as the server writes it."""
    words = [b"event", b"verdict", b"frame", b"x" * size]
    fields = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    stream = KEYS.verdicts("o", name).encode()
    return b"*1\r\n*2\r\n$%d\r\n%s\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*4\r\n%s" % (len(stream), stream, fields)


def bring(reader, name, total, size=SMALL):
    """Have that much come in small replies."""
    reply = reply_of(name, size)
    for _ in range(total // size):
        reader._link.data_received(reply)
        if not reader._link.owed:
            reader._read()


async def test_small_replies_add_up_to_a_flood_of_who_brings_it(reader):
    bring(reader, "quiet", MAX_BYTES // 4)
    bring(reader, "loud", MAX_BYTES)
    assert not reader._commands.deleted
    bring(reader, "quiet", MAX_BYTES // 8)
    bring(reader, "loud", MAX_BYTES // 2)
    await asyncio.sleep(0)
    assert set(reader._commands.deleted) == {KEYS.verdicts("o", "loud").encode()}
    assert reader.heard > 2 * MAX_BYTES // 2 // SMALL


async def test_as_much_in_several_seconds_is_none(reader):
    for _ in range(8):
        bring(reader, "loud", MAX_BYTES - 100 * SMALL)
        reader.clock.now += 1.1
    await asyncio.sleep(0)
    assert not reader._commands.deleted
