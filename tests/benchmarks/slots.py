"""Many agents that want few slots: exactness, shares, waste, growth.

    python tests/benchmarks/slots.py
    python tests/benchmarks/slots.py --run shares --seconds 60

exact    tools of no duration, 2 slots a key; agents, replicas and the server are killed
shares   8 slots of 50 ms; four tenants of weights 1:2:4:8, and a few urgent calls
busy     8 slots of 500 ms that somebody always waits for
growth   8 slots, tools of no duration: 10 agents, 100, 1,000

With `exact`, agents' processes and replicas are killed with -9 in turns and started anew, the server once.
Every process keeps a journal, and the figures come from the journals alone. The exit code is 1 if more ran at
a time than may, a call was denied that could have waited, or somebody never had a turn.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from harness import Columns, Report, count, open_lines, options, own_process, send, start
from slots_figures import (
    TENANTS,
    Journal,
    Moment,
    SlotLoad,
    SlotRun,
    What,
    read_moments,
    tenant_of,
    write_moment,
)
from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.embedded import find_binary
from toolgate_bus.server.guard import ServerProcess
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.telemetry.logging import configure_logging
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.commands.bench.measure import cpu_seconds
from toolgate_orchestrator.commands.bench.processes import read_line, start_processes
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.decision.gate import Gate

NAMESPACE = "bench-slots"
SCHEDULER = "bench-slots"
TOOL = "use_slot"
PATIENCE_MS = 120_000
WAIT_S = 3600.0
URGENT_LEVEL = 1000
READY_S = 60.0
KILL_EVERY_S = 7.0
RUNS = ("exact", "shares", "busy", "growth")
OPTIONS = options(__doc__)
OPTIONS.add_argument("--run", choices=RUNS, nargs="+", default=RUNS, help="which runs (default: all)")
OPTIONS.add_argument("-a", "--agents", type=count, default=1000, help="number of agents (default: 1000)")
OPTIONS.add_argument("-p", "--processes", type=count, default=4, help="processes of agents (default: 4)")
OPTIONS.add_argument("-r", "--replicas", type=count, default=2, help="replicas of slots (default: 2)")
OPTIONS.add_argument("--seconds", type=float, default=60.0, help="seconds of each run (default: 60)")


@dataclass(frozen=True, slots=True)
class SlotWork:
    """Task of one process of agents."""

    url: str
    journal: str
    first: int
    agents: int
    keys: int
    hold_s: float
    think_s: float
    urgent_every: int
    """One agent of this many is of the high class; 0: none."""
    urgent_think_s: float
    seed: int


def config_of(load: SlotLoad) -> str:
    """Return the configuration of `slots` for a run."""
    weights = ", ".join(f"{name}: {weight}" for name, weight in TENANTS.items())
    return f"""\
pools:
  - name: bench
    tools: [{TOOL}]
    limit: {load.limit}
    key: $.key
    wait_s: {WAIT_S:g}
    share: {{by: "label:tenant", weights: {{{weights}}}}}
    priority: {{by: "label:class", classes: {{urgent: {URGENT_LEVEL}, batch: 0}}, ageing_s: 60}}
