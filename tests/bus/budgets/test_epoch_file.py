"""What processes of one user leave to each other of a ledger in files: who begins later knows of a loss."""

import asyncio
import json
import os
import stat
from contextlib import asynccontextmanager

import pytest
from epoch_world import FLEET, ServerWorld, spend
from toolgate_bus.ledger.money import epoch as rules
from toolgate_bus.ledger.money.epoch import EpochMemory
from toolgate_bus.ledger.money.epoch_file import EpochFile, find_epoch_file
from toolgate_bus.ledger.money.ledger import Offer, Step
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.redis.asking.fact_spill import find_state
from toolgate_bus.transport.redis.client.connection import RedisCommands


@asynccontextmanager
async def process_on(url, namespace="default", *, is_killed=False):
    """What one process has of a ledger; one that is killed has no time to keep anything at its end."""
    commands, file = RedisCommands(url, "test"), EpochFile(url, namespace, "budget")
    ledger = RedisLedger(commands, namespace, "budget", file)
    try:
        await ledger.watch()
        yield ledger
        if not is_killed:
            await ledger.leave()
    finally:
        file.close()
        await commands.aclose()


@pytest.fixture
def state(monkeypatch, tmp_path):
    """Where files of this user's ledgers are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return find_state().parent / "ledgers"


async def test_a_process_that_begins_after_the_loss_knows_it_by_the_file_of_one_before(
    own_server, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with process_on(own_server.url) as ledger:
        assert await spend(ledger, "a") == "reserved"
    kept = list((find_state().parent / "ledgers").iterdir())
    assert [stat.S_IMODE(one.stat().st_mode) for one in kept] == [0o600] * 2
    await asyncio.to_thread(own_server.restart)  # it keeps nothing
    async with process_on(own_server.url) as ledger:
        assert await spend(ledger, "b") == "lost"
        assert await ledger.decide("accept-loss", "anna")
        assert await spend(ledger, "c") == "reserved"
    async with process_on(own_server.url) as ledger:
        assert await spend(ledger, "d") == "reserved"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user's"))
    async with process_on(own_server.url) as ledger:
        assert await spend(ledger, "e") == "reserved"


@pytest.mark.parametrize("settles", [False, True])
async def test_what_was_confirmed_to_a_process_that_was_killed_with_a_failover_is_missed_by_the_next(
    own_server, state, monkeypatch, settles
):
    monkeypatch.setattr(rules, "GRACE_S", 0.0)
    async with process_on(own_server.url, is_killed=True) as ledger:
        world = ServerWorld(own_server.url, ledger._commands)
        for id_ in "ab":
            await ledger.reserve(id_, 0, [Offer("tool", 1)], [FLEET], "o")
        kept = await world.copy()
        assert await spend(ledger, "c", 20) == "reserved"
        await world.put_back(kept)
        if settles:  # as many changes as were forgotten, before it has looked
            await ledger.take([Step("settle", id_, 1, "o") for id_ in "ab"])
    async with process_on(own_server.url) as ledger:
        assert await spend(ledger, "d") == "lost"
        assert await ledger.look() is not None
        assert (await ledger.loss()).why == "behind"
        assert await ledger.decide("accept-loss", "anna")
        assert await spend(ledger, "e") == "reserved"
    async with process_on(own_server.url) as ledger:  # what was decided about is missed no more
        assert await spend(ledger, "f") == "reserved"


async def test_a_process_that_was_killed_and_whose_changes_are_all_there_is_not_missed(own_server, state):
    for id_ in "abc":
        async with process_on(own_server.url, is_killed=True) as ledger:
            assert await spend(ledger, id_) == "reserved"
    assert len([one for one in state.iterdir() if "-" in one.name]) == 3


async def test_numbers_that_no_ledger_has_any_more_are_removed(state):
    file = EpochFile("redis://x", "default", "budget")
    for writer in ("old", "new"):
        file.count(writer, "e", 0, 5)
        file.close()
    (old,) = state.glob("*-old")
    os.utime(old, (1e9, 1e9))
    _, numbers = await file.read()
    ages = {one.writer: one.age_s for one in numbers}
    memory = EpochMemory("w", "fresh")
    memory.recall(None, numbers, 1000.0)
    assert (memory.id, memory.counts, memory.moved["old"]) == ("e", {"old": 5, "new": 5}, rules.NEVER)
    assert memory.moved["new"] == 1000.0 - ages["new"]
    await file.write({"id": "e", "replaced": [], "counts": {}, "decided": 0})
    assert [one.writer for one in (await file.read())[1]] == ["new"]


def recall(kept, *numbers):
    memory = EpochMemory("w", "fresh")
    memory.recall(kept, [rules.KeptNumber(*one) for one in numbers])
    return memory


KEPT = {"id": "e", "replaced": [], "counts": {"z": 3}, "decided": 1}
AS_KEPT = rules.LedgerEpoch("e", counts={"z": 3}, decided=1)


def test_numbers_of_before_a_persons_decision_or_of_long_ago_are_nothing_to_this_ledger():
    memory = recall(KEPT, ("x", "long ago", 0, 9, 2 * rules.IDLE_S + 1), ("y", "e", 0, 9, 1.0))
    assert memory.counts == {"z": 3}
    assert memory.judge(AS_KEPT, 1.0) == "fine"


def test_who_had_something_confirmed_in_another_ledger_misses_that_in_this_one():
    memory = recall(KEPT, ("x", "other", 0, 9, 1.0), ("y", "e", 1, 9, 0.5))
    assert memory.judge(AS_KEPT, 1.0) == "another"
    assert memory.id == "other"
    decided = AS_KEPT._replace(replaced=frozenset({"other"}), decided=2)
    assert memory.judge(decided, 2.0) == "adopt"
    memory.adopt(decided, 2.0)
    assert (memory.judge(decided, 3.0), memory.replaced) == ("fine", ("other",))


def test_an_empty_ledger_stands_in_the_place_of_all_that_were_known():
    memory = recall(None, ("x", "other", 0, 9, 1.0), ("y", "e", 1, 9, 0.5))
    assert memory.judge(rules.LedgerEpoch(), 1.0) == "missing"
    assert (memory.id, memory.replaced) == ("e", ("other",))


@pytest.mark.parametrize("kept", [KEPT, {**KEPT, "id": "old"}])
def test_numbers_count_of_the_ledger_that_this_is_since_the_last_decision(kept):
    seen = rules.LedgerEpoch("e", counts={"y": 8}, replaced=frozenset({"old"}), decided=2)
    numbers = ("y", "e", 2, 9, 1.0), ("x", "e", 1, 7, 0.5), ("x", "old", 0, 7, 0.5)
    memory = recall(kept, *numbers)
    assert memory.judge(seen, 1.0) == "wait"
    assert memory.counts == {"y": 9}
    assert recall(kept, *numbers).judge(seen._replace(counts={"y": 9}), 1.0) == "fine"


def test_of_a_ledger_that_was_replaced_nothing_is_missed_in_the_one_that_stands_in_its_place():
    memory = recall({**KEPT, "id": "old"}, ("y", "e", 0, 9, 1.0), ("x", "older", 0, 9, 0.5))
    seen = rules.LedgerEpoch("e", counts={"y": 9}, replaced=frozenset({"old", "older"}))
    assert memory.judge(seen, 1.0) == "fine"
    assert (memory.id, memory.counts, memory.replaced) == ("e", {"y": 9}, ("old", "older"))


JUNK = [b"", b"\xc1", b"\x93\x01\x02\x03", json.dumps({"id": 3}).encode(), b"\x81\xa2id\xa1x", b"\xff" * 99]


@pytest.mark.parametrize("junk", JUNK)
async def test_a_file_that_is_none_is_passed_over(junk, state):
    file = EpochFile("redis://x", "default", "budget")
    await file.write({"id": "e", "replaced": [], "counts": {}, "decided": 0})
    file.count("before", "e", 0, 5)
    file.close()
    for kept in state.iterdir():
        kept.write_bytes(junk)
    memory = EpochMemory("w", "fresh")
    memory.recall(*await file.read())
    assert (memory.id, memory.counts) == ("", {})


async def test_a_file_that_is_open_to_others_is_not_believed(state):
    file = EpochFile("redis://x", "default", "budget")
    await file.write({"id": "e", "replaced": [], "counts": {}, "decided": 0})
    file.count("before", "e", 0, 5)
    file.close()
    assert (await file.read())[0]["id"] == "e"
    assert len((await file.read())[1]) == 1
    for kept in state.iterdir():
        kept.chmod(0o644)
    assert await file.read() == (None, [])


def test_a_place_where_nothing_can_be_kept_is_told_once_in_a_while(monkeypatch, tmp_path, caplog):
    (tmp_path / "toolgate").write_text("no directory")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = EpochFile("redis://x", "default", "budget")
    for number in range(3):
        file.count("w", "e", 0, number)
    said = [record.message for record in caplog.records]
    assert ["confirmed changes of the ledger cannot be counted in a file" in one for one in said] == [True], (
        said
    )


def test_a_server_that_ends_with_its_commands_is_not_remembered(server_url, own_server):
    assert find_epoch_file(server_url, "default", "budget") is None
    assert find_epoch_file(own_server.url, "default", "budget") is not None
