"""One process of the bench's fleet: many agents in one event loop, as `toolgate run` makes them.

`python -m toolgate_orchestrator.commands.bench.fleet_worker`, and on stdin its `Work` as a line of JSON.
It sets up its sessions and prints `ready`, waits for another line, runs all agents at once and prints what it
counted, waits again, and leaves. It ends with its stdin, and with it whoever started it.
"""

import asyncio
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import typer
from amplifier_core import AmplifierSession, HookResult
from toolgate_bus.commands.options import run_async
from toolgate_bus.protocol.events import Decision

from toolgate_orchestrator.commands.bench.fleet_agents import (
    Work,
    delegates,
    plan_of,
    turns_of,
    turns_of_child,
)
from toolgate_orchestrator.commands.host.kernel_threads import let_kernel_threads_go
from toolgate_orchestrator.commands.host.sub_agents import let_delegate

GOLDEN: Final = 0.618034
"""Multiples of it, without their whole parts, are spread evenly, however many there are."""


class Agents:
    """The agents of one process, and what they count."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._sessions: list[Any] = []
        self._decided: dict[str, float] = {}
        self._whys: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._results: Counter[str] = Counter()

    async def set_up(self) -> None:
        """Make every session."""
        for number in range(self._work.first, self._work.first + self._work.agents):
            session = AmplifierSession(plan_of(self._work, number), session_id=f"{self._work.row}-{number}")
            self._sessions.append(session)
            let_delegate(session, lambda child: self._listen(child, turns_of_child))
            self._listen(session, partial(turns_of, self._work, number))
            await session.initialize()

    async def run(self) -> dict[str, Any]:
        """Run all agents at once; gives what was counted."""
        began = time.perf_counter()
        async with asyncio.timeout(self._work.limit_s):
            taken = await asyncio.gather(
                *(
                    self._time_turn(number, session)
                    for number, session in enumerate(self._sessions, self._work.first)
                )
            )
        wall = time.perf_counter() - began
        return {
            "wall_s": wall,
            "decided": self._decided,
            "whys": self._whys,
            "calls": self._calls.total(),
            "answered": sum(1 for id_, count in self._calls.items() if self._results[id_] == count == 1),
            "alike_s": [
                seconds for number, seconds in enumerate(taken, self._work.first) if not delegates(number)
            ],
        }

    async def close(self) -> None:
        """Close every session."""
        for session in self._sessions:
            await session.cleanup()

    async def _time_turn(self, number: int, session: Any) -> float:
        # Agents whose LLMs take as long as each other's would else all ask at the same moments.
        await asyncio.sleep(self._work.think_s * (number * GOLDEN % 1.0))
        began = time.perf_counter()
        await session.execute("Add up.")
        return time.perf_counter() - began

    def _listen(self, session: Any, turns: Callable[[], list[dict[str, Any]]]) -> None:
        """Count a session's decisions, calls and results; it need not be set up yet.

        `turns` tells what its LLM says: when its turn begins, so that this counts as no agent's memory.
        """
        coordinator = session.coordinator
        kept: list[Any] = []

        async def subscribe_to_gate(event: str, data: dict[str, Any]) -> HookResult:
            coordinator.get("orchestrator").gate.subscribe(self._on_decision)
            coordinator.get("providers")["scripted"].add_turns(turns())
            kept.append(coordinator.get("context"))
            return HookResult()

        async def count_calls(event: str, data: dict[str, Any]) -> HookResult:
            for message in await kept.pop().get_messages():
                self._calls.update(call["id"] for call in message.get("tool_calls") or ())
                if message["role"] == "tool":
                    self._results[message["tool_call_id"]] += 1
            return HookResult()

        coordinator.hooks.register("execution:start", subscribe_to_gate, name="bench-fleet")
        coordinator.hooks.register("execution:end", count_calls, name="bench-fleet")

    def _on_decision(self, decision: Decision) -> None:
        self._decided[decision.id] = decision.seconds
        self._whys[decision.why] += 1


def resident_bytes() -> int | None:
    """What this process has in memory, its garbage collected (Linux); None elsewhere."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


async def _main() -> None:
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    work = Work(**json.loads(await lines.readline()))
    # One agent that is not counted: what it loads stays, and is no other agent's.
    row = f"{work.row}-warm-up-{work.first}"
    one = Agents(replace(work, row=row, first=0, agents=1, think_s=0.0))
    await one.set_up()
    await one.run()
    await one.close()
    before = resident_bytes()
    agents = Agents(work)
    await agents.set_up()
    await _tell_parent(lines, {"event": "ready"})
    counted = await agents.run()
    after = resident_bytes()
    grown = None if before is None or after is None else after - before
    await _tell_parent(lines, {"event": "done", "grown": grown, **counted})
    await agents.close()


async def _tell_parent(lines: asyncio.StreamReader, told: dict[str, Any]) -> None:
    """Say it to the bench, and wait for its word."""
    print(json.dumps(told), flush=True)  # noqa: T201 - the bench reads it
    if not await lines.readline():
        sys.exit(1)  # whoever started us is gone


if __name__ == "__main__":
    with suppress(typer.Exit):  # told to end
        run_async(_main)
    let_kernel_threads_go()
