"""What the seeds say an event carries, as one table: a turn with a call of a tool, under each loop."""

from collections.abc import Mapping
from typing import Any

import pytest
from four_loops import LOOPS

pytestmark = pytest.mark.pure

USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
ANSWER = "final " * 100
GIVEN = {"path": "."}
RESULT = {"success": True, "output": ["a.txt"], "error": None}
ASKED = [{"role": "user", "content": "received"}]

FIELDS: dict[str, list[dict[str, Any]]] = {
    # by event: what each of its occurrences in the turn carries, among other things
    "prompt:submit": [{"prompt": "received"}],
    "provider:request": [
        {"provider": "scripted", "iteration": 1, "model": "scripted-1", "messages": ASKED},
        {"provider": "scripted", "iteration": 2, "model": "scripted-1"},
    ],
    "provider:response": [
        {"provider": "scripted", "tool_calls": True, "usage": USAGE},
        {"provider": "scripted", "tool_calls": False, "usage": USAGE},
    ],
    "tool:pre": [{"tool_name": "ls", "tool_input": GIVEN, "input": GIVEN}],
    "tool:post": [{"tool_name": "ls", "tool_input": GIVEN, "result": RESULT, "tool_result": RESULT}],
    "prompt:complete": [{"response": ANSWER, "response_preview": ANSWER[:200], "length": len(ANSWER)}],
    "orchestrator:complete": [{"turn_count": 2, "status": "success", "iterations": 2, "tokens": 14}],
}


def part_of(told: Any, named: Any) -> Any:
    """As much of what was told as is named."""
    if isinstance(named, Mapping) and isinstance(told, Mapping):
        return {key: part_of(told[key], value) for key, value in named.items()}
    return told


@pytest.mark.parametrize("event", FIELDS)
@pytest.mark.parametrize("loop", LOOPS)
async def test_an_event_carries_what_the_documents_say(
    agent: Any, tool: Any, calls: Any, loop: str, event: str
) -> None:
    turns = [{**calls(("ls", GIVEN)), "usage": USAGE}, {"text": ANSWER, "usage": USAGE}]
    async with agent(turns, tools=[tool("ls", lambda _: ["a.txt"])], loop=loop) as a:
        await a.ask("received")
        told = a.told(event)
    assert [part_of(one, named) for one, named in zip(told, FIELDS[event], strict=True)] == FIELDS[event]
    if event == "provider:response":
        assert told[1]["response"]["content"][0]["text"] == ANSWER
