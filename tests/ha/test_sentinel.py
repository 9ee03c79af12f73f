"""A service of sentinels fails over under load: nothing wrong runs, nobody waits for ever, all go on.

Real servers and sentinels, real schedulers in processes of their own, a real gate that is asked all the time.
"""

import asyncio
import os
import time

import pytest
from load import load_on, misrecorded, recorded
from promises import longest
from sentinel_world import SERVICE, sentinel_world, until
from toolgate_bus.commands.doctor.check import Context
from toolgate_bus.commands.doctor.runner import run_checks
from toolgate_bus.errors import BusDown, ConfigError, TransportError
from toolgate_bus.server.settings import check_url
from toolgate_bus.transport.redis.client.connection import RedisCommands, open_link

pytestmark = [
    pytest.mark.system,
    pytest.mark.acceptance,
    pytest.mark.timeout(600),
    # redis-py leaves the socket of a connect that is cancelled, as when a primary moves, to the collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in.*(socket|Transport):pytest.PytestUnraisableExceptionWarning"
    ),
]

ROUNDS = int(os.environ.get("TOOLGATE_HA_ROUNDS", "1"))
KILLED_S = 4.0
"""Until agents go on after a kill: most of it is the sentinels' own (a second until they call it down)."""
HANDED_OVER_S = 1.5


async def begin(schedulers_on, url):
    """Two schedulers, each a process of its own, on that URL."""
    schedulers = schedulers_on(url)
    for name in ("alpha", "beta"):
        await schedulers.start(f"obedient:{name}")
    return schedulers


async def fail(load, world, fault, seconds):
    """One fault, and all that must be true of it; how long nothing was ruled, in seconds."""
    before, moment = world.primary, time.monotonic()
    await asyncio.to_thread(fault)
    await load.goes_on(time.monotonic(), longest(seconds))
    outage = load.outage(moment)
    assert world.primary != before
    assert load.wrong == []
    assert load.stuck == []
    return round(outage, 2)


async def test_a_coordinated_failover_is_followed_at_once(sentinels, schedulers_on):
    await begin(schedulers_on, sentinels.url)
    async with load_on(sentinels.url) as load:
        print(await fail(load, sentinels, lambda: switch(sentinels, "COORDINATED"), HANDED_OVER_S))


async def test_a_primary_is_left_before_it_is_demoted(sentinels):
    """Whoever waited for that would write what the new one never sees."""
    link = await open_link(sentinels.url, "test", lambda reply, tag: None)
    commands = RedisCommands(sentinels.url, "test")
    try:
        await commands.execute("SET", "here", 1)
        old = sentinels.servers[sentinels.primary]
        await asyncio.to_thread(sentinels.fail_over)
        await asyncio.wait_for(link.lost, 30)
        assert (await asyncio.to_thread(old.answer, "ROLE"))[0] == "master"
        await asyncio.to_thread(until, lambda: sentinels.primary not in (old.port, None), 10.0)
        assert await commands.execute("SET", "there", 1) == b"OK"
        assert await asyncio.to_thread(sentinels.servers[sentinels.primary].answer, "GET", "there") == "1"
    finally:
        await commands.aclose()


