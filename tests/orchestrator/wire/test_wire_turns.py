"""Two turns with parallel calls, under every loop, over every API, as the real SDKs send them.

The servers refuse what the real ones refuse. So what is stored of a turn must come back as each API wants
it, out of the places in a stored message where each provider looks.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from four_loops import LOOPS
from openai_client import forget_environment
from strict_server import Says
from wire_world import APIS, open_wire

pytestmark = pytest.mark.system

LOOK = (("call_1", "look", {"at": "the door"}), ("call_2", "look", {"at": "the window"}))
AGAIN = (("call_3", "look", {"at": "the roof"}), ("call_4", "look", {}))
SCRIPT = (
    Says("I look around.", LOOK, thinking="A door and a window."),
    Says("Both are shut.", thinking="Both answered."),
    Says("", AGAIN, thinking="Higher up."),
    Says("", (("call_5", "look", {"at": "the sky"}),), thinking="Higher still."),
    Says("Blue.", thinking="At last."),
)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)


@pytest.mark.parametrize(
    ("streams", "thinks"),
    [
        pytest.param(True, True, id="stream-thinking", marks=pytest.mark.pure),
        pytest.param(False, True, id="whole-thinking", marks=pytest.mark.system),
        pytest.param(True, False, id="stream-plain", marks=pytest.mark.system),
        pytest.param(False, False, id="whole-plain", marks=pytest.mark.system),
    ],
)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("api", APIS)
async def test_two_turns_with_calls_side_by_side_are_accepted(
    agent: Any, tool: Any, api: str, loop: str, streams: bool, thinks: bool
) -> None:
    tools = [tool("look", lambda given: f"{given.get('at', 'it')} is shut")]
    async with open_wire(agent, api, loop, SCRIPT, streams=streams, thinks=thinks, tools=tools) as w:
        assert await w.ask("Is the house shut?") == "Both are shut."
        assert calls_in(api, w.bodies[1]) == list(LOOK)
        assert results_in(api, w.bodies[1]) == ["call_1", "call_2"]
        assert await w.ask("And above?") == "Blue."
        assert len(w.bodies) == 5
        assert calls_in(api, w.bodies[4]) == [*LOOK, *AGAIN, ("call_5", "look", {"at": "the sky"})]
        assert thoughts_in(api, w.bodies[1]) == (
            ["A door and a window."] if thinks and api in ("anthropic", "responses") else []
        )


def calls_in(api: str, body: Any) -> list[tuple[str, str, Any]]:
    """The calls that a request sends back, in their order."""
    if api == "anthropic":
        uses = (block for block in blocks_of(body["messages"]) if block["type"] == "tool_use")
        return [(block["id"], block["name"], block["input"]) for block in uses]
    if api == "responses":
        items = (item for item in body["input"] if item.get("type") == "function_call")
        return [(item["call_id"], item["name"], json.loads(item["arguments"])) for item in items]
    made = (call for message in body["messages"] for call in message.get("tool_calls", ()))
    return [
        (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in made
    ]


def results_in(api: str, body: Any) -> list[str]:
    """The ids of the results that a request sends, in their order."""
    if api == "anthropic":
        results = (block for block in blocks_of(body["messages"]) if block["type"] == "tool_result")
        return [block["tool_use_id"] for block in results]
    if api == "responses":
        return [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]
    return [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]


def thoughts_in(api: str, body: Any) -> list[str]:
    """What the LLM thought, as far as a request gives it back."""
    if api == "anthropic":
        return [block["thinking"] for block in blocks_of(body["messages"]) if block["type"] == "thinking"]
    if api == "responses":
        return [item["summary"][0]["text"] for item in body["input"] if item.get("type") == "reasoning"]
    return [each["reasoning_content"] for each in body["messages"] if "reasoning_content" in each]


def blocks_of(messages: Sequence[Any]) -> list[Any]:
    """All blocks of messages whose content is a list."""
    return [block for each in messages if isinstance(each["content"], list) for block in each["content"]]
