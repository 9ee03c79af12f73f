"""Agents that think: many whole sessions in one process, turn after turn, until their LLM is denied to them.

    python thinker.py URL NAMESPACE LLM JOURNAL FIRST SESSIONS TOOLS

LLM is the URL of an OpenAI-compatible server, FIRST the number of the first session, TOOLS `pay` or `none`.
Sessions run under all four loops in turn. Prints its orchestrator id once it is on the bus, then for each
session that is over one line of JSON. Calls of `pay` are noted in the journal before they begin and after
they have ended.
"""

import asyncio
import json
import os
import random
import sys
import time
from typing import Any

from amplifier_core import AmplifierSession, HookResult, ToolResult
from spender import Journal
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.turn.calls.tool_call import current_call

LOOPS = ("loop-basic", "loop-streaming", "loop-events", "loop-reactive")
MODELS = ("large", "small")
MOST = 20_000
"""Micro-units of a call of `pay`."""
MAX_ANSWER = 1000
"""Tokens."""
DENIED = "The language model was not asked"
MAX_TURNS = 2000


class Pay:
    """A tool that costs something, and says how much."""

    name, description, input_schema = "pay", "costs money", {"type": "object"}

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def execute(self, _arguments: object) -> ToolResult:
        """Take a moment, and tell the cost."""
        call = current_call()
        decision = call.decision if call is not None else ""
        self._journal.write("begin", decision, self.name)
        await asyncio.sleep(random.expovariate(200))
        cost = random.randint(0, MOST)
        self._journal.write("end", decision, self.name, cost)
        return ToolResult(success=True, output={"cost_usd": cost / 1_000_000})


def plan_of(url: str, namespace: str, llm: str, number: int) -> dict[str, Any]:
    """The mount plan of one session."""
    toolgate = {
        "redis": url,
        "namespace": namespace,
        "required": ["cost-aware"],
        "schedulers": {"cost-aware": {"tools": ["*", "llm:*"]}},
        "patience_ms": 30_000,
        "agent": f"thinker-{number % 4}",
    }
    provider = {
        "base_url": llm,
        "api_key": f"key-of-{number}",
        "model": MODELS[number // 4 % 2],
        "max_output_tokens": MAX_ANSWER,
        "max_retries": 0,
        "extra_headers": {"x-session": f"s-{number}"},
    }
    loop = {"module": LOOPS[number % 4], "config": {"max_iterations": -1, "toolgate": toolgate}}
    return {
        "session": {"orchestrator": loop, "context": "context-simple"},
        "providers": [{"module": "provider-openai-compatible", "config": provider}],
    }


async def think(plan: dict[str, Any], number: int, tool: Pay | None) -> None:
    """One session until it is denied its LLM; says how it ended."""
    told: list[float] = []
    statuses: list[str] = []

    async def denied(_event: str, data: dict[str, Any]) -> HookResult:
        if data["tool_name"] == "llm:request":
            told.append(time.time())
        return HookResult()

    async def ended(_event: str, data: dict[str, Any]) -> HookResult:
        statuses.append(data.get("status"))
        return HookResult()

    turns, answer, other = 0, "", []
    async with AmplifierSession(plan, session_id=f"s-{number}") as session:
        session.coordinator.hooks.register("policy:violation", denied, name="denied")
        session.coordinator.hooks.register("orchestrator:complete", ended, name="ended")
        if tool is not None:
            await session.coordinator.mount("tools", tool, name=tool.name)
        while DENIED not in answer and turns < MAX_TURNS:
            turns += 1
            try:
                answer = await session.execute(f"Turn {turns}: go on.")
            except RuntimeError as error:  # a loop's way to tell that its LLM failed
                other.append(str(error))
    loop = plan["session"]["orchestrator"]["module"]
    line = {"session": f"s-{number}", "loop": loop, "turns": turns, "answer": answer, "denied": told}
    print(json.dumps({**line, "status": statuses[-1], "other": other}), flush=True)


async def main(*words: str) -> None:
    """Run the sessions until each is denied."""
    url, namespace, llm, path, first, sessions, tools = words
    tool = Pay(Journal(path)) if tools == "pay" else None
    async with Gate.open(
        redis=url, namespace=namespace, required=("cost-aware",), patience_ms=30_000
    ) as gate:
        print(gate._client.bus.orchestrator, flush=True)
        numbers = range(int(first), int(first) + int(sessions))
        await asyncio.gather(*(think(plan_of(url, namespace, llm, one), one, tool) for one in numbers))
        print(json.dumps({"over": os.getpid()}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
