"""The table of differences from the events of Amplifier's loops says what a turn really emits."""

import json
from typing import Any

import pytest
from amplifier_core import HookResult
from event_table import LOOPS, RECORDED, table

pytestmark = pytest.mark.pure

OF_THE_KERNEL = {"timestamp", "session_id", "parent_id"}


def failing(_: dict[str, Any]) -> str:
    raise ValueError("x")


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_turn_emits_what_the_table_was_made_of(
    loop: str, agent: Any, tool: Any, llm: Any, says: Any, wants: Any
) -> None:
    calls = [wants(f"c{number}", name, {"a": 1}) for number, name in enumerate(("good", "bad", "nowhere"), 1)]
    used = {"type": "message.end", "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}}
    provider = llm([says("so"), *calls, used], [says("done"), used], whole=True)
    tools = [tool("good"), tool("bad", failing)]
    config = {"toolgate": {}} if loop == "loop-events" else {}
    async with agent(loop=loop, llm=provider, tools=tools, config=config) as a:
        a.on("tool:selecting", *[lambda data: a.events.append(("tool:selecting", data)) or HookResult()] * 9)
        await a.ask()
        told: dict[str, list[Any]] = {}
        for event, data in a.events:
            count, fields = told.get(event, [0, []])
            told[event] = [count + 1, sorted({*fields, *(data.keys() - OF_THE_KERNEL)})]
    assert told == json.loads(RECORDED.read_text())["toolgate"][loop]


def test_the_table_tells_what_is_new_what_is_not_there_and_what_comes_more_often() -> None:
    rows = dict(row.strip("| ").split(" | ", 1) for row in table().splitlines()[2:])
    assert rows["`execution:start`"] == "here only | the same | here only"
    assert rows["`error:tool`"] == "– | – | not here"
    assert rows["`session:start`"].endswith("| 1 instead of 2; without `prompt`")
