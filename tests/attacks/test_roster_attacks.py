"""Who should answer is not forgotten: the roster before a reader, a neighbour, a forger and a murderer.

One server under the shipped access rules, one signed `policy` that denies `delete_file`, and those who would
rather have it forgotten. Where the access rules already say no, the attacker is given more: the user `admin`.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import redis.asyncio as redis
import yaml
from guarded_server import guarded
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.server.settings import read_keys
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.heartbeats import decode_member, encode_leave, encode_member
from toolgate_bus.transport.ports import Member
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

RULES = {"rules": [{"name": "keep", "tools": "delete_file", "action": "deny", "reason": "files are kept"}]}
ASKED = "asked_policy:Policy"
KEYS = Keys("default")
NAMES = 300_000


class World:
    """A guarded server, and a policy on it: one for all attacks, as long as it lives."""

    def __init__(self, server, directory):
        self.server, self.keys = server, directory / "keys.yaml"
        self.keys.write_text(f"policy: {'ab' * 16}\n")
        self.keys.chmod(0o600)
        self._rules = directory / "policy.yaml"
        self._rules.write_text(yaml.safe_dump(RULES))
        self.policy = None
        self.replica = ""

    def alive(self):
        """Start the policy, unless it lives; wait until it says that it is ready."""
        if self.policy is None or self.policy.poll() is not None:
            options = ("--config", self._rules, "--keys", self.keys, "--json")
            self.policy = subprocess.Popen(
                [sys.executable, "-m", "toolgate_bus", "scheduler", "run", ASKED, *map(str, options)],
                cwd=Path(__file__).parents[1] / "acceptance" / "schedulers_for_tests",
                env=os.environ | {"TOOLGATE_REDIS_URL": self.server.url("scheduler-policy")},
                stdout=subprocess.PIPE,
            )
            self.replica = json.loads(self.policy.stdout.readline())["replica"]

    def gate(self, **config):
        """A gate that believes signed verdicts only."""
        config = {"patience_ms": 30_000} | config
        return Gate.open(redis=self.server.url("agent"), keys=self.keys, **config)

    def end(self):
        """End the policy."""
        if self.policy is not None:
            self.policy.kill()
            self.policy.wait()
            self.policy.stdout.close()


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """The world of all attacks."""
    directory = tmp_path_factory.mktemp("roster")
    with guarded(directory, "valkey", ["policy"]) as server:
        world = World(server, directory)
        try:
            yield world
        finally:
            world.end()


@pytest.fixture
def world(started):
    """The world, with its policy alive."""
    started.alive()
    return started


@pytest.fixture
async def attacker(world):
    """`attacker(role)`: a client with the rights of that role."""
    clients = {role: redis.from_url(world.server.url(role)) for role in ("reader", "admin")}
    yield clients.__getitem__
    for client in clients.values():
        await client.aclose()


async def ruled(gate, calls=5):
    """How so many calls that the policy denies came out."""
    found = [await gate.decide(Call("delete_file", {"n": n}, ["delete_file"])) for n in range(calls)]
    return {(one.outcome, one.why) for one in found}


async def heartbeats(attack, seconds=1.2):
    """Attack again and again, for longer than several heartbeats."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await attack()
        await asyncio.sleep(0.005)


async def test_no_reader_takes_a_policy_off_and_300000_names_stop_no_loop(world, attacker):
    reader = attacker("reader")
    minute = int((await reader.time())[0]) // 60
    readers = KEYS.roster_of("readers", minute)
    for at in range(0, NAMES, 10_000):
        await reader.sadd(readers, *(f"r:{number}" for number in range(at, at + 10_000)))
    await reader.sadd(KEYS.roster, *(f"s:{number}:x" for number in range(20_000)))
    for key in (KEYS.roster_of("schedulers", minute), KEYS.member("s:policy:r1")):
        for refused in (reader.sadd(key, "x"), reader.srem(key, "x"), reader.delete(key)):
            with pytest.raises(redis.ResponseError):
                await refused
    strangers = metrics.value("toolgate_roster_strangers_total", kind="old")
    sent = (await attacker("admin").info("stats"))["total_net_output_bytes"]

    async def take_off():
        named = await reader.srandmember(KEYS.roster, 1)
        await reader.srem(KEYS.roster, *named, *(f"s:policy:{one}" for one in ("r1", world.replica)))

    async with world.gate() as optional, world.gate(required=["policy"]) as requiring:
        await heartbeats(take_off)
        assert await ruled(optional) == await ruled(requiring) == {("deny", "denied")}
    assert metrics.value("toolgate_roster_strangers_total", kind="old") > strangers
    # Not one reply held all the names, though both gates read the roster at each heartbeat.
    assert (await attacker("admin").info("stats"))["total_net_output_bytes"] - sent < 10 * NAMES
    await attacker("admin").delete(KEYS.roster, readers)


