"""Time of a turn on loop-reactive beside loop-basic, with an LLM and tools that take their time.

    python tests/benchmarks/reactive_loop.py

Both kinds of waiting are simulated; the loop makes the difference. Rounds alternate, so that both loops see
the same machine.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, ClassVar

from amplifier_core import AmplifierSession, ChatResponse, ProviderInfo, TextBlock, ToolCall, ToolResult
from harness import Report, options, start

OPTIONS = options(__doc__)
OPTIONS.add_argument("--rounds", type=int, default=3, help="turns on each loop (default: 3)")


@dataclass(frozen=True, slots=True)
class TurnLoad:
    """One turn: the LLM writes calls one after another, then answers."""

    tools_s: tuple[float, ...] = (0.5, 0.4, 0.3, 0.2, 0.1)
    """Seconds that the tool runs for each call, in the order of the stream."""
    gap_s: float = 0.1
    """Seconds in which the LLM writes one call."""
    chain: bool = False
    """Each call needs the result of the one before: one request with references, or one for each call."""

    def requests(self, loop: str) -> list[list[ToolCall]]:
        """Return the calls of each request, as an LLM has to write them for this loop."""
        calls = [self._call(number, seconds) for number, seconds in enumerate(self.tools_s)]
        if self.chain and loop == "loop-basic":
            return [
                [ToolCall(id=call.id, name=call.name, arguments={"s": call.arguments["s"]})] for call in calls
            ]
        return [calls]

    def _call(self, number: int, seconds: float) -> ToolCall:
        arguments: dict[str, Any] = {"s": seconds}
        if self.chain:
            arguments["_outputPath"] = f"†state.r{number}"
            arguments |= {"after": f"†state.r{number - 1}"} if number else {}
        return ToolCall(id=f"c{number}", name="work", arguments=arguments)


@dataclass(frozen=True, slots=True)
class LoopComparison:
    """Median seconds of the same turn on both loops."""

    reactive_s: float
    basic_s: float

    @property
    def ratio(self) -> float:
        """Time of the reactive turn ÷ that of the basic one."""
        return self.reactive_s / self.basic_s


@dataclass
class SlowLlm:
    """Writes the calls of each request, one after another; in the end, one word."""

    _requests: list[list[ToolCall]]
    _gap_s: float
    name: ClassVar[str] = "slow"

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name="Slow LLM")

    async def list_models(self) -> list[Any]:
        return []

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return list(response.tool_calls or [])

    async def stream(self, request: Any, **options: Any) -> AsyncIterator[Any]:
        if not self._requests:
            yield {"type": "text.delta", "text": "done"}
            return
        for call in self._requests.pop(0):
            await asyncio.sleep(self._gap_s)
            yield call

    async def complete(self, request: Any, **options: Any) -> ChatResponse:
        calls = [event async for event in self.stream(request, **options) if isinstance(event, ToolCall)]
        return ChatResponse(content=[TextBlock(text="done")], tool_calls=calls or None)


class WorkTool:
    """Takes its time."""

    name = "work"
    description = "Works for a while"
    input_schema: ClassVar[dict[str, Any]] = {"type": "object"}

    async def execute(self, arguments: dict[str, Any]) -> ToolResult:
        await asyncio.sleep(arguments["s"])
        return ToolResult(success=True, output="done")


async def compare(load: TurnLoad, rounds: int) -> LoopComparison:
    """Run the turn on both loops."""
    taken: dict[str, list[float]] = {"loop-reactive": [], "loop-basic": []}
    for _ in range(rounds):
        for loop, seconds in taken.items():
            seconds.append(await run_turn(loop, load))
    return LoopComparison(*map(statistics.median, taken.values()))


async def run_turn(loop: str, load: TurnLoad) -> float:
    """Return the seconds of one turn, without the session's own beginning and end."""
    plan = {"session": {"orchestrator": loop, "context": "context-simple"}, "providers": [], "tools": []}
    async with AmplifierSession(plan) as session:
        llm = SlowLlm(load.requests(loop), load.gap_s)
        await session.coordinator.mount("providers", llm, name=SlowLlm.name)
        await session.coordinator.mount("tools", WorkTool(), name=WorkTool.name)
        began = time.perf_counter()
        await session.execute("work")
        return time.perf_counter() - began


async def main(given: argparse.Namespace, report: Report) -> None:
    """Compare a turn of independent calls, and one of calls that need each other."""
    report.show_machine()
    for what, load in (("independent calls", TurnLoad()), ("each needs the last", TurnLoad(chain=True))):
        report.tell(what)
        found = await compare(load, given.rounds)
        figures = {"basic_s": round(found.basic_s, 3), "reactive_s": round(found.reactive_s, 3)}
        row = {"turn": what, **figures, "ratio": round(found.ratio, 2)}
        report.add(row)
        words = "{turn:<20} loop-basic {basic_s} s, loop-reactive {reactive_s} s, ratio {ratio}"
        report.say(words.format(**row))


if __name__ == "__main__":
    start(OPTIONS, main)
