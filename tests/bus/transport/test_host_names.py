"""Lookups of servers' names: one at a time for each name, whoever waits for it."""

import asyncio
import socket

import pytest
from toolgate_bus.transport.redis.client.driver import look_up

pytestmark = pytest.mark.pure


class Resolver:
    """What stands in for the name server: it answers when it is told to."""

    def __init__(self, monkeypatch):
        self.asked, self.answers = [], asyncio.Event()
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self.find)

    async def find(self, host, port, **_options):
        self.asked.append(host)
        await self.answers.wait()
        if host == "gone":
            raise socket.gaierror(-2, "Name or service not known")
        return [()]


async def test_many_who_look_for_one_name_look_it_up_once(monkeypatch):
    resolver = Resolver(monkeypatch)
    waiting = [asyncio.create_task(look_up(name)) for name in ["gone"] * 50 + ["here"]]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert resolver.asked == ["gone", "here"]
    resolver.answers.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in found] == [socket.gaierror] * 50 + [type(None)]
    await look_up("here")
    assert resolver.asked == ["gone", "here", "here"]  # nothing is remembered


async def test_a_lookup_goes_on_for_the_others_when_one_has_given_up(monkeypatch):
    resolver = Resolver(monkeypatch)
    impatient, patient = (asyncio.create_task(look_up("here")) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    impatient.cancel()
    resolver.answers.set()
    assert await patient is None
    assert resolver.asked == ["here"]


async def test_an_address_needs_no_name_server(monkeypatch):
    resolver = Resolver(monkeypatch)
    await look_up("127.0.0.1")
    await look_up("::1")
    assert resolver.asked == []
