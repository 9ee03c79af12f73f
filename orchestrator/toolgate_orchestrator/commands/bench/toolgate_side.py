"""Toolgate as a side of a benchmark: a gate, scheduler processes as anybody runs them, and their streams."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from toolgate_bus.server.embedded import Server
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.reads import empty_streams, find_keys

from toolgate_orchestrator.commands.bench.measure import Contender
from toolgate_orchestrator.commands.bench.mix import SCHEDULER, TOOLS, Answer, Mix, MixedCall, to_answer
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.question.call import Call, Caller

PATIENCE_MS: Final = 120_000
"""Patience in milliseconds: long enough that no scheduler counts as silent because the machine is busy."""
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
        yield side_of("toolgate", gate, pids, Mix(names))


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


def side_of(name: str, gate: Gate, pids: dict[str, list[int]], mix: Mix) -> Contender:
    """Return a side that asks this gate."""

    async def decide(call: MixedCall) -> Answer:
        at = Caller(call.session)
        decision = await gate.decide(Call(call.tool_name, call.tool_input, TOOLS, at, call.tool_call_id))
        return to_answer(decision)

    return Contender(name, decide, pids, mix)


def lay_out(directory: Path, names: Sequence[str]) -> list[SchedulerSpec]:
    """Write a source file for each scheduler and return how to start them."""
    specs = []
    for name in names:
        module = name.replace("-", "_")
        (directory / f"{module}.py").write_text(SCHEDULER.format(name=name))
        specs.append(SchedulerSpec(f"{module}:decide", name=name, directory=directory))
    return specs


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
