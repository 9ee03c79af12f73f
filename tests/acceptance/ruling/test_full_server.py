"""A server that refuses every write for a while, for whatever reason: nothing is missing afterwards.

An agent decides and spends all along, a cost-aware scheduler reserves, an archiver keeps what happened. Each
decision that the agent remembers is in the record and in the archive, and the books say what it has paid.
"""

import asyncio
import contextlib
import random
import signal
from collections import Counter
from pathlib import Path

import pytest
import redis.asyncio as redis
from toolgate_bus.commands.decisions.archive_reader import read_archived_facts
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.system, pytest.mark.acceptance]

NS = "default"
CONFIG = """
tools: {search: {cost: 0.4}}
budgets: [{name: all, level: fleet, limit: 100000}]
learn: false
"""
SETTLED_S = 30.0


class Memory:
    """Refuses with OOM."""

    def __init__(self, server, commands):
        self._commands = commands

    async def fill(self):
        await self._commands.execute("CONFIG", "SET", "maxmemory", "1")

    async def empty(self):
        await self._commands.execute("CONFIG", "SET", "maxmemory", "0")


class Disk:
    """Refuses with MISCONF, as after a snapshot that could not be written: a directory is in its place."""

    def __init__(self, server, commands):
        self._file, self._commands = Path(server.directory) / "dump.rdb", commands

    async def fill(self):
        await self._commands.execute("CONFIG", "SET", "save", "3600 1000000")
        self._file.mkdir()
        await self._save("err")

    async def empty(self):
        self._file.rmdir()
        await self._save("ok")

    async def _save(self, status):
        await self._commands.execute("BGSAVE")
        async with asyncio.timeout(SETTLED_S):
            while f"rdb_last_bgsave_status:{status}".encode() not in await self._commands.execute(
                "INFO", "persistence"
            ):
                await asyncio.sleep(0.01)


class Alone:
    """Refuses with NOREPLICAS, as a primary that was cut off from its replicas."""

    def __init__(self, server, commands):
        self._commands = commands

    async def fill(self):
        await self._commands.execute("CONFIG", "SET", "min-replicas-to-write", "1")

    async def empty(self):
        await self._commands.execute("CONFIG", "SET", "min-replicas-to-write", "0")


class Demoted:
    """Refuses with READONLY, as a primary that was made a replica by mistake: it is left at once."""

    def __init__(self, server, commands):
        self._client = redis.from_url(server.url)

    async def fill(self):
        await self._client.execute_command("REPLICAOF", "127.0.0.1", "1")

    async def empty(self):
        await self._client.execute_command("REPLICAOF", "NO", "ONE")
        await self._client.aclose()


class Agent:
    """Decides, runs what it may, and remembers."""

    def __init__(self, gate):
        self._gate = gate
        self.outcomes, self.paid, self.stop = {}, 0, asyncio.Event()

    async def work(self, session):
        while not self.stop.is_set():
            decision = await self._gate.decide(Call("search", {"q": session}, ["search"], Caller(session)))
            self.outcomes[decision.id] = decision.outcome
            if decision.allowed:
                told, cost = {"decision_id": decision.id, "tool": "search"}, random.randint(1, 400_000)
                self._gate.note("tool:selected", told)
                self.paid += cost
                self._gate.note("tool:post", {**told, "success": True, "seconds": 0.001, "cost": cost})
            await asyncio.sleep(0.02)


async def is_settled(ledger, agent):
    balances = await ledger.balances()
    return not await ledger.open() and [(one.reserved, one.spent) for one in balances] == [(0, agent.paid)]


@pytest.mark.parametrize(
    ("full", "seconds"),
    [(Memory, 1.0), (Memory, 5.0), (Disk, 5.0), (Alone, 5.0), (Demoted, 5.0)],
)
async def test_nothing_is_missing_in_the_record_or_the_books_after_a_server_was_full(
    own_server, schedulers_on, process, tmp_path, wait_until, full, seconds
):
    (tmp_path / "cost.yaml").write_text(CONFIG)
    schedulers = schedulers_on(own_server.url)
    await schedulers.start("cost-aware", "--config", tmp_path / "cost.yaml")
    archive = tmp_path / "archive"
    where = ("--redis", own_server.url, "--namespace", NS)
    archiving = process("toolgate", "decisions", "archive", archive, *where)
    commands = RedisCommands(own_server.url, "test")
    dropped, refused = (
        metrics.value("toolgate_facts_dropped_total"),
        metrics.value("toolgate_refused_writes_total", kind="facts"),
    )
    fault, ledger = full(own_server, commands), RedisLedger(commands, NS)
    async with Gate.open(redis=own_server.url, required=["cost-aware"], patience_ms=300) as gate:
        agent = Agent(gate)
        working = [asyncio.create_task(agent.work(f"s-{number}")) for number in range(8)]
        await wait_until(lambda: len(agent.outcomes) > 100, timeout=SETTLED_S)
        await fault.fill()
        await asyncio.sleep(seconds)
        await fault.empty()
        await wait_until(lambda: gate.is_connected, timeout=SETTLED_S)
        again = len(agent.outcomes)
        await wait_until(lambda: len(agent.outcomes) > again + 100, timeout=SETTLED_S)
        agent.stop.set()
        await asyncio.gather(*working)
        await wait_until(lambda: is_settled(ledger, agent), timeout=SETTLED_S)
        assert await gate.flush(SETTLED_S)
    assert full is Demoted or metrics.value("toolgate_refused_writes_total", kind="facts") > refused
    assert metrics.value("toolgate_facts_dropped_total") == dropped
    assert Counter(agent.outcomes.values())["deny"] > 0
    facts = await FactsReader(commands, NS).read_all()
    assert sorted(one["seq"] for one in facts) == list(range(1, len(facts) + 1))
    told = [(one["id"], one["outcome"]) for one in facts if one["event"] == "decision"]
    assert sorted(told) == sorted(agent.outcomes.items())

    def kept():
        with contextlib.suppress(Exception):
            return {one["id"] for one in read_archived_facts(archive) if one["event"] == "decision"}

    await wait_until(lambda: kept() == set(agent.outcomes), timeout=SETTLED_S)
    archiving.signal(signal.SIGTERM)
    assert await asyncio.to_thread(archiving.wait, 60) == 0
    await commands.aclose()
