"""`slots` as a process of its own: every option by name, on a real server, through a gate."""

import asyncio
import time
from functools import partial

import pytest
from toolgate_bus.queues.queue_counts import read_pools
from toolgate_bus.transport.redis.connection import RedisCommands
from toolgate_orchestrator.gate.gate import Gate

pytestmark = pytest.mark.acceptance


class Queue:
    """Calls of agents that want slots, and end when they are told to."""

    def __init__(self, gate):
        self.gate, self.given = gate, []

    async def want(self, tool, arguments=None, **who):
        """Ask, and give the decision; a call that waits is one that somebody else must end."""
        return await self.gate.decide(tool, arguments or {}, [tool], **who)

    async def tries(self, *calls):
        """What comes of calls that wait for nothing, one after the other, by first letter."""
        return "".join([(await self.want(*call)).outcome[0] for call in calls])

    async def stand(self, name, tool, **who):
        """Ask, and come back when the call waits in the queue; who gets a slot is noted in `given`."""
        waits = asyncio.Event()

        async def wait():
            decision = await self.gate.decide(tool, {}, [tool], on_hold=lambda _: waits.set(), **who)
            self.given.append((name, decision))

        task = asyncio.create_task(wait())
        await asyncio.wait_for(waits.wait(), 20)
        return task

    def end(self, decision):
        """Its tool has run."""
        self.gate.note("tool:post", {"decision_id": decision.id, "tool_name": decision.tool_name})

    def fail(self, decision, **said):
        """Its tool has failed, and said so."""
        fact = {"decision_id": decision.id, "tool": decision.tool_name, "error": "RuntimeError", **said}
        self.gate.note("tool:error", fact)

    async def serve_all(self, first, waiting, *, keep_s=0.0):
        """End one call after the other, each kept so long; the names in the order of their turns."""
        self.end(first)
        while not all(task.done() for task in waiting):
            await asyncio.wait([task for task in waiting if not task.done()], return_when="FIRST_COMPLETED")
            await asyncio.sleep(keep_s)
            self.end(self.given[-1][1])
        return "".join(name for name, _ in self.given)


@pytest.fixture
def queue_on(schedulers, tmp_path):
    """`async with await queue_on(CONFIG) as queue`."""

    class Opened:
        async def __aenter__(self):
            where = {"redis": schedulers.url, "namespace": schedulers.namespace}
            self._gate = Gate.open(**where, patience_ms=20_000, required=["slots"])
            return Queue(await self._gate.__aenter__())

        async def __aexit__(self, *error):
            await self._gate.__aexit__(*error)

    async def started(config, **options):
        file = tmp_path / "slots.yaml"
        file.write_text(config)
        await schedulers.start("slots", "--config", file, **options)
        return Opened()

    return started


POOLS = """
pools:
  - {name: pairs, tools: pair, limit: 2, wait_s: 0}
  - {name: hosts, tools: "fetch*", key: "$.url#host", wait_s: 0}
  - {name: files, tools: "*_file", key: $.path, shared: {tools: read_*}, wait_s: 0}
  - {name: few, tools: [brief], wait_s: 0.2}
"""


async def test_so_many_at_a_time_by_key_readers_together_and_who_waits_too_long_is_told(queue_on):
    async with await queue_on(POOLS, replicas=2) as queue:
        assert await queue.tries(*[("pair",)] * 3) == "ccd"
        one, same, other = "https://a.b/1", "https://a.b:99/2", "https://b.c/1"
        assert await queue.tries(*[("fetch", {"url": url}) for url in (one, same, other)]) == "cdc"
        read, write = ("read_file", {"path": "x"}), ("write_file", {"path": "x"})
        assert await queue.tries(read, read, write, ("write_file", {"path": "y"}), read) == "ccdcc"
        taken = await queue.want("brief")
        before = time.monotonic()
        denied = await queue.want("brief")
        assert time.monotonic() - before >= 0.2
        assert denied.scheduler == "slots"
        assert "a slot of few, of which all are in use, and waited 0.2 s for it in vain" in denied.reason
        queue.end(taken)
        assert (await queue.want("brief")).allowed


TURNS = """
pools:
  - name: turns
    tools: turn
    limit: 1
    share: {by: "label:team", weights: {gold: 1}, default: 0.333}
  - name: classes
    tools: class
    limit: 1
    priority: {by: "label:class", classes: {urgent: 5, batch: 1}, default: 3}
  - name: ages
    tools: age
    limit: 1
    priority: {by: "label:class", classes: {urgent: 1}, ageing_s: 0.05}
"""


async def test_turns_go_by_shares_within_a_class_and_the_old_ones_rise(queue_on):
    async with await queue_on(TURNS) as queue:
        first = await queue.want("turn", labels={"team": "bronze"})
        asked = [*"ssssgggggg"]
        teams = {"g": {"team": "gold"}, "s": {"team": "silver"}}
        waiting = [await queue.stand(name, "turn", labels=teams[name]) for name in asked]
        order = await queue.serve_all(first, waiting, keep_s=0.05)
        assert sorted(order) == sorted(asked)
        assert order[:8].count("g") >= 5  # by seconds: six, if each keeps it as long as the others

        queue.given.clear()
        first = await queue.want("class")
        classes = {"b": {"class": "batch"}, "n": {}, "u": {"class": "urgent"}}
        waiting = [await queue.stand(name, "class", labels=classes[name]) for name in "bnubnu"]
        assert await queue.serve_all(first, waiting) == "uunnbb"

        queue.given.clear()
        first = await queue.want("age")
        old = await queue.stand("o", "age")
        await asyncio.sleep(0.2)  # it grows old: four steps of its class, for the one of who is urgent
        young = await queue.stand("u", "age", labels={"class": "urgent"})
        assert await queue.serve_all(first, [old, young]) == "ou"


ADAPTIVE = """
pools:
  - name: api
    tools: api
    limit: 8
    wait_s: 0
    adaptive: {min: 3, signals: [418], climb_s: 0.1, pause_s: 0.3}
"""


async def test_a_limit_follows_what_the_tool_says_between_its_bounds_and_climbs_again(queue_on, schedulers):
    commands = RedisCommands(schedulers.url, "test")

    async def stands(most, in_use=None):
        within = asyncio.get_running_loop().time() + 3
        while asyncio.get_running_loop().time() < within:
            found = (await read_pools(commands, schedulers.namespace, "slots")).get("api")
            if found is not None and found.limit == most and in_use in (None, found.in_use):
                return True
            await asyncio.sleep(0.01)
        return False

    async with await queue_on(ADAPTIVE, replicas=2) as queue:
        running = [await queue.want("api") for _ in range(8)]
        queue.fail(running[0], signal="500")
        assert await stands(8, in_use=7)  # nobody said that it means anything
        for decision in running[1:]:
            queue.fail(decision, signal="418")
        assert await stands(3)  # half of the seven that were in use, for the whole burst
        running = [await queue.want("api") for _ in range(3)]
        queue.fail(running[0], signal="418")
        for decision in running[1:]:
            queue.end(decision)
        for most in (4, 5):
            assert await climbs(queue, most - 1, partial(stands, most))
        queue.fail(await queue.want("api"), retry_after=60)
        assert await stands(0)
        assert await queue.tries(("api",)) == "d"
        assert await stands(3)
    await commands.aclose()


async def climbs(queue, most, stands):
    """Use all of a pool, well, until it has one more."""
    await asyncio.sleep(0.15)
    for _ in range(2):
        for decision in [await queue.want("api") for _ in range(most)]:
            queue.end(decision)
        if await stands():
            return True
    return False
