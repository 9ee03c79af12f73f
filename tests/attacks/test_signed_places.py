"""What is signed holds where it was signed: two fleets on one server with one keys file, and a thief.

The fleet `lax` rules on less than the fleet of the test. Whoever can write to the server carries what was
signed there over, byte for byte: a heartbeat, a question, a pushed configuration.
"""

import asyncio
import contextlib

import pytest
import redis.asyncio as redis
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.state.config_record import NO_RECORD
from toolgate_bus.state.config_store import ConfigStore
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

TOOLS = ["read_file", "bash"]
KEY = "ab" * 32
DENY = {"rules": {"gamma": {"action": "deny", "reason": "never"}}}


@pytest.fixture
def keys(tmp_path):
    """The keys file that both fleets have."""
    path = tmp_path / "keys.yaml"
    path.write_text(f"gamma: {KEY}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
async def lax(schedulers_on, server_url, namespace, keys):
    """The fleet next door."""
    return schedulers_on(server_url, f"{namespace}-lax")


@pytest.fixture
async def thief(server_url):
    """Someone who can read and write the whole server, and has no key."""
    client = redis.from_url(server_url)
    yield client
    await client.aclose()


@pytest.fixture
def gate(server_url, namespace, keys):
    return lambda **config: Gate.open(
        redis=server_url, namespace=namespace, keys=keys, required=["gamma"], **{"patience_ms": 1500} | config
    )


@contextlib.asynccontextmanager
async def again_and_again(attack):
    """Attack for as long as the block lasts."""
    stop = asyncio.Event()

    async def go_on():
        while not stop.is_set():
            await attack()
            await asyncio.sleep(0.01)

    await attack()
    running = asyncio.create_task(go_on())
    try:
        yield
    finally:
        stop.set()
        await running


async def member_of(thief, namespace):
    """The roster name of the only scheduler there."""
    minute = int((await thief.time())[0]) // 60
    for one in (minute, minute - 1):
        if names := await thief.smembers(Keys(namespace).roster_of("schedulers", one)):
            return next(iter(names)).decode()
    raise AssertionError("nobody is there")


async def test_a_heartbeat_carried_over_from_another_namespace_excuses_nobody(
    lax, schedulers, thief, namespace, gate, keys
):
    await lax.start("obedient:gamma", "--keys", keys, "--tools", "read_*")
    await schedulers.start("obedient:gamma", "--keys", keys)
    there, here = Keys(lax.namespace), Keys(namespace)
    narrow, own = await member_of(thief, lax.namespace), await member_of(thief, namespace)

    async def carry_over():
        minute = int((await thief.time())[0]) // 60
        told = await thief.get(there.member(narrow))
        await thief.sadd(here.roster_of("schedulers", minute), narrow)
        await thief.set(here.member(narrow), told, px=60_000)
        await thief.delete(here.member(own))

    async with again_and_again(carry_over), gate() as opened:
        decision = await opened.decide(Call("bash", DENY, TOOLS))
    assert (decision.outcome, decision.why) == ("deny", "denied")


async def test_an_answer_that_was_given_in_another_namespace_answers_nothing(
    lax, thief, namespace, gate, keys
):
    """The same question, carried over: there the scheduler lets the call run."""
    await lax.start("obedient:gamma", "--keys", keys)
    there, here = Keys(lax.namespace), Keys(namespace)
    asked, answered = {"0-0"}, {"0-0"}

    async def carry_over():
        for entry, fields in await thief.xrange(here.inbox("gamma")):
            if entry not in asked:
                asked.add(entry)
                await thief.xadd(there.inbox("gamma"), fields)
        async for key in thief.scan_iter(
            there.verdicts("*", "gamma").replace("{", "[{]").replace("}", "[}]")
        ):
            orchestrator = key.decode().split(":out:")[1].split(":")[0]
            for entry, fields in await thief.xrange(key):
                if entry not in answered:
                    answered.add(entry)
                    await thief.xadd(here.verdicts(orchestrator, "gamma"), fields)

    async with gate() as opened, again_and_again(carry_over):
        decision = await opened.decide(Call("bash", {}, TOOLS))
    assert (decision.outcome, decision.why) == ("deny", "silent")
    assert len(asked) > 1
    assert lax.lines("asked") == []  # to the scheduler there it is a forgery


async def test_a_hold_that_was_put_in_the_place_of_another_lets_nothing_run(
    schedulers, thief, namespace, gate, keys
):
    """The late answer to a harmless call is one to that call alone, whatever lies under its key."""
    await schedulers.start("obedient:gamma", "--keys", keys)
    holding = {"action": "hold", "seconds": 20}
    harmless = {**holding, "then": {"action": "continue", "after": 1.0}}
    harmful = {**holding, "then": {"action": "deny", "reason": "never", "after": 3.0}}

    async def holds():
        pattern = Keys(namespace).store_key("hold:gamma:*").replace("{", "[{]").replace("}", "[}]")
        return [key async for key in thief.scan_iter(pattern)]

    async with gate() as opened:
        first = asyncio.create_task(opened.decide(Call("bash", {"rules": {"gamma": harmful}}, TOOLS)))
        while not (stored := await holds()):
            await asyncio.sleep(0.01)
        second = asyncio.create_task(opened.decide(Call("read_file", {"rules": {"gamma": harmless}}, TOOLS)))
        while len(both := await holds()) < 2:
            await asyncio.sleep(0.01)
        (other,) = set(both) - set(stored)
        await thief.set(other, await thief.get(stored[0]), px=60_000)
        decision = await first
        second.cancel()
    assert (decision.outcome, decision.reason) == ("deny", "never")


async def test_a_configuration_that_was_pushed_in_another_namespace_is_refused_here(
    server_url, thief, namespace
):
    commands = RedisCommands(server_url, "test-configs", connections=1)
    there = f"{namespace}-lax"

    def store(where):
        return ConfigStore(commands, where, "gamma", Keyring({"gamma": bytes.fromhex(KEY)}, where))

    try:
        await store(there).change(lambda record: record._replace(active=""))
        assert (await store(there).read()).record == NO_RECORD
        pushed = await thief.get(Keys(there).store_key("config:gamma:record"))
        await thief.set(Keys(namespace).store_key("config:gamma:record"), pushed)
        with pytest.raises(ConfigError, match="is not signed with the key of gamma"):
            await store(namespace).read()
    finally:
        await commands.aclose()
