"""Calls of one response that depend on each other: calls that ran early, were denied, and the time between.

    python tests/benchmarks/order.py --responses 1000

Real sessions under a loop, `policy` with rules on order, a server. Each response has two calls that take up
to 20 ms, and two that may run only after one of these each, in any order. Three rows: loop-streaming and
loop-reactive with 10 rules, loop-streaming with 1,000 rules and a quarter of the responses. "Began after" is
the time from the end of one call to the beginning of the other; "a bare message" the time to another process
and back on the same server, in the same run. The exit code is 1 if a call ran early, or was denied that could
have run.
"""

import argparse
import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from amplifier_core import AmplifierSession, ChatResponse, ProviderInfo, TextBlock, ToolCall, ToolResult
from harness import Columns, Report, count, options, start
from toolgate_bus.server.embedded import private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_orchestrator.commands.bench.floor import open_floor
from toolgate_orchestrator.commands.bench.measure import Contender, cpu_seconds, quantile
from toolgate_orchestrator.commands.host.kernel_threads import let_kernel_threads_go
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes

NAMESPACE = "bench-order"
PAIRS = 2
"""Calls that produce, and calls that depend on them, in each response."""
MAX_TAKEN_S = 0.02
EACH = 25
"""Responses of one session: its conversation grows with each."""
FEW, MANY = 10, 1000
"""Numbers of rules."""
OPTIONS = options(__doc__)
OPTIONS.add_argument("-n", "--responses", type=count, default=10_000, help="of each loop (default: 10000)")
OPTIONS.add_argument("-s", "--sessions", type=count, default=1, help="sessions at a time (default: 1)")
OPTIONS.add_argument("-r", "--replicas", type=count, default=1, help="replicas of policy (default: 1)")


@dataclass(frozen=True, slots=True)
class OrderLoad:
    """Load of one row."""

    loop: str
    responses: int
    rules: int
    sessions: int
    replicas: int


@dataclass(slots=True)
class OrderRun:
    """Times at which the tools of one row ran, by pair (`time.perf_counter`)."""

    load: OrderLoad
    ended: dict[str, float] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)
    bare: list[float] = field(default_factory=list)
    """Seconds of bare messages, there and back."""
    seconds: float = 0.0
    policy_cpu_s: float = 0.0

    def figures(self) -> dict[str, Any]:
        """Return the figures for `--json`."""
        gaps = sorted(
            self.began[pair] - self.ended.get(pair, float("inf")) for pair in self.began if pair in self.ended
        )
        calls = self.load.responses * PAIRS
        return {
            "loop": self.load.loop,
            "rules": self.load.rules,
            "responses": self.load.responses,
            "ran_early": sum(gap < 0 for gap in gaps) + len(self.began.keys() - self.ended.keys()),
            "denied": calls - len(self.began),
            "not_produced": calls - len(self.ended),
            "gap_ms": _figures([max(0.0, gap) for gap in gaps]),
            "bare_ms": _figures(sorted(self.bare)),
            "seconds": round(self.seconds, 2),
            "policy_cpu_us": round(self.policy_cpu_s / (2 * calls) * 1e6, 1),
        }


def _figures(ordered_s: Sequence[float]) -> dict[str, float]:
    late = [one * 1000 for one in ordered_s] or [0.0]
    return {
        "median": round(quantile(late, 0.5), 2),
        "p99": round(quantile(late, 0.99), 2),
        "max": round(late[-1], 2),
    }


def write_rules(count: int) -> dict[str, Any]:
    """Return this number of rules on order; the last is about the calls of the benchmark."""
    others = [
        {"tools": f"other-{number}", "after": {"tool": f"before-{number}"}} for number in range(count - 1)
    ]
    needed = {"tool": "produce", "same": {"$.pair": "$.pair"}}
    return {"rules": [*others, {"tools": "depend", "after": needed, "wait_s": 60}]}


class _PairLlm:
    """Asks for pairs in each response; in the end, says one word."""

    name: ClassVar[str] = "pairs"

    def __init__(self, session: int, responses: int) -> None:
        self._random = random.Random(session)
        self._responses = iter([self._response(f"{session}-{number}") for number in range(responses)])

    def _response(self, name: str) -> list[ToolCall]:
        calls = [
            ToolCall(id=f"{tool}-{name}-{pair}", name=tool, arguments=self._arguments(f"{name}-{pair}", tool))
            for pair, tool in itertools.product(range(PAIRS), ("produce", "depend"))
        ]
        self._random.shuffle(calls)
        return calls

    def _arguments(self, pair: str, tool: str) -> dict[str, Any]:
        return {"pair": pair, **({"s": self._random.random() * MAX_TAKEN_S} if tool == "produce" else {})}

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name="Pairs")

    async def list_models(self) -> list[Any]:
        return []

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return list(response.tool_calls or [])

    async def stream(self, request: Any, **options: Any) -> AsyncIterator[Any]:
        del request, options
        calls = next(self._responses, None)
        if calls is None:
            yield {"type": "text.delta", "text": "done"}
            return
        for call in calls:
            yield call

    async def complete(self, request: Any, **options: Any) -> ChatResponse:
        calls = [event async for event in self.stream(request, **options) if isinstance(event, ToolCall)]
        return ChatResponse(content=[TextBlock(text="done")], tool_calls=calls or None)


