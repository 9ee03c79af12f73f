"""The server turns on us for a second, and two seconds later all is as before.

A replica of nobody, memory that is full, verdict streams of another type: each while twenty decisions are
in flight, all of which a required and an optional policy deny. None of them runs, and what is asked after
the fault is answered by both at once.
"""

import asyncio
import contextlib

import redis.asyncio as redis
from toolgate_bus.protocol.keys import Keys
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

CONTINUE = {"action": "continue"}
IN_FLIGHT = 20
TOOLS = ["bash"]


async def become_a_replica(client, verdicts):
    await client.execute_command("REPLICAOF", "127.0.0.1", "1")


async def become_a_master(client, verdicts):
    await client.execute_command("REPLICAOF", "NO", "ONE")


async def fill_the_memory(client, verdicts):
    await client.config_set("maxmemory-policy", "noeviction")
    await client.config_set("maxmemory", "1")


async def free_the_memory(client, verdicts):
    await client.config_set("maxmemory", "0")


async def overwrite_the_streams(client, verdicts):
    for key in verdicts:
        await client.set(key, "rubbish")


async def nothing(client, verdicts):
    """The fault has to be mended by those who meet it."""


FAULTS = (
    ("REPLICAOF there and back", become_a_replica, 1.0, become_a_master),
    ("memory full", fill_the_memory, 1.0, free_the_memory),
    ("verdict streams of another type", overwrite_the_streams, 0.0, nothing),
)


async def deny(gate, number, after=0.0):
    """One of the two denies: the required one, or the optional one."""
    denying, other = ("alpha", "beta") if number % 2 else ("beta", "alpha")
    rules = {denying: {"action": "deny", "reason": f"no {number}", "after": after}, other: CONTINUE}
    return await gate.decide(Call("bash", {"n": number, "rules": rules}, TOOLS))


async def as_before(gate):
    """Both deny what they are asked, at once."""
    decisions = await asyncio.gather(*(deny(gate, number) for number in range(4)))
    return all(one.outcome == "deny" and not one.silent for one in decisions)


async def test_nothing_runs_against_a_denial_and_all_is_as_before_once_it_is_over(
    own_server, schedulers_on, wait_until
):
    schedulers = schedulers_on(own_server.url)
    for name in ("alpha", "beta"):
        schedulers.run(f"obedient:{name}")
    for child in schedulers.started:
        await schedulers.ready(child)
    client = redis.from_url(own_server.url)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        gate = await stack.enter_async_context(
            Gate.open(redis=own_server.url, required=["alpha"], patience_ms=30_000)
        )
        bus = gate._client.bus
        verdicts = [Keys("default").verdicts(bus.orchestrator, name) for name in ("alpha", "beta")]
        for name, begin, seconds, end in FAULTS:
            assert await as_before(gate), name
            asked = len(schedulers.lines("asked"))
            flying = [asyncio.create_task(deny(gate, n, after=0.1 + n / 50)) for n in range(IN_FLIGHT)]
            while len(schedulers.lines("asked")) < asked + 2 * IN_FLIGHT:
                await asyncio.sleep(0.005)
            await begin(client, verdicts)
            await asyncio.sleep(seconds)
            await end(client, verdicts)
            decisions = await asyncio.gather(*flying)
            assert [one.outcome for one in decisions] == ["deny"] * IN_FLIGHT, name
            assert {one.why for one in decisions} == {"denied"}, name
            await wait_until(lambda: as_before(gate), timeout=30)
