"""How much shorter a turn is when its calls start while the LLM still speaks.

The same turn on `loop-reactive` and on `loop-basic`, in real sessions: an LLM that takes its time
over each call, and tools that take theirs. The rounds alternate, so that both loops see the same
machine. Both kinds of waiting are simulated; what is measured is what the loop makes of them.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, ClassVar

from amplifier_core import AmplifierSession, ChatResponse, ProviderInfo, TextBlock, ToolCall, ToolResult


@dataclass(frozen=True, slots=True)
class TurnLoad:
    """One turn: the LLM writes calls one after another, then answers."""

    tools_s: tuple[float, ...] = (0.5, 0.4, 0.3, 0.2, 0.1)
    """What the tool takes to run each call, in the order of the stream."""
    gap_s: float = 0.1
    """What the LLM takes to write one call."""
    chain: bool = False
    """Each call needs the result of the one before: one request with references, or one for each call."""

    def requests(self, loop: str) -> list[list[ToolCall]]:
        """The calls of each request, as an LLM has to write them for this loop."""
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
    """What the same turn took on both loops: medians, in seconds."""

    reactive_s: float
    basic_s: float

    @property
    def ratio(self) -> float:
        """The reactive turn as a part of the other; below one is shorter."""
        return self.reactive_s / self.basic_s


@dataclass
class _SlowLlm:
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
        del request, options
        if not self._requests:
            yield {"type": "text.delta", "text": "done"}
            return
        for call in self._requests.pop(0):
            await asyncio.sleep(self._gap_s)
            yield call

    async def complete(self, request: Any, **options: Any) -> ChatResponse:
        calls = [event async for event in self.stream(request, **options) if isinstance(event, ToolCall)]
        return ChatResponse(content=[TextBlock(text="done")], tool_calls=calls or None)


class _WorkTool:
    """A tool that takes its time."""

    name = "work"
    description = "Works for a while"
    input_schema: dict[str, Any] = {"type": "object"}  # noqa: RUF012 - the kernel's protocol; nobody writes it

    async def execute(self, arguments: dict[str, Any]) -> ToolResult:
        await asyncio.sleep(arguments["s"])
        return ToolResult(success=True, output="done")


async def compare(load: TurnLoad | None = None, rounds: int = 3) -> LoopComparison:
    """Run the turn on both loops, `rounds` times each."""
    taken: dict[str, list[float]] = {"loop-reactive": [], "loop-basic": []}
    for _ in range(rounds):
        for loop, seconds in taken.items():
            seconds.append(await _turn(loop, load or TurnLoad()))
    return LoopComparison(*map(statistics.median, taken.values()))


async def _turn(loop: str, load: TurnLoad) -> float:
    """Seconds of one turn, the session's own beginning and end left out."""
    plan = {"session": {"orchestrator": loop, "context": "context-simple"}, "providers": [], "tools": []}
    async with AmplifierSession(plan) as session:
        await session.coordinator.mount(
            "providers", _SlowLlm(load.requests(loop), load.gap_s), name=_SlowLlm.name
        )
        await session.coordinator.mount("tools", _WorkTool(), name=_WorkTool.name)
        began = time.perf_counter()
        await session.execute("work")
        return time.perf_counter() - began
