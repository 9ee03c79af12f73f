"""Runs the bench of rules on order: LLMs that ask in one response for what depends on each other.

Real sessions under a loop, a policy with replicas of its own, a server. Each response has two calls that
produce and two that depend on one of them each, in any order. What is counted is when the tools ran. Between
sessions a bare message goes to a process and back, on the same server: so much of it is the machine's.
"""

import asyncio
import itertools
import json
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from amplifier_core import AmplifierSession, ChatResponse, ProviderInfo, TextBlock, ToolCall, ToolResult
from toolgate_bus.server.embedded import Server, find_binary
from toolgate_bus.server.guard import ServerProcess
from toolgate_bus.server.settings import BusSettings

from toolgate_orchestrator.commands.bench.floor import Floor, open_floor
from toolgate_orchestrator.commands.bench.measure import cpu_seconds, quantile
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes

NAMESPACE: Final = "bench-order"
PAIRS: Final = 2
"""Calls that produce, and calls that depend on them, in each response."""
MAX_TAKEN_S: Final = 0.02
EACH: Final = 25
"""Responses of one session: its conversation grows with each."""
Tell = Callable[[int], None]
"""Told how many responses are over."""


@dataclass(frozen=True, slots=True)
class OrderLoad:
    """One run."""

    loop: str
    responses: int
    rules: int
    sessions: int
    replicas: int


@dataclass(slots=True)
class OrderRun:
    """When the tools of one run ran, by what tells each pair: `time.perf_counter`."""

    load: OrderLoad
    ended: dict[str, float] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)
    bare: list[float] = field(default_factory=list)
    """How long bare messages took there and back, in seconds."""
    seconds: float = 0.0
    policy_cpu_s: float = 0.0

    def figures(self) -> dict[str, Any]:
        """What came of it."""
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
    """So many rules on order, of which the last is about the calls of the bench."""
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


async def run_order(load: OrderLoad, tell: Tell) -> OrderRun:
    """One run from nothing, in a directory that is gone afterwards; raises ToolgateError."""
    with tempfile.TemporaryDirectory(prefix="toolgate-") as directory:
        server = ServerProcess(Path(directory), find_binary(), appendonly=False)
        server.start()
        try:
            config = Path(directory) / "policy.json"
            config.write_text(json.dumps(write_rules(load.rules)))
            bus = BusSettings(redis=server.url, namespace=NAMESPACE)
            specs = [SchedulerSpec("policy", config)] * load.replicas
            at = Server(server.url, Path(directory), server.pid)
            async with scheduler_processes(specs, bus) as running, open_floor(at, ["order"]) as (floor, _):
                pids = [one.pid for one in running]
                return await _measure(load, server.url, pids, floor, tell)
        finally:
            server.kill()


async def _measure(load: OrderLoad, url: str, pids: Sequence[int], floor: Floor, tell: Tell) -> OrderRun:
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
            tell(over)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(load.sessions, len(parts))):
            group.create_task(work())
    run.seconds = time.perf_counter() - began
    run.policy_cpu_s = (cpu_seconds(pids) or before) - before
    return run


async def _ask_barely(floor: Floor, run: OrderRun, session: int, times: int) -> None:
    """Bare messages, after pauses as long as those of the tools."""
    rest = random.Random(session)
    for _ in range(times):
        await asyncio.sleep(rest.random() * MAX_TAKEN_S)
        began = time.perf_counter()
        await floor.ask()
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
