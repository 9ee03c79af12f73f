"""Runs the bench's fleet: agents over several processes, replicated schedulers, one server.

Every row has agents' processes of its own; the schedulers stay. All agents begin at once. When they are
done, what their LLMs called, what was decided and what was recorded is counted and compared.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final

import anyio
from toolgate_bus.errors import ToolgateError
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.server.embedded import Server
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.connection import RedisCommands

from toolgate_orchestrator.commands.bench.fleet_agents import Work, decisions_of, lay_out
from toolgate_orchestrator.commands.bench.fleet_figures import Row
from toolgate_orchestrator.commands.bench.measure import cpu_seconds
from toolgate_orchestrator.commands.bench.processes import start_processes
from toolgate_orchestrator.commands.host.scheduler_processes import scheduler_processes

NAMESPACE: Final = "bench-fleet"
SET_UP_S: Final = 60.0
SET_UP_EACH_S: Final = 0.1
"""About ten times what a session takes to be made."""
FACTS_S: Final = 10.0
"""Facts are written off a decision's path, within milliseconds; so long they are waited for."""
GRACE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """What is measured."""

    agents: Sequence[int]
    processes: int = 4
    replicas: int = 2
    calls: int = 8
    think_s: float = 0.0
    limit_s: float = 300.0

    def works(self, row: str, agents: int, url: str) -> list[Work]:
        """What each process does: the agents in even parts, at least one each."""
        processes = min(self.processes, agents)
        firsts = [agents * part // processes for part in range(processes + 1)]
        return [
            Work(url, NAMESPACE, row, first, after - first, self.calls, self.think_s, self.limit_s)
            for first, after in pairwise(firsts)
        ]


async def measure_fleet(server: Server, load: FleetLoad) -> AsyncIterator[Row]:
    """Run each number of agents; gives one row after another. Raises ToolgateError."""
    specs = lay_out(server.directory, load.replicas)
    bus = BusSettings(redis=server.url, namespace=NAMESPACE)
    commands = RedisCommands(server.url, "bench-fleet", connections=1)
    try:
        async with scheduler_processes(specs, bus) as running:
            record = FactsReader(commands, NAMESPACE)
            shared = {"schedulers": [one.pid for one in running], "server": [server.pid]}
            for number, agents in enumerate(load.agents):
                works = load.works(f"row{number}", agents, server.url)
                yield await _row(works, shared, record)
    finally:
        await commands.aclose()


async def _row(works: Sequence[Work], shared: dict[str, list[int]], record: FactsReader) -> Row:
    async with _processes(works) as processes:
        pids = {"agents": [one.pid for one in processes], **shared}
        agents = sum(work.agents for work in works)
        await _all(processes, "ready", SET_UP_S + agents * SET_UP_EACH_S)
        before, began = {name: cpu_seconds(of) for name, of in pids.items()}, time.perf_counter()
        _tell(processes, "go")
        counted = await _all(processes, "done", works[0].limit_s + GRACE_S)
        wall, spent = time.perf_counter() - began, dict[str, float | None]()
        for name, of in pids.items():
            first, last = before[name], cpu_seconds(of)
            spent[name] = None if first is None or last is None else last - first
        decided = {id_ for one in counted for id_ in one["decided"]}
        recorded = await _count_in_record(record, decided)
        _tell(processes, "go")
        return Row(
            agents=agents,
            processes=len(works),
            planned=sum(map(decisions_of, works)),
            called=sum(one["calls"] for one in counted),
            decided=len(decided),
            recorded=recorded,
            answered=sum(one["answered"] for one in counted),
            whys=dict(sum((Counter(one["whys"]) for one in counted), Counter[str]())),
            wall_s=wall,
            latencies_s=[seconds for one in counted for seconds in one["decided"].values()],
            alike_s=[seconds for one in counted for seconds in one["alike_s"]],
            grown_bytes=[one["grown"] for one in counted],
            cpu_s=spent,
        )


async def _count_in_record(record: FactsReader, decided: set[str]) -> int:
    """How many of these decisions stand in the record, each counted once."""
    found: set[str] = set()
    until = time.monotonic() + FACTS_S
    while True:
        for fact in await record.read_all():
            if fact.get("event") == "decision" and fact["id"] in decided:
                found.add(fact["id"])
        if found >= decided or time.monotonic() > until:
            return len(found)
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _processes(works: Sequence[Work]) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """The agents' processes, each told its work; they leave by themselves, or are ended."""
    program = (sys.executable, "-m", "toolgate_orchestrator.commands.bench.fleet_worker")
    async with start_processes([program] * len(works), "the agents", wait=False) as processes:
        for process, work in zip(processes, works, strict=True):
            _tell([process], json.dumps(asdict(work)))
        yield processes
        with anyio.move_on_after(GRACE_S):
            await asyncio.gather(*(one.wait() for one in processes))


def _tell(processes: Sequence[asyncio.subprocess.Process], line: str) -> None:
    for process in processes:
        if process.stdin is not None:
            process.stdin.write(f"{line}\n".encode())


async def _all(
    processes: Sequence[asyncio.subprocess.Process], event: str, seconds: float
) -> list[dict[str, Any]]:
    """What each process says next; raises ToolgateError where one ends, or does not say it in time."""
    try:
        async with asyncio.timeout(seconds):
            return list(await asyncio.gather(*(_next(process, event) for process in processes)))
    except TimeoutError:
        raise ToolgateError(
            f"the agents were not {event} within {seconds:g} s: try fewer, or --limit"
        ) from None


async def _next(process: asyncio.subprocess.Process, event: str) -> dict[str, Any]:
    line = await process.stdout.readline() if process.stdout else b""
    told: dict[str, Any] = json.loads(line) if line.startswith(b"{") else {}
    if told.get("event") != event:
        raise ToolgateError(f"a process of the agents ended before it was {event}; its words stand above")
    return told
