"""An agent that lives over the turn of a month and does what it is told, a line at a time.

    python month_spender.py URL NAMESPACE TEAM

    pay N        N calls of tools and requests to an LLM, each to its end
    open N       N calls that are let through and not over yet
    close        what was open ends
Each is answered by a line of JSON: what the agent knows that it has spent since the last, in micro-units.
"""

import asyncio
import json
import random
import sys

from toolgate_orchestrator import Call, Caller, Gate

PRICES = {"search": 400_000, "crawl": 150_000, "notes": 0}
TOKENS = {"input_tokens": 1000, "output_tokens": 200}
MODEL = {"provider": "here", "model": "small"}
A_REQUEST = 1000 * 3 + 200 * 15  # micro-units, by the prices per million tokens


class Agent:
    """One agent of a team."""

    def __init__(self, gate: Gate, team: str) -> None:
        self.gate, self.team = gate, team
        self.chance = random.Random(team)
        self.open: list[tuple[str, str, int]] = []

    async def pay(self, calls: int) -> int:
        """Calls to their ends."""
        spent = 0
        for number in range(calls):
            spent += await (self._think() if number % 3 == 0 else self._call())
        return spent

    async def begin(self, calls: int) -> int:
        """Calls that go on."""
        for _ in range(calls):
            made = await self._decide("search", {})
            self.open.append((made.id, made.tool_name, self.chance.randrange(PRICES["search"])))
        return 0

    async def close(self) -> int:
        """Their ends."""
        spent = sum(self._end(*one) for one in self.open)
        self.open.clear()
        return spent

    async def _call(self) -> int:
        tool = self.chance.choice(list(PRICES))
        made = await self._decide(tool, {})
        if self.chance.random() < 0.2:
            self.gate.note("tool:unused", {"decision_id": made.id, "tool": tool})
            return 0
        return self._end(made.id, tool, self.chance.randrange(2 * PRICES[tool]) if PRICES[tool] else 0)

    def _end(self, decision: str, tool: str, cost: int) -> int:
        told = {"decision_id": decision, "tool": tool, "success": True, "seconds": 0.1, "cost": cost}
        self.gate.note("tool:post", told)
        return cost

    async def _think(self) -> int:
        asked = {**MODEL, "input_tokens": 1000, "max_output_tokens": 200, "purpose": "answer"}
        made = await self._decide("llm:request", asked)
        self.gate.note("usage", {"decision_id": made.id, **MODEL, **TOKENS})
        return A_REQUEST

    async def _decide(self, tool: str, arguments: dict[str, object]):
        who = Caller(f"{self.team}-1", f"of-{self.team}", labels={"team": self.team})
        tools = [*PRICES, "llm:request"]
        call = Call(tool, arguments, tools, who, is_request=tool == "llm:request")
        async with asyncio.timeout(60):
            while True:  # right after the clock was moved everybody looks gone
                made = await self.gate.decide(call)
                if made.allowed:
                    return made


async def main(url: str, namespace: str, team: str) -> None:
    """Do what the lines of stdin say."""
    kinds = ["*", "llm:*"]
    required = {"cost-aware": {"tools": kinds}}
    async with Gate.open(
        redis=url, namespace=namespace, required=("cost-aware",), schedulers=required, patience_ms=9000
    ) as gate:
        agent = Agent(gate, team)
        while line := await asyncio.to_thread(sys.stdin.readline):
            what, *number = line.split()
            spent = await {"pay": agent.pay, "open": agent.begin, "close": agent.close}[what](
                *map(int, number)
            )
            print(json.dumps({"spent": spent}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
