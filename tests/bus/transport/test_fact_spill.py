"""Facts that a server did not take before their process ended: in a file, and written once it is back."""

import os
import time

import pytest
from toolgate_bus.errors import BusDown
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.packing import pack
from toolgate_bus.transport.redis.asking.fact_spill import (
    MAX_BYTES,
    MAX_FILES,
    FactSpill,
    find_state,
    make_private,
)
from toolgate_bus.transport.redis.asking.orchestrator import RedisOrchestratorBus
from toolgate_bus.transport.redis.client.connection import RedisCommands

ZERO = bytes(packing.ID_BYTES)
NOW_MS = int(time.time() * 1000)


class Ignore:
    """A listener that does nothing."""

    def on_verdicts(self, frames): ...
    def on_refusal(self, scheduler, ids, error): ...
    def on_roster_change(self, members): ...
    def on_connection(self, up): ...
    def on_lost_holds(self, lost): ...

    def on_unconfirmed(self, scheduler, ids): ...
    def on_stop_order(self, order):
        return ()

    def on_pauses(self, found):
        return ()

    def agents(self):
        return ()

    def tools(self):
        return b""

    def holds(self):
        return ()


def fact(number):
    return packing.item(ZERO, 0, pack({"event": "turn", "seq": number, "at": 1.0}), None)


def frame(*numbers):
    return packing.frame([fact(number) for number in numbers])


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def commands(own_server):
    return RedisCommands(own_server.url, "test")


async def orchestrator(url):
    bus = RedisOrchestratorBus(url, "default")
    bus.listen(Ignore())
    await bus.start()
    return bus


def files():
    return sorted(find_state().iterdir()) if find_state().exists() else []


async def told(commands, writer):
    return [
        one["seq"]
        for one in await FactsReader(commands, "default").read_all()
        if one["orchestrator"] == writer
    ]


async def test_facts_of_a_process_that_ends_in_an_outage_are_written_by_the_next(
    own_server, commands, wait_until
):
    bus = await orchestrator(own_server.url)
    own_server.kill()
    await wait_until(lambda: not bus.is_connected)
    for number in range(1, 500):
        bus.fact(lambda number=number: fact(number))
    await bus.aclose()
    (left,) = files()
    assert (left.stat().st_mode & 0o777, find_state().stat().st_mode & 0o777) == (0o600, 0o700)
    own_server.start()
    after = await orchestrator(own_server.url)
    await wait_until(lambda: files() == [])
    assert await told(commands, bus.orchestrator) == list(range(1, 500))
    await after.aclose()
    await commands.aclose()


async def test_what_a_server_that_is_away_does_not_take_is_written_once_it_is_back(own_server, commands):
    left = FactSpill(own_server.url, "default")
    assert left.keep("0a", [frame(1, 2)])
    own_server.kill()
    with pytest.raises(BusDown):
        await left.write(commands, NOW_MS)
    assert len(files()) == 1
    own_server.start()
    await left.write(commands, NOW_MS)
    assert (files(), await told(commands, "0a")) == ([], [1, 2])
    await commands.aclose()


async def test_who_ends_while_all_is_well_leaves_no_file(own_server, commands):
    bus = await orchestrator(own_server.url)
    bus.fact(lambda: fact(1))
    await bus.aclose()
    assert files() == []
    assert await told(commands, bus.orchestrator) == [1]
    await commands.aclose()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"rubbish",
        pack(["orch"]),
        pack(["../x", []]),
        pack(["orch", [b"no frame"]]),
        pack(["orch", "x"]),
        b"\xff" * 99,
    ],
)
async def test_a_file_with_anything_else_in_it_writes_nothing_and_stays(own_server, commands, content):
    spill = FactSpill(own_server.url, "default")
    assert spill.keep("orch", [frame(1)])
    (left,) = files()
    left.write_bytes(content)
    await spill.write(commands, 1)
    assert await commands.execute("KEYS", "*") == []
    assert files() == [left]
    await commands.aclose()


async def test_a_file_that_others_can_write_or_a_link_is_not_read(own_server, commands, tmp_path):
    spill = FactSpill(own_server.url, "default")
    assert spill.keep("one", [frame(1)])
    (open_to_all,) = files()
    open_to_all.chmod(0o622)
    assert spill.keep("two", [frame(1)])
    (other,) = set(files()) - {open_to_all}
    other.rename(tmp_path / "elsewhere")
    other.symlink_to(tmp_path / "elsewhere")
    os.mkfifo(other.with_name(f"{other.name}0"), 0o600)
    await spill.write(commands, 1)
    assert await commands.execute("KEYS", "*") == []
    await commands.aclose()


async def test_what_a_full_server_refuses_stays_for_another_time(own_server, commands):
    spill = FactSpill(own_server.url, "default")
    assert spill.keep("orch", [frame(1)])
    await commands.execute("CONFIG", "SET", "maxmemory", "1")
    await spill.write(commands, 1)
    assert len(files()) == 1
    await commands.execute("CONFIG", "SET", "maxmemory", "0")
    await FactSpill(own_server.url, "default").write(commands, 10**13)
    assert files() == []
    await commands.aclose()


@pytest.mark.pure
def test_files_are_bounded_in_size_and_number_and_an_open_directory_gets_none():
    spill = FactSpill("redis://x", "ns")
    assert not spill.keep("orch", [bytes(MAX_BYTES)])
    assert [spill.keep("orch", [frame(1)]) for _ in range(MAX_FILES + 1)] == [True] * MAX_FILES + [False]
    assert FactSpill("redis://x", "other").keep("orch", [frame(1)])
    find_state().chmod(0o755)
    assert not FactSpill("redis://y", "ns").keep("orch", [frame(1)])
    with pytest.raises(PermissionError, match=f"the folder {find_state()}: it must be yours, .*chmod 700"):
        make_private(find_state())


def test_every_directory_that_it_makes_is_the_users_alone(tmp_path, monkeypatch):
    """One of them may be where the embedded server lives, which lives in no directory that is open."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "new"))
    assert FactSpill("redis://x", "default").keep("o-1", [frame(1)])
    made = [tmp_path / "new", tmp_path / "new" / "toolgate", find_state()]
    assert {one.stat().st_mode & 0o777 for one in made} == {0o700}