"""


# ------------------------------------------------------------------ a process of agents


class Rivals:
    """Agents of one process."""

    def __init__(self, work: SlotWork, gate: Gate, journal: int) -> None:
        self._work, self._gate, self._journal = work, gate, journal
        self._random = random.Random(work.seed)
        self.words: Counter[str] = Counter()
        """Number of denied calls by reason."""
        self.is_over = False

    async def run(self) -> None:
        """Have every agent call, run and report until it is over."""
        first = self._work.first
        await asyncio.gather(*(self._live(number) for number in range(first, first + self._work.agents)))

    async def _live(self, agent: int) -> None:
        work = self._work
        urgent = bool(work.urgent_every) and agent % work.urgent_every == 0
        tenant = tenant_of(agent // work.urgent_every if urgent else agent)
        labels = {"tenant": tenant, "class": "urgent" if urgent else "batch"}
        think = work.urgent_think_s if urgent else work.think_s
        while not self.is_over:
            await asyncio.sleep(self._random.expovariate(1.0 / think) if think else 0)
            key = self._random.randrange(work.keys)

            def note(what: What, fence: int = 0, key: int = key) -> None:
                moment = Moment(what, tenant, urgent, agent, key, time.monotonic(), fence)
                os.write(self._journal, write_moment(moment))

            note("ask")
            decision = await self._gate.decide(
                Call(TOOL, {"key": f"k{key}"}, (TOOL,), Caller(f"s{agent}", tenant, labels=labels))
            )
            if not decision.allowed:
                note("denied")
                self.words[f"{decision.why}: {decision.reason}"] += 1
                continue
            note("start", decision.grants.get(SCHEDULER, 0))
            try:
                if work.hold_s:
                    await asyncio.sleep(work.hold_s)
            finally:
                note("end")
                told = {"decision_id": decision.id, "tool_name": TOOL, "session": f"s{agent}"}
                self._gate.note("tool:post", told)


async def work() -> None:
    """Run the agents of one process: say `ready`, begin at the next line, end at the one after."""
    configure_logging()  # stdout is read by the parent
    lines = await open_lines()
    told = SlotWork(**json.loads(await lines.readline()))
    journal = os.open(told.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    async with Gate.open(
        redis=told.url,
        namespace=NAMESPACE,
        agent="bench",
        required=(SCHEDULER,),
        patience_ms=PATIENCE_MS,
    ) as gate:
        print("ready", flush=True)
        if not await lines.readline():
            return
        rivals = Rivals(told, gate, journal)
        running = asyncio.create_task(rivals.run())
        await lines.readline()
        rivals.is_over = True
        running.cancel()  # a use that is cut off ends as any other
        await asyncio.wait([running])
        print(json.dumps({"denied": rivals.words}), flush=True)
        await lines.readline()
    os.close(journal)


# ------------------------------------------------------------------ a run


@dataclass(slots=True)
class _Part:
    """Place of a process of agents; a killed one is followed by another."""

    work: SlotWork
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    process: asyncio.subprocess.Process | None = None


class SlotFleet:
    """Server, replicas and processes of one run."""

    def __init__(self, load: SlotLoad, processes: int, replicas: int, directory: Path) -> None:
        self._load, self._replicas, self._directory = load, replicas, directory
        self._random = random.Random(load.name)
        self._server = ServerProcess(directory, find_binary(), appendonly=load.kills)
        self._schedulers: list[tuple[AsyncExitStack, int]] = []
        self._parts = [_Part(work) for work in self._works(processes)]
        self._over: dict[str, float] = {}
        self._faults: list[tuple[str, float]] = []
        self._started = len(self._parts)
        self.denied: Counter[str] = Counter()

    def _works(self, processes: int) -> list[SlotWork]:
        load = self._load
        each = max(1, load.agents // processes)
        return [
            SlotWork(
                self._server.url,
                str(self._directory / f"journal-{number}"),
                number * each,
                each,
                load.keys,
                load.hold_s,
                load.think_s,
                max(1, load.agents // load.urgent) if load.urgent else 0,
                load.urgent_think_s,
                number,
            )
            for number in range(min(processes, load.agents))
        ]

    async def run(self, tell: Callable[[str], None]) -> SlotRun:
        """Run from the first process to the last; raises ToolgateError if one cannot be started."""
        self._server.start()
        try:
            for _ in range(self._replicas):
                await self._start_replica()
            await asyncio.gather(*(self._start(part) for part in self._parts))
            spent = {name: cpu_seconds(of) for name, of in self._pids().items()}
            for part in self._parts:
                self._tell(part)
            began = time.monotonic()
            await self._pass_time(began, tell)
            over = time.monotonic()
            cpu = {} if self._load.kills else {name: cpu_seconds(of) for name, of in self._pids().items()}
            await asyncio.gather(*(self._finish(part) for part in self._parts))
        finally:
            await self._end()
        journals = [Journal(_read_journal(name), over) for name, over in self._over.items()]
        used = {
            name: None if first is None or cpu.get(name) is None else cpu[name] - first  # type: ignore[operator]
            for name, first in spent.items()
        }
        return SlotRun(self._load, began, over, journals, self.denied, self._faults, used)

    async def _pass_time(self, began: float, tell: Callable[[str], None]) -> None:
        last = began + self._load.seconds
        next_fault, is_restarted = began + KILL_EVERY_S, False
        while (now := time.monotonic()) < last:
            await asyncio.sleep(min(1.0, last - now))
            tell(f"{self._load.name}: {time.monotonic() - began:.0f} of {self._load.seconds:g} s")
            if not self._load.kills or time.monotonic() < next_fault or last - now < KILL_EVERY_S:
                continue
            next_fault += KILL_EVERY_S
            if not is_restarted and now - began > self._load.seconds / 2:
                is_restarted = True
                self._restart_server()
            elif self._random.random() < 0.5:
                await self._kill_agents()
            else:
                await self._kill_replica()

    def _restart_server(self) -> None:
        self._faults.append(("server", time.monotonic()))
        self._server.kill()
        self._server.start()

    async def _kill_agents(self) -> None:
        part = self._random.choice(self._parts)
        process = part.process
        if process is None:
            raise ToolgateError("a process of the agents is not there")
        self._faults.append(("agents", time.monotonic()))
        process.kill()
        await process.wait()
        self._over[part.work.journal] = time.monotonic()
        await part.stack.aclose()
        part.work = _renew(part.work, self._started)
        self._started += 1
        await self._start(part)
        self._tell(part)

    async def _kill_replica(self) -> None:
        stack, pid = self._schedulers.pop(self._random.randrange(len(self._schedulers)))
        self._faults.append(("replica", time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        await stack.aclose()
        await self._start_replica()

    def _pids(self) -> dict[str, list[int]]:
        agents = [part.process.pid for part in self._parts if part.process is not None]
        return {
            "agents": agents,
            "slots": [pid for _, pid in self._schedulers],
            "server": [self._server.pid],
        }

    async def _start_replica(self) -> None:
        config = self._directory / "slots.yaml"
        config.write_text(config_of(self._load))
        stack = AsyncExitStack()
        bus = BusSettings(redis=self._server.url, namespace=NAMESPACE)
        running = await stack.enter_async_context(
            scheduler_processes([SchedulerSpec("slots", config, SCHEDULER)], bus)
        )
        self._schedulers.append((stack, running[0].pid))

    async def _start(self, part: _Part) -> None:
        program = own_process(__file__)
        (part.process,) = await part.stack.enter_async_context(
            start_processes([program], "the agents", wait=False)
        )
        self._tell(part, json.dumps(asdict(part.work)))
        await read_line(part.process, "the agents", READY_S)

    def _tell(self, part: _Part, line: str = "go") -> None:
        if part.process is not None:
            send(part.process, line)

    async def _finish(self, part: _Part) -> None:
        self._tell(part)
        if part.process is not None:
            told = json.loads(await read_line(part.process, "the agents", READY_S))
            self.denied.update(told["denied"])
        self._over[part.work.journal] = time.monotonic()
        self._tell(part)

    async def _end(self) -> None:
        for stack in (*(part.stack for part in self._parts), *(stack for stack, _ in self._schedulers)):
            await stack.aclose()
        self._server.kill()


def _read_journal(name: str) -> list[Moment]:
    return list(read_moments(Path(name).read_bytes()))


def _renew(work: SlotWork, number: int) -> SlotWork:
    """Return the same work for the process that follows, with a journal of its own."""
    return replace(work, journal=f"{work.journal.rpartition('-')[0]}-{number}", seed=number)


async def run_slots(load: SlotLoad, processes: int, replicas: int, tell: Callable[[str], None]) -> SlotRun:
    """Run from nothing, in a directory that is gone afterwards; raises ToolgateError."""
    with tempfile.TemporaryDirectory(prefix="toolgate-") as directory:
        return await SlotFleet(load, processes, replicas, Path(directory)).run(tell)


# ------------------------------------------------------------------ command


def loads_of(given: argparse.Namespace) -> list[SlotLoad]:
    """Return the load of each run that is asked for."""
    agents, seconds = given.agents, given.seconds
    urgent = max(1, agents // 50)
    found = {
        "exact": [SlotLoad("exact", agents, 2, 0.0, seconds, keys=max(1, agents // 2), kills=True)],
        "shares": [SlotLoad("shares", agents, 8, 0.05, seconds, urgent=urgent, urgent_think_s=urgent / 8.0)],
        "busy": [SlotLoad("busy", agents, 8, 0.5, seconds)],
        "growth": [SlotLoad(f"growth-{n}", n, 8, 0.0, max(3.0, seconds / 3)) for n in (10, 100, 1000)],
    }
    return [load for name in given.run for load in found[name]]


async def main(given: argparse.Namespace, report: Report) -> int:
    """Run and print; the exit code is 1 where slots were not exact."""
    report.show_machine()
    rows = []
    for load in loads_of(given):
        rows.append((await run_slots(load, given.processes, given.replicas, report.tell)).figures())
        report.add(rows[-1])
    report.show_beside(LINES, [row["run"] for row in rows], rows)
    for row in rows:
        for words, times in sorted(row["denied"].items(), key=lambda one: -one[1])[:5]:
            report.say(f"{row['run']}: {times} denied: {words}")
    bad = [row for row in rows if row["over_given"] or row["denied"] or row["starved"] or not row["grants"]]
    return 1 if bad else 0


def _number(value: float | None, unit: str = "") -> str:
    return "–" if value is None else f"{value:g}{unit}"


def _cpu(name: str, row: Any) -> str:
    return _number(row["cpu_us"].get(name), " µs")


LINES: Columns = {
    "agents": lambda row: str(row["agents"]),
    "slots given": lambda row: str(row["grants"]),
    "  a second": lambda row: _number(row["grants_per_second"]),
    "more at a time than may": lambda row: str(row["over_given"]),
    "denied": lambda row: str(sum(row["denied"].values())),
    "never served": lambda row: str(row["starved"]),
    "killed": lambda row: ", ".join(f"{count} {what}" for what, count in row["faults"].items()) or "–",
    "slot time by tenant": lambda row: " ".join(f"{each:.1f}" for each in row["shares"].values()),
    "  furthest from its weight": lambda row: _number(row["worst_share_points"], " points"),
    "slots busy": lambda row: _number(row["busy_percent"], " %"),
    "waited, median": lambda row: _number(row["waited_s"]["median"], " s"),
    "waited, longest": lambda row: _number(row["waited_s"]["max"], " s"),
    "urgent, of the load": lambda row: _number(row["urgent"]["offered_percent"], " %"),
    "urgent, p99": lambda row: _number(row["urgent"]["p99_s"], " s"),
    "CPU a grant, agents": lambda row: _cpu("agents", row),
    "  slots": lambda row: _cpu("slots", row),
    "  server": lambda row: _cpu("server", row),
}


if __name__ == "__main__":
    start(OPTIONS, main, work)
