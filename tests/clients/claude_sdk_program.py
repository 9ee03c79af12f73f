"""A user's program on the Claude Agent SDK, gated, with the CLI that the SDK brings: `… PROMPT`.

It prints one JSON object: its last words, and what its person was asked, who allows what says `maybe`.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    query,
)
from toolgate_orchestrator import Guard
from toolgate_orchestrator.contrib.claude_agent import gate, watch


async def main(prompt: str) -> None:
    """One conversation."""
    asked: list[dict[str, Any]] = []
    over = asyncio.Event()

    async def person(tool: str, arguments: dict[str, Any], context: Any) -> Any:
        asked.append(arguments)
        allows = "maybe" in json.dumps(arguments)
        return PermissionResultAllow() if allows else PermissionResultDeny(message="The person says no.")

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": prompt}}
        await over.wait()

    answer = ""
    with Guard(agent="clerk", required=["by_word"]) as guard:
        plain = ClaudeAgentOptions(
            can_use_tool=person, allowed_tools=["Bash(touch:*)", "Agent"], setting_sources=[]
        )
        options = gate(plain, guard)
        async for message in watch(query(prompt=prompts(), options=options), options):
            if isinstance(message, ResultMessage):
                answer = message.result or ""
                over.set()
    print(json.dumps({"answer": answer, "asked": asked}))


asyncio.run(main(sys.argv[1]))