async def test_no_heartbeat_but_its_own_excuses_a_policy(world, attacker):
    admin = attacker("admin")
    late = {"started": 2**31 - 1, "beat": 2**31 - 1, "wire": (1, 2)}
    forged = [
        encode_member(Member("policy", "evil", tools=(), **late)),
        encode_member(Member("policy", "evil", shadow=True, **late)),
        encode_member(Member("policy", "evil", phases=(), **late)),
        encode_member(Member("policy", "evil", **late | {"wire": (99,)})),
        encode_member(Member("policy", "evil", tools=(), started=2**31 - 1)),
        encode_leave(Member("policy", "evil", **late)),
    ]

    async def forge():
        raw = forged[int(time.monotonic() * 20) % len(forged)]
        minute = int((await admin.time())[0]) // 60
        await admin.sadd(KEYS.roster_of("schedulers", minute), "s:policy:evil")
        await admin.set(KEYS.member("s:policy:evil"), raw, px=60_000)
        await admin.set(KEYS.member(f"s:policy:{world.replica}"), raw, px=60_000)

    await forge()
    attack = asyncio.create_task(heartbeats(forge))
    async with world.gate() as optional, world.gate(required=["policy"]) as requiring:
        while not attack.done():
            assert await ruled(optional, 2) == await ruled(requiring, 2) == {("deny", "denied")}
            await asyncio.sleep(0.02)
        await attack
    await admin.delete(KEYS.member("s:policy:evil"))


async def test_a_heartbeat_that_was_kept_and_is_shown_again_excuses_nobody(world, attacker):
    """Signed by the policy itself, of when it ruled on less: true then, and nobody's word today.

    One of a moment ago is no better at a gate that has just begun: that start has answered it nothing.
    """
    admin, ring = attacker("admin"), Keyring(read_keys(world.keys), "default")
    world.end()
    minute, outcomes = int((await admin.time())[0]) // 60, {}
    for age in (3600, 0):
        said = Member("policy", f"of-{age}", tools=("read_*",), started=2**30 + age, wire=(1, 2))
        await admin.sadd(KEYS.roster_of("schedulers", minute), f"s:policy:of-{age}")
        raw = encode_member(replace(said, at=int((await admin.time())[0]) - age), ring)
        await admin.set(KEYS.member(f"s:policy:of-{age}"), raw, px=60_000)
        async with world.gate(required=["policy"], patience_ms=300) as gate:
            outcomes[age] = await ruled(gate, 2)
        await admin.delete(KEYS.member(f"s:policy:of-{age}"))
    assert outcomes == {3600: {("deny", "silent")}, 0: {("deny", "silent")}}


async def test_an_old_heartbeat_of_the_living_start_excuses_nobody_either(world, attacker):
    """The gate knows that this start is the policy's, as it has answered. Only the time tells what is old."""
    admin, ring, key = attacker("admin"), Keyring(read_keys(world.keys), "default"), ""
    async with world.gate(required=["policy"]) as gate:
        assert (await gate.decide(Call("read_file", {}, ["read_file"]))).allowed
        key = KEYS.member(f"s:policy:{world.replica}")
        now = decode_member("policy", world.replica, await admin.get(key), ring)
        old = replace(now, tools=("read_*",), beat=2**30, at=now.at - 3600, signed=False, proof=None)
        raw = encode_member(old, ring)
        attack = asyncio.create_task(heartbeats(lambda: admin.set(key, raw, px=60_000)))
        while not attack.done():
            assert await ruled(gate, 2) == {("deny", "denied")}
            await asyncio.sleep(0.02)
        await attack


async def test_a_policy_whose_every_trace_was_deleted_is_asked_and_one_that_was_killed_is_counted_as_gone(
    world, attacker, wait_until
):
    admin = attacker("admin")

    async def delete():
        found = [key async for key in admin.scan_iter("tg:{default}:roster*", count=1000)]
        if found:
            await admin.delete(*found)

    async with (
        world.gate(patience_ms=1000) as lenient,
        world.gate(patience_ms=1000, on_gone="deny") as strict,
    ):
        await heartbeats(delete, 2.0)  # longer than a heartbeat lives
        assert await ruled(lenient) == await ruled(strict) == {("deny", "denied")}
        os.kill(world.policy.pid, signal.SIGKILL)
        gone = metrics.value("toolgate_failed_open_total", scheduler="policy", reason="gone")
        await wait_until(lambda: lenient._client.directory.announced["policy"].gone)
        calls = [one.decide(Call("delete_file", {}, ["delete_file"])) for one in (lenient, strict)]
        let_through, denied = await asyncio.gather(*calls)
    assert (let_through.outcome, let_through.why) == ("continue", "failed_open")
    assert metrics.value("toolgate_failed_open_total", scheduler="policy", reason="gone") > gone
    assert (denied.outcome, denied.why) == ("deny", "silent")
    assert "policy was there and vanished without leaving" in denied.reason
    assert "start it with `toolgate scheduler run policy" in denied.reason
