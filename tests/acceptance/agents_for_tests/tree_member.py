"""An agent of a tree, in a process of its own: a whole session that pays for calls until its script ends.

    python tree_member.py URL NAMESPACE JOURNAL SESSION ROOT TURNS

ROOT is the session at the root of the tree, in another process; `-` for the root itself. Each of the TURNS
makes four calls of `pay`, which costs at most 0.40. Each is noted in the journal (on disk, by fsync) before
it begins and after it has ended. Prints what the LLM was told, as JSON, one result a line.
"""

import asyncio
import json
import random
import sys

from amplifier_core import AmplifierSession, ToolResult
from spender import Journal
from toolgate_orchestrator.turn.calls.tool_call import current_call

MOST = 400_000
"""Micro-units."""


class Pay:
    """A tool that costs something, and says how much."""

    name, description, input_schema = "pay", "costs money", {"type": "object"}

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def execute(self, _arguments: object) -> ToolResult:
        """Take a while, and tell the cost."""
        call = current_call()
        decision = call.decision if call is not None else ""
        self._journal.write("begin", decision, self.name)
        await asyncio.sleep(random.expovariate(100))
        cost = random.randint(0, MOST)
        self._journal.write("end", decision, self.name, cost)
        return ToolResult(success=True, output={"cost_usd": cost / 1_000_000})


async def main(url: str, namespace: str, path: str, session_id: str, root: str, turns: str) -> None:
    """Run the one turn of the session."""
    place = {"root_session": root, "parent_session": root, "lineage": ["boss"]} if root != "-" else {}
    toolgate = {"redis": url, "namespace": namespace, "required": ["cost-aware"], "patience_ms": 20_000}
    script = [{"tool_calls": [{"name": "pay"}] * 4} for _ in range(int(turns))]
    plan = {
        "session": {
            "orchestrator": {
                "module": "loop-events",
                "config": {"max_iterations": -1, "toolgate": toolgate | place | {"agent": session_id}},
            },
            "context": "context-simple",
        },
        "providers": [{"module": "provider-scripted", "config": {"turns": script}}],
    }
    async with AmplifierSession(plan, session_id=session_id) as session:
        tool = Pay(Journal(path))
        await session.coordinator.mount("tools", tool, name=tool.name)
        await session.execute("go")
        for message in await session.coordinator.get("context").get_messages():
            if message["role"] == "tool":
                print(json.dumps(message["content"]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
