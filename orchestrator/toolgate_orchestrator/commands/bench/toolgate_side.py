"""Toolgate as the bench measures it: a gate, and scheduler processes as anybody runs them."""

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from toolgate_bus.server.embedded import Server
from toolgate_bus.server.settings import BusSettings

from toolgate_orchestrator.commands.bench.measure import Contender
from toolgate_orchestrator.commands.bench.mix import SCHEDULER, TOOLS, Answer, MixedCall, to_answer
from toolgate_orchestrator.commands.bench.processes import READY_S, read_line, start_processes
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.gate.gate import Gate

PATIENCE_MS = 120_000
"""Every scheduler is required; nobody is to be silent merely because the machine is busy."""


@asynccontextmanager
async def open_toolgate(server: Server, names: Sequence[str]) -> AsyncIterator[Contender]:
    """A gate and its schedulers, a process each; facts, metrics and verify are on."""
    bus = BusSettings(redis=server.url, namespace=f"bench-{len(names)}")
    async with (
        scheduler_processes(lay_out(server.directory, names), bus) as running,
        open_gate(bus, names) as gate,
    ):
        yield side_of("toolgate", gate, server, [one.pid for one in running])


@asynccontextmanager
async def open_toolgate_together(server: Server, names: Sequence[str]) -> AsyncIterator[Contender]:
    """The same with all schedulers in one process."""
    bus = BusSettings(redis=server.url, namespace=f"bench-together-{len(names)}")
    specs = [one.spec for one in lay_out(server.directory, names)]
    command = (sys.executable, "-m", "toolgate_bus", "scheduler", "run", "--json", *specs)
    what, env = "the process of the schedulers", environment_of(bus)
    async with start_processes([command], what, env=env, cwd=server.directory) as (process,):
        for _ in names[1:]:  # each says when it is ready
            await read_line(process, what, READY_S)
        async with open_gate(bus, names) as gate:
            yield side_of("toolgate", gate, server, [process.pid])


def environment_of(bus: BusSettings) -> dict[str, str]:
    """What a scheduler's process of the bench is told by its environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
    return {**kept, "TOOLGATE_REDIS_URL": bus.redis or "", "TOOLGATE_NAMESPACE": bus.namespace}


@asynccontextmanager
async def open_gate(bus: BusSettings, names: Sequence[str]) -> AsyncIterator[Gate]:
    """A gate that requires all these schedulers."""
    async with Gate.open(
        redis=bus.redis,
        namespace=bus.namespace,
        agent="bench",
        required=list(names),
        patience_ms=PATIENCE_MS,
    ) as gate:
        yield gate


def side_of(name: str, gate: Gate, server: Server, schedulers: Sequence[int]) -> Contender:
    """A gate and the processes of its schedulers, to be measured."""

    async def decide(call: MixedCall) -> Answer:
        decision = await gate.decide(
            call.tool_name, call.tool_input, TOOLS, session=call.session, tool_call_id=call.tool_call_id
        )
        return to_answer(decision)

    pids = {"gate": [os.getpid()], "server": [server.pid], "schedulers": schedulers}
    return Contender(name, decide, pids)


def lay_out(directory: Path, names: Sequence[str]) -> list[SchedulerSpec]:
    """Write the schedulers' files."""
    specs = []
    for name in names:
        module = name.replace("-", "_")
        (directory / f"{module}.py").write_text(SCHEDULER.format(name=name))
        specs.append(SchedulerSpec(f"{module}:decide", name=name, directory=directory))
    return specs
