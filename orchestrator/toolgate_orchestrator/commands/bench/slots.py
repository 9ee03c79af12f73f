"""Runs the bench of slots: agents over several processes, replicas of `slots`, a server, and what kills them.

Each run has a server, replicas and agents of its own. Agents' processes and replicas are killed with -9 in
turns and started anew; the server once, halfway, with what it has on its disk.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.embedded import find_binary
from toolgate_bus.server.guard import ServerProcess
from toolgate_bus.server.settings import BusSettings

from toolgate_orchestrator.commands.bench.measure import cpu_seconds
from toolgate_orchestrator.commands.bench.processes import read_line, start_processes
from toolgate_orchestrator.commands.bench.slots_figures import Journal, SlotRun
from toolgate_orchestrator.commands.bench.slots_load import (
    SCHEDULER,
    Moment,
    SlotLoad,
    SlotWork,
    config_of,
    read_moments,
)
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes

NAMESPACE: Final = "bench-slots"
READY_S: Final = 60.0
KILL_EVERY_S: Final = 7.0
Tell = Callable[[float, int], None]
"""Told each second how many seconds of a run are over, and how many runs of tools have begun."""


@dataclass(slots=True)
class _Part:
    """One place for a process of agents; who is killed is followed by another."""

    work: SlotWork
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    process: asyncio.subprocess.Process | None = None


class SlotFleet:
    """What one run needs, while it runs."""

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
                NAMESPACE,
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

    async def run(self, tell: Tell) -> SlotRun:
        """From the first process to the last; raises ToolgateError where one cannot be started."""
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

    # ------------------------------------------------------------------ time, and what it brings

    async def _pass_time(self, began: float, tell: Tell) -> None:
        last = began + self._load.seconds
        next_fault, is_restarted = began + KILL_EVERY_S, False
        while (now := time.monotonic()) < last:
            await asyncio.sleep(min(1.0, last - now))
            tell(min(time.monotonic(), last) - began, self._count())
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

    def _count(self) -> int:
        return sum(Path(part.work.journal).stat().st_size for part in self._parts) // (3 * 32)

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

    # ------------------------------------------------------------------ processes

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
        program = (sys.executable, "-m", "toolgate_orchestrator.commands.bench.slots_worker")
        (part.process,) = await part.stack.enter_async_context(
            start_processes([program], "the agents", wait=False)
        )
        self._tell(part, json.dumps(asdict(part.work)))
        await read_line(part.process, "the agents", READY_S)

    def _tell(self, part: _Part, line: str = "go") -> None:
        if part.process is not None and part.process.stdin is not None:
            part.process.stdin.write(f"{line}\n".encode())

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
    """The same for who comes after: agents and a journal of their own."""
    return replace(work, journal=f"{work.journal.rpartition('-')[0]}-{number}", seed=number)


async def run_slots(load: SlotLoad, processes: int, replicas: int, tell: Tell) -> SlotRun:
    """One run from nothing, in a directory that is gone afterwards; raises ToolgateError."""
    with tempfile.TemporaryDirectory(prefix="toolgate-") as directory:
        return await SlotFleet(load, processes, replicas, Path(directory)).run(tell)
