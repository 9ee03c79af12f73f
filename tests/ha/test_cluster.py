"""A cluster loses masters and moves slots under load: nothing wrong runs, nobody waits for ever, all go on.

Real nodes, real schedulers in processes of their own, a real gate that is asked all the time.
"""

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from cluster_world import NODE_TIMEOUT_MS, cluster_world
from free_ports import find_free_ports
from load import load_on, misrecorded
from promises import longest
from redis.crc import key_slot
from sentinel_world import Node
from toolgate_bus.commands.doctor.check import Context
from toolgate_bus.commands.doctor.runner import run_checks
from toolgate_bus.errors import BusDown, ConfigError, Refusal, TransportError
from toolgate_bus.ledger.money.ledger import Account, Offer
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.server.guard import die_with_parent
from toolgate_bus.server.settings import check_url
from toolgate_bus.transport.redis.client.connection import RedisCommands, open_link
from toolgate_bus.transport.redis.client.scripts import Script
from toolgate_bus.transport.redis.storage.reads import delete_keys, find_keys
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(600)]

ROUNDS = int(os.environ.get("TOOLGATE_HA_ROUNDS", "1"))
GOES_ON_S = 2 * NODE_TIMEOUT_MS / 1000 + 3.0
DEPLOY = Path(__file__).parents[2] / "deploy"
KEYS = Keys("default")
STREAMS, LEDGER, ROSTER = KEYS.inbox("any"), KEYS.store_key("any"), KEYS.roster
FAULTS = {
    "failover": lambda world: world.fail_over(STREAMS),
    "kill": lambda world: world.kill_owner(STREAMS),
    "move of the streams": lambda world: world.move_slot(STREAMS),
    "move of the ledger": lambda world: world.move_slot(LEDGER),
    "move at once": lambda world: world.move_slot_whole(STREAMS),
    "move of the roster": lambda world: world.move_slot(ROSTER),
}


async def begin(schedulers_on, url):
    """Two schedulers, each a process of its own, on that URL."""
    schedulers = schedulers_on(url)
    for name in ("alpha", "beta"):
        await schedulers.start(f"obedient:{name}")
    return schedulers


async def fail(load, world, fault):
    """One fault, and all that must be true of it; how long nothing was ruled, in seconds."""
    moment = time.monotonic()
    await asyncio.to_thread(fault, world)
    await load.goes_on(time.monotonic(), longest(GOES_ON_S))
    outage = load.outage(moment)
    await asyncio.to_thread(world.mend)
    assert load.wrong == []
    assert load.stuck == []
    return round(outage, 2)


async def test_a_master_that_hands_over_is_followed_and_the_record_is_whole(cluster, schedulers_on):
    await begin(schedulers_on, cluster.url)
    async with load_on(cluster.url) as load:
        print("failover", await fail(load, cluster, FAULTS["failover"]))
    assert await misrecorded(cluster.url, load.rows) == {}