async def test_a_primary_that_has_handed_over_is_followed_before_a_sentinel_knows_of_it(sentinels):
    """The sentinel that had it done stands still, so that the others hear nothing."""
    commands = RedisCommands(sentinels.url, "test")
    leader, *others = sentinels.sentinels.values()
    before = sentinels.primary
    try:
        await commands.execute("SET", "here", 1)
        await asyncio.to_thread(sentinels.fail_over, "COORDINATED")
        old = sentinels.servers[before]
        await asyncio.to_thread(until, lambda: "FAILOVER requested" in old.log, 10.0)
        leader.stand_still()
        async with asyncio.timeout(30):
            while not await is_written(commands, "there"):
                await asyncio.sleep(0.02)
        said = {node.answer("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1] for node in others}
        assert said == {str(before)}
        new = sentinels.servers[int(old.answer("ROLE")[2])]
        assert new.answer("GET", "there") == "1"
    finally:
        leader.go_on()
        await commands.aclose()


async def is_written(commands, key):
    try:
        return await commands.execute("SET", key, 1) == b"OK"
    except TransportError:
        return False


@pytest.mark.parametrize(
    ("fault", "seconds"), [("kill", KILLED_S), ("COORDINATED", HANDED_OVER_S), ("plain", HANDED_OVER_S)]
)
async def test_agents_go_on_after_every_failover(sentinels, schedulers_on, fault, seconds):
    faults = {
        "kill": sentinels.kill_primary,
        "COORDINATED": lambda: switch(sentinels, "COORDINATED"),
        "plain": lambda: switch(sentinels),
    }
    await begin(schedulers_on, sentinels.url)
    async with load_on(sentinels.url) as load:
        times = []
        for _ in range(ROUNDS):
            times.append(await fail(load, sentinels, faults[fault], seconds))
            await asyncio.to_thread(sentinels.mend)
        print(fault, times, {"decisions": len(load.rows)})
    assert await misrecorded(sentinels.url, load.rows) == {}


async def test_what_a_new_primary_had_not_taken_yet_stands_in_the_record_all_the_same(
    sentinels, schedulers_on
):
    """Its replicas stand still for the last decisions: the server has confirmed what is then forgotten."""
    await begin(schedulers_on, sentinels.url)
    async with load_on(sentinels.url) as load:
        primary = sentinels.primary
        replicas = [node for port, node in sentinels.servers.items() if port != primary]
        for node in replicas:
            node.answer("REPLICAOF", "127.0.0.1", 1)  # nothing reaches them any more
        seen = len(load.rows)
        while len(load.rows) < seen + 20:
            await asyncio.sleep(0.01)
        forgotten = {row.id for row in load.rows[seen:]}
        moment = time.monotonic()
        await asyncio.to_thread(sentinels.kill_primary)
        await load.goes_on(time.monotonic(), longest(KILLED_S))
        print(round(load.outage(moment), 2), len(forgotten))
    assert forgotten <= (await recorded(sentinels.url)).keys()
    assert await misrecorded(sentinels.url, load.rows) == {}


def switch(world, *how):
    """Fail over by command, until a sentinel says that it is done."""
    before = world.primary
    world.fail_over(*how)
    until(lambda: world.primary not in (before, None), 10.0)


@pytest.fixture
def guarded_sentinels(monkeypatch):
    """A world in which servers and sentinels want a password each, both in the environment."""
    monkeypatch.setenv("TOOLGATE_REDIS_PASSWORD", "of-servers")
    monkeypatch.setenv("TOOLGATE_SENTINEL_PASSWORD", "of-sentinels")
    with sentinel_world("of-servers", "of-sentinels") as world:
        yield world


async def test_who_asks_is_told_what_is_wrong_with_the_sentinels(guarded_sentinels):
    world, url = guarded_sentinels, check_url(guarded_sentinels.url)
    unknown = await say(url.replace(SERVICE, "nobody"))
    assert isinstance(unknown, ConfigError)
    assert "no sentinel knows the service nobody" in str(unknown)
    strange = await say(world.url)
    assert isinstance(strange, ConfigError)
    assert "the sentinels want other credentials" in str(strange)
    looked = await run_checks(Context(redis=url), [])
    assert "sentinels" in {one.name for one in looked if one.level == "ok"}
    first, *others = world.sentinels.values()
    for one in others:
        one.kill()
    alone = await say(url)
    assert isinstance(alone, BusDown)
    assert f"the sentinels do not agree who is the primary of {SERVICE}" in str(alone)
    assert f"127.0.0.1:{first.port} says 127.0.0.1:{next(iter(world.servers))}" in str(alone)
    with pytest.raises(BusDown, match="do not agree"):
        await open_link(url, "test", lambda reply, tag: None)
    others[0].start()  # two of three are enough
    link = await open_link(url, "test", lambda reply, tag: None)
    link.drop()


async def say(url):
    """What an ordinary command says to who cannot be served."""
    commands = RedisCommands(url, "test")
    try:
        with pytest.raises(TransportError) as raised:
            await commands.execute("PING")
    finally:
        await commands.aclose()
    return raised.value