class _Produce:
    name = "produce"
    description = "Takes a moment"
    input_schema: ClassVar[dict[str, Any]] = {"type": "object"}

    def __init__(self, run: OrderRun) -> None:
        self._run = run

    async def execute(self, arguments: dict[str, Any]) -> ToolResult:
        await asyncio.sleep(arguments["s"])
        self._run.ended[arguments["pair"]] = time.perf_counter()
        return ToolResult(success=True, output="done")


class _Depend(_Produce):
    name = "depend"
    description = "Needs what was produced"

    async def execute(self, arguments: dict[str, Any]) -> ToolResult:
        self._run.began[arguments["pair"]] = time.perf_counter()
        return ToolResult(success=True, output="done")


async def run_order(load: OrderLoad, tell: Callable[[str], None]) -> OrderRun:
    """Run one row on a server of its own; raises ToolgateError."""
    with private_server() as server:
        config = server.directory / "policy.json"
        config.write_text(json.dumps(write_rules(load.rules)))
        bus = BusSettings(redis=server.url, namespace=NAMESPACE)
        specs = [SchedulerSpec("policy", config)] * load.replicas
        async with scheduler_processes(specs, bus) as running, open_floor(server, ["order"]) as floor:
            return await _measure(load, server.url, [one.pid for one in running], floor, tell)


async def _measure(
    load: OrderLoad, url: str, pids: Sequence[int], floor: Contender, tell: Callable[[str], None]
) -> OrderRun:
    run, before = OrderRun(load), cpu_seconds(pids) or 0.0
    began = time.perf_counter()
    parts = list(_parts(load.responses))
    waiting = iter(enumerate(parts))
    over = 0

    async def work() -> None:
        nonlocal over
        for session, responses in waiting:
            await _live(load, url, run, session, responses)
            await _ask_barely(floor, run, session, responses)
            over += responses
            tell(f"{load.loop}, {load.rules} rules: {over} of {load.responses} responses")

    async with asyncio.TaskGroup() as group:
        for _ in range(min(load.sessions, len(parts))):
            group.create_task(work())
    run.seconds = time.perf_counter() - began
    run.policy_cpu_s = (cpu_seconds(pids) or before) - before
    return run


async def _ask_barely(floor: Contender, run: OrderRun, session: int, times: int) -> None:
    """Send bare messages, after pauses as long as those of the tools."""
    rest = random.Random(session)
    for call in floor.mix.take(times):
        await asyncio.sleep(rest.random() * MAX_TAKEN_S)
        began = time.perf_counter()
        await floor.decide(call)
        run.bare.append(time.perf_counter() - began)


def _parts(responses: int) -> Iterator[int]:
    while responses > 0:
        yield min(EACH, responses)
        responses -= EACH


async def _live(load: OrderLoad, url: str, run: OrderRun, session: int, responses: int) -> None:
    asking = {"redis": url, "namespace": NAMESPACE, "required": ["policy"], "patience_ms": 30_000}
    plan = {
        "session": {"orchestrator": load.loop, "context": "context-simple"},
        "orchestrator": {"config": {"max_iterations": -1, "toolgate": asking}},
        "providers": [],
        "tools": [],
    }
    async with AmplifierSession(plan) as agent:
        await agent.coordinator.mount("providers", _PairLlm(session, responses), name=_PairLlm.name)
        for tool in (_Produce(run), _Depend(run)):
            await agent.coordinator.mount("tools", tool, name=tool.name)
        await agent.execute("work")


async def main(given: argparse.Namespace, report: Report) -> int:
    """Run all rows and print them; the exit code is 1 if a call ran early or was denied."""
    report.show_machine()
    loads = [
        OrderLoad("loop-streaming", given.responses, FEW, given.sessions, given.replicas),
        OrderLoad("loop-reactive", given.responses, FEW, given.sessions, given.replicas),
        OrderLoad("loop-streaming", max(1, given.responses // 4), MANY, given.sessions, given.replicas),
    ]
    rows = []
    for load in loads:
        rows.append((await run_order(load, report.tell)).figures())
        report.add(rows[-1])
    report.show_beside(LINES, [row["loop"] for row in rows], rows)
    return 1 if any(row["ran_early"] or row["denied"] or row["not_produced"] for row in rows) else 0


LINES: Columns = {
    "rules": lambda row: row["rules"],
    "responses": lambda row: row["responses"],
    "ran early": lambda row: row["ran_early"],
    "denied that could have run": lambda row: row["denied"],
    "began after, median": lambda row: f"{row['gap_ms']['median']:g} ms",
    "began after, p99": lambda row: f"{row['gap_ms']['p99']:g} ms",
    "began after, longest": lambda row: f"{row['gap_ms']['max']:g} ms",
    "a bare message, median": lambda row: f"{row['bare_ms']['median']:g} ms",
    "a bare message, p99": lambda row: f"{row['bare_ms']['p99']:g} ms",
    "a bare message, longest": lambda row: f"{row['bare_ms']['max']:g} ms",
    "CPU of policy, a call": lambda row: f"{row['policy_cpu_us']:g} µs",
}


if __name__ == "__main__":
    try:
        start(OPTIONS, main)
    finally:
        let_kernel_threads_go()