@pytest.mark.parametrize("fault", FAULTS)
async def test_agents_go_on_after_every_fault_of_a_cluster(cluster, schedulers_on, fault):
    await begin(schedulers_on, cluster.url)
    async with load_on(cluster.url) as load:
        times = [await fail(load, cluster, FAULTS[fault]) for _ in range(ROUNDS)]
        print(fault, times, {"decisions": len(load.rows)})
    assert await misrecorded(cluster.url, load.rows) == {}
    assert sorted(times)[len(times) // 2] < longest(GOES_ON_S)


async def test_no_money_is_lost_or_paid_twice_while_the_slot_of_the_ledger_moves(cluster):
    commands = RedisCommands(cluster.url, "test")
    ledger, over, paid, tries = RedisLedger(commands, "default"), asyncio.Event(), [], Counter()
    account = Account("all/fleet", 10**12)

    async def until_done(step):
        while True:
            tries["all"] += 1
            with contextlib.suppress(TransportError):
                return await step()
            tries["refused"] += 1
            await asyncio.sleep(0.02)

    async def spend(who):
        for number in itertools.count():
            if over.is_set():
                return
            id_ = f"{who}{number}"
            taken = await until_done(
                lambda id_=id_: ledger.reserve(id_, 0, [Offer("a", 5, 0)], [account], "me")
            )
            assert taken.status == "reserved"
            await until_done(lambda id_=id_: ledger.settle(id_, 3))
            paid.append(3)

    try:
        spenders = [asyncio.create_task(spend(who)) for who in "abcd"]
        for _ in range(ROUNDS):
            for fault in (cluster.move_slot, cluster.fail_over):
                before = len(paid)
                await asyncio.to_thread(fault, LEDGER)
                while len(paid) < before + 50:
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(cluster.mend)
        over.set()
        await asyncio.gather(*spenders)
        (balance,) = await ledger.balances()
        print(balance, dict(tries), len(paid))
        assert (balance.spent, balance.reserved, await ledger.open()) == (sum(paid), 0, [])
    finally:
        await commands.aclose()


@pytest.fixture
def guarded_cluster(monkeypatch):
    """One whose nodes want a password, which stands in the environment."""
    monkeypatch.setenv("TOOLGATE_REDIS_PASSWORD", "of-nodes")
    with cluster_world("of-nodes") as world:
        yield world


async def test_each_command_goes_to_its_keys_and_a_wrong_name_is_refused_in_words(guarded_cluster):
    world, url = guarded_cluster, check_url(guarded_cluster.url)
    commands = RedisCommands(url, "test")
    try:
        written = await commands.pipeline(
            [("SET", STREAMS, 1), ("SET", LEDGER, 2), ("TIME",), ("GET", STREAMS), ("GET", LEDGER), ("PING",)]
        )
        assert [*written[:2], *written[3:]] == [b"OK", b"OK", b"1", b"2", b"PONG"]
        script = Script("toolgate_bus.state", "next_number.lua")
        assert await commands.execute("SCRIPT", "LOAD", script.text) == script.sha.encode()
        await asyncio.to_thread(
            world.move_slot, LEDGER
        )  # the node that owns it now was sent the script as well
        assert await commands.execute("GET", LEDGER) == b"2"
        assert (await commands.pipeline([script.command(LEDGER)]))[0] is not None
        with cluster_moving(world, LEDGER), pytest.raises(BusDown, match="moves to another node"):
            await anext(find_keys(commands, f"{LEDGER}*"))  # a part of them would be no answer
        assert await anext(find_keys(commands, f"{LEDGER}*")) == [LEDGER.encode()]
        pages = [page async for page in find_keys(commands, "tg:{default*")]
        found = [key for page in pages for key in page]
        assert sorted(found) == sorted([STREAMS.encode(), LEDGER.encode()])
        await delete_keys(commands, found)
        assert [key async for key in find_keys(commands, "tg:*")] == []
    finally:
        await commands.aclose()
    looked = {one.name: one for one in await run_checks(Context(redis=url), [])}
    assert {looked[name].level for name in ("cluster", "cluster-ours", "cluster-coverage")} == {"ok"}
    for node in world.nodes.values():  # whichever it is: it does not hold all keys, or takes no writes
        with pytest.raises(ConfigError, match=r"redis\+cluster://"):
            async with Gate.open(redis=f"redis://:of-nodes@127.0.0.1:{node.port}"):
                pass
    assert isinstance(await say(world.url), Refusal)  # the environment's password is put in by check_url


@contextlib.contextmanager
def cluster_moving(world, key):
    """The slot of a key is on its way to another master for the length of the block."""
    slot, (old, new) = key_slot(key.encode()), world.open_move(key)
    try:
        yield
    finally:
        assert new.answer("CLUSTER", "SETSLOT", slot, "STABLE") == "OK"
        assert old.answer("CLUSTER", "SETSLOT", slot, "STABLE") == "OK"


async def say(url):
    """What an ordinary command says to who cannot be served."""
    commands = RedisCommands(url, "test")
    try:
        with pytest.raises((BusDown, Refusal)) as raised:
            await commands.execute("PING")
    finally:
        await commands.aclose()
    return raised.value


async def test_nodes_are_reached_where_the_map_says_whatever_they_announce():
    with cluster_world(announced="10.255.255.1") as world:
        commands = RedisCommands(f"{world.url}?address_map=10.255.255.1=127.0.0.1", "test")
        try:
            assert await commands.pipeline([("SET", STREAMS, 1), ("SET", LEDGER, 2)]) == [b"OK", b"OK"]
            for _ in range(2):
                await asyncio.to_thread(world.move_slot, STREAMS)
                assert await commands.execute("GET", STREAMS) == b"1"
        finally:
            await commands.aclose()


async def test_a_cluster_that_speaks_tls_alone_is_followed_through_a_failover(short_directory, schedulers_on):
    tls = short_directory / "tls"
    made = subprocess.run(
        ["sh", DEPLOY / "redis" / "make-certificates", tls, "127.0.0.1", "localhost"],
        capture_output=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    with cluster_world(tls=tls) as cluster:
        await begin(schedulers_on, cluster.url)
        async with load_on(cluster.url) as load:
            for fault in ("failover", "kill", "move of the ledger"):
                print(f"tls, {fault}", await fail(load, cluster, FAULTS[fault]))
        assert await misrecorded(cluster.url, load.rows) == {}
        plain = RedisCommands(cluster.url.replace("rediss", "redis").partition("?")[0], "test")
        with pytest.raises(TransportError):
            await plain.execute("GET", LEDGER)
        await plain.aclose()


async def test_each_role_does_its_work_under_its_rules_on_every_node(short_directory):
    with cluster_world() as world:
        made = short_directory / "acl"
        words = ["--to", made, "--server", world.url, *("--scheduler", "policy", "--scheduler", "cost-aware")]
        subprocess.run([sys.executable, DEPLOY / "redis" / "make_acl.py", *words], check=True)
        for line in (made / "users.acl").read_text().splitlines():
            name, *rules = line.split()[1:]
            for node in world.nodes.values() if name != "default" else ():
                assert node.answer("ACL", "SETUSER", name, *rules) == "OK"
        urls = {file.name: file.read_text() for file in (made / "urls").iterdir()}
        config = short_directory / "cost.yaml"
        config.write_text("default: {cost: 1}\nbudgets: [{name: all, level: fleet, limit: 2}]\n")
        run = [sys.executable, "-m", "toolgate_bus", "scheduler", "run", "cost-aware", "--config", config]
        with (short_directory / "said").open("wb") as said:
            child = subprocess.Popen(
                [*run, "--redis", urls["scheduler-cost-aware"]],
                stdout=said,
                stderr=said,
                preexec_fn=die_with_parent(),
            )
        try:
            async with Gate.open(redis=urls["agent"], required=["cost-aware"], patience_ms=3000) as gate:
                while not (await gate.decide(Call("bash", {}, ["bash"]))).allowed:
                    await asyncio.sleep(0.1)
                await asyncio.to_thread(world.move_slot, LEDGER)
                await asyncio.to_thread(world.move_slot, STREAMS)
                outcomes = [(await gate.decide(Call("bash", {}, ["bash"]))).outcome for _ in range(4)]
                assert outcomes[-1] == "deny"
                assert "continue" in outcomes
        finally:
            child.kill()
            child.wait()
        assert "NOPERM" not in (short_directory / "said").read_text()


async def test_servers_that_are_no_cluster_or_away_are_named(short_directory):
    port, free, bus = find_free_ports(3)
    node = Node(short_directory, port, ['save ""'])
    try:
        node.start()
        assert "no nodes of a Redis Cluster; name one server as redis://" in str(
            await say(f"redis+cluster://127.0.0.1:{port}")
        )
    finally:
        node.kill()
    assert "no node of the cluster of 127.0.0.1" in str(await say(f"redis+cluster://127.0.0.1:{free}"))
    empty = Node(
        short_directory,
        free,
        ['save ""', "cluster-enabled yes", f"cluster-port {bus}", f"cluster-config-file {free}.nodes"],
    )
    try:
        empty.start()
        assert "0 of 16384 slots are covered" in str(await say(f"redis+cluster://127.0.0.1:{free}"))
        with pytest.raises(BusDown, match="slots are covered"):
            await open_link(f"redis+cluster://127.0.0.1:{free}", "test", lambda reply, tag: None)
    finally:
        empty.kill()
