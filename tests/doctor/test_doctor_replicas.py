"""Replicas that schedulers wait for, or the server itself: missing ones are named, with what to change."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from doctor_for_tests import diagnosed, started
from replicated_world import Replicated
from sentinel_world import until
from toolgate_bus.fleet.replication import ReplicationState, replication_findings

BUDGETS = {
    "default": {"cost": 1},
    "budgets": [{"name": "all", "limit": 9}],
    "durability": {"replicas": 2},
}
APPROVAL = {"rules": [{"tools": "transfer"}], "durability": {"replicas": 1}}


@pytest.fixture
def world() -> Iterator[Replicated]:
    directory = Path(tempfile.mkdtemp(prefix="tg-dr-"))
    made = Replicated(directory)
    try:
        made.start()
        yield made
    finally:
        for node in (made.primary, *made.replicas):
            node.kill()
        shutil.rmtree(directory, ignore_errors=True)


def count_replicas(world):
    return world.primary.answer("INFO", "replication")["connected_slaves"]


@pytest.mark.acceptance
@pytest.mark.timeout(180)
async def test_a_scheduler_that_waits_for_more_replicas_than_follow_is_named(
    world, process, wait_until, tmp_path
):
    for spec, config in (("cost-aware", BUDGETS), ("approval", APPROVAL)):
        file = tmp_path / f"{spec}.yaml"
        file.write_text(yaml.safe_dump(config))
        await started(process, wait_until, world.url, spec, "--config", file)
    well = await diagnosed(world.url)
    assert well.code == 0
    assert well.one("replicas", "ok")["what"].startswith("cost-aware waits for 2 replicas")
    partial = well.one("replicas-partial", "notice")
    assert "approval waits for 1 of 2" in partial["what"]
    assert "durability: {replicas: 2} for approval" in partial["change"]
    assert "min-replicas-to-write 1" in well.one("replicas-unrequired", "notice")["change"]

    world.replicas[0].kill()
    until(lambda: count_replicas(world) == 1, 15)
    short = await diagnosed(world.url)
    assert short.code == 1
    wrong = short.one("replicas-short", "error")
    assert "cost-aware waits for 2 replicas (durability), and 1 follows" in wrong["what"]
    assert "durability: {replicas: 1}" in wrong["change"]
    assert short.one("replicas", "ok")["what"].startswith("approval waits for 1 replica ")

    world.primary.answer("CONFIG", "SET", "min-replicas-to-write", "2")
    refused = (await diagnosed(world.url)).one("replicas-refused", "error")
    assert "takes no writes: min-replicas-to-write is 2, and 1 follows" in refused["what"]
    assert "CONFIG SET min-replicas-to-write 1" in refused["change"]


# ---------------------------------------------------------------- judged alone

FRESH = "ip=10.0.0.2,port=6379,state=online,offset=9,lag=1"
STUCK = "ip=10.0.0.3,port=6379,state=online,offset=9,lag=40"
COPIES = "ip=10.0.0.4,port=6379,state=wait_bgsave,offset=0,lag=0"
GUARDED = {"min-replicas-to-write": "1", "min-replicas-max-lag": "10"}


def judged(replicas, config=None, **asked):
    info = {"role": "master", **{f"slave{number}": one for number, one in enumerate(replicas)}}
    return {one.name: one for one in replication_findings(ReplicationState(info, config or GUARDED, asked))}


@pytest.mark.pure
def test_a_replica_that_hangs_or_still_copies_does_not_follow():
    found = judged([FRESH, STUCK, COPIES], treasury=2)
    assert found["replicas-required"].level == "ok"
    assert "1 follows" in found["replicas-short"].what
    assert "10.0.0.3:6379: online, silent for 40 s" in found["replicas-short"].change
    assert "10.0.0.4:6379: wait_bgsave" in found["replicas-short"].change


@pytest.mark.pure
def test_with_no_replica_at_all_durability_is_to_be_taken_out():
    found = judged([], {"min-replicas-to-write": "0"}, treasury=2)
    assert "none follow" in found["replicas-short"].what
    assert "no `durability` in the config of treasury" in found["replicas-short"].change


@pytest.mark.pure
def test_who_waits_for_no_replica_is_told_nothing():
    assert judged([], {"min-replicas-to-write": "0"}) == {}
    assert set(judged([FRESH])) == {"replicas-required"}


@pytest.mark.pure
def test_settings_that_are_not_shown_are_not_judged():
    assert set(judged([FRESH], {"other": "0"}, treasury=1)) == {"replicas"}
    off = judged([FRESH], {"min-replicas-to-write": "2", "min-replicas-max-lag": "0"}, treasury=1)
    assert set(off) == {"replicas", "replicas-unrequired"}


@pytest.mark.pure
@pytest.mark.parametrize("word", ["", "lag", "=,=", "state=online,lag=x"])
def test_whatever_a_server_says_of_a_replica_is_read(word):
    assert judged([word], treasury=1)
