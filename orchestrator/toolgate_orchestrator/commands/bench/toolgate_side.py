"""Toolgate as a side of a benchmark: a gate, scheduler processes as anybody runs them, and their streams.

Its schedulers are asked, a process each (`toolgate`) or all in one (`together`); or they are policies whose
local tables answer (`local`).
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.embedded import Server
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.reads import empty_streams, find_keys, read_sizes

from toolgate_orchestrator.commands.bench.measure import Contender
from toolgate_orchestrator.commands.bench.mix import (
    RULES,
    SCHEDULER,
    TOOLS,
    Answer,
    Mix,
    MixedCall,
    to_answer,
)
from toolgate_orchestrator.commands.bench.processes import READY_S, read_line, start_processes
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.question.call import Call, Caller

FACTS_S: Final = 0.2
"""Seconds after which all facts of a block are on the server."""
PATIENCE_MS: Final = 120_000
"""Patience in milliseconds: long enough that no scheduler counts as silent because the machine is busy."""
IN_FORCE_S: Final = 10.0
"""Longest wait in seconds until the tables of all schedulers answer."""
LOCAL: Final = " local"
"""End of the revision of a verdict that a local table gave."""
STREAMS: Final = ("floor:*", *(f"tg:{{bench-*}}:{kind}:*" for kind in ("in", "out", "facts")))
"""Keys of a benchmark whose entries pile up."""


@asynccontextmanager
async def open_toolgate(server: Server, names: Sequence[str]) -> AsyncIterator[Contender]:
    """Open a gate and its schedulers, a process each; facts, metrics and verify are on."""
    bus = BusSettings(redis=server.url, namespace=f"bench-{len(names)}")
    async with (
        scheduler_processes(lay_out(server.directory, names), bus) as running,
        open_gate(bus, names) as gate,
    ):
        pids = {"gate": [os.getpid()], "server": [server.pid], "schedulers": [one.pid for one in running]}
        yield side_of("toolgate", gate, pids, Mix(names), bus.namespace)


@asynccontextmanager
async def open_together(server: Server, names: Sequence[str]) -> AsyncIterator[Contender]:
    """Open a gate and its schedulers, all in one process."""
    bus = BusSettings(redis=server.url, namespace=f"bench-{len(names)}-together")
    specs = [one.spec for one in lay_out(server.directory, names)]
    env = {key: value for key, value in os.environ.items() if not key.startswith("TOOLGATE_")}
    env |= {"TOOLGATE_REDIS_URL": server.url, "TOOLGATE_NAMESPACE": bus.namespace}
    command = (sys.executable, "-m", "toolgate_bus", "scheduler", "run", "--json", *specs)
    async with start_processes([command], "the schedulers", env=env, cwd=server.directory) as (running,):
        for _ in specs[1:]:  # each scheduler of a process says when it is ready
            await read_line(running, "the schedulers", READY_S)
        async with open_gate(bus, names) as gate:
            pids = {"gate": [os.getpid()], "server": [server.pid], "schedulers": [running.pid]}
            yield side_of("together", gate, pids, Mix(names), bus.namespace)


@asynccontextmanager
async def open_local(
    server: Server, names: Sequence[str], more: str = "", label: str = "local"
) -> AsyncIterator[Contender]:
    """Open a gate and policies whose local tables answer all calls of the kind `rules`.

    `more` are further rules of each, lines of YAML.
    """
    bus = BusSettings(redis=server.url, namespace=f"bench-{len(names)}-{label}")
    specs = []
    for name in names:
        file = server.directory / f"{name}-{label}.yaml"
        file.write_text(RULES.format(name=name) + more)
        specs.append(SchedulerSpec("policy", file, name))
    async with scheduler_processes(specs, bus) as running, open_gate(bus, names) as gate:
        pids = {"gate": [os.getpid()], "server": [server.pid], "schedulers": [one.pid for one in running]}
        await _wait_for_tables(gate)
        yield side_of(label, gate, pids, Mix(names, "rules"), bus.namespace)


async def _wait_for_tables(gate: Gate) -> None:
    """Wait until no scheduler is asked any more. Raises ToolgateError if that takes too long."""
    try:
        async with asyncio.timeout(IN_FORCE_S):
            while True:
                given = {"rule": "", "by": ""}
                decision = await gate.decide(Call(TOOLS[0], given, TOOLS, Caller("warm-up")))
                if all(one.revision.endswith(LOCAL) for one in decision.verdicts):
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise ToolgateError(f"the local tables did not answer within {IN_FORCE_S:g} s") from None


@asynccontextmanager
async def open_gate(bus: BusSettings, names: Sequence[str]) -> AsyncIterator[Gate]:
    """Open a gate that requires all these schedulers."""
    async with Gate.open(
        redis=bus.redis,
        namespace=bus.namespace,
        agent="bench",
        required=list(names),
        patience_ms=PATIENCE_MS,
    ) as gate:
        yield gate


def side_of(name: str, gate: Gate, pids: dict[str, list[int]], mix: Mix, namespace: str = "") -> Contender:
    """Return a side that asks this gate."""

    async def decide(call: MixedCall) -> Answer:
        at = Caller(call.session)
        decision = await gate.decide(Call(call.tool_name, call.tool_input, TOOLS, at, call.tool_call_id))
        return to_answer(decision)

    return Contender(name, decide, pids, mix, namespace)


def lay_out(directory: Path, names: Sequence[str]) -> list[SchedulerSpec]:
    """Write a source file for each scheduler and return how to start them."""
    specs = []
    for name in names:
        module = name.replace("-", "_")
        (directory / f"{module}.py").write_text(SCHEDULER.format(name=name))
        specs.append(SchedulerSpec(f"{module}:decide", name=name, directory=directory))
    return specs


class FactMeter:
    """Bytes on the server that the facts of a block's decisions take."""

    def __init__(self, commands: RedisCommands) -> None:
        self._commands = commands
        self.found: dict[str, list[float]] = {}
        """Bytes a decision of each block, by side."""

    async def measure(self, sides: Sequence[Contender], decisions: int) -> None:
        """Measure one block of each side that leaves facts."""
        await asyncio.sleep(FACTS_S)
        for side in sides:
            if side.namespace:
                pattern = f"tg:{{{side.namespace}:*}}:facts:*"
                keys = [key.decode() async for page in find_keys(self._commands, pattern) for key in page]
                sizes = await read_sizes(self._commands, keys) if keys else []
                self.found.setdefault(side.name, []).append(sum(one or 0 for one in sizes) / decisions)


@asynccontextmanager
async def open_meter(url: str) -> AsyncIterator[FactMeter]:
    """Open a meter of the facts on this server."""
    commands = RedisCommands(url, "bench-meter", connections=1)
    try:
        yield FactMeter(commands)
    finally:
        await commands.aclose()


@asynccontextmanager
async def open_cleaner(url: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Open a function that empties the streams between two blocks; it raises TransportError."""
    commands = RedisCommands(url, "bench-cleaner", connections=1)

    async def clean() -> None:
        for pattern in STREAMS:
            async for keys in find_keys(commands, pattern):
                await empty_streams(commands, keys)

    try:
        yield clean
    finally:
        await commands.aclose()
