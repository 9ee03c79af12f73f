"""The seed loop-basic, sentence by sentence: tools run in parallel, results keep the order of the calls.

loop-streaming runs tools the same way, as the page says: each test is run for both.
"""

import asyncio
import itertools
from typing import Any

import pytest
from amplifier_core import HookResult
from four_loops import LOOPS

pytestmark = pytest.mark.pure

each_loop = pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming"])
every_loop = pytest.mark.parametrize("loop", LOOPS)

PATIENCE = 5.0


class Meeting:
    """Calls that all wait until as many have started as are expected."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.arrived: list[str] = []
        self._all = asyncio.Event()

    async def attend(self, arguments: dict[str, Any]) -> str:
        self.arrived.append(arguments["name"])
        if len(self.arrived) == self.expected:
            self._all.set()
        await asyncio.wait_for(self._all.wait(), PATIENCE)
        return f"result of {arguments['name']}"


class Relay:
    """Calls that run at once and finish in the given order."""

    def __init__(self, *order: str) -> None:
        self.order = order
        self.finished: list[str] = []
        self._turns = {name: asyncio.Event() for name in order}
        self._turns[order[0]].set()

    async def run(self, arguments: dict[str, Any]) -> str:
        name = arguments["name"]
        await asyncio.wait_for(self._turns[name].wait(), PATIENCE)
        self.finished.append(name)
        after = self.order.index(name) + 1
        if after < len(self.order):
            self._turns[self.order[after]].set()
        return f"result of {name}"


def named(*names: str) -> list[tuple[str, dict[str, Any]]]:
    """Calls of tools with these names, each told its own."""
    return [(name, {"name": name}) for name in names]


@each_loop
async def test_tools_execute_in_parallel(agent: Any, tool: Any, calls: Any, loop: str) -> None:
    names = ("read_file", "edit_file", "bash")
    meeting = Meeting(3)
    tools = [tool(name, meeting.attend) for name in names]
    async with agent([calls(*named(*names)), {"text": "ok"}], tools=tools, loop=loop) as a:
        await a.ask()
        assert sorted(meeting.arrived) == sorted(names)
        assert await a.results() == [f"result of {name}" for name in names]
        steps = a.names("tool:pre", "tool:post", "tool:error")
        assert steps == ["tool:pre"] * 3 + ["tool:post"] * 3


@each_loop
async def test_several_calls_of_one_tool_overlap_too(agent: Any, tool: Any, calls: Any, loop: str) -> None:
    meeting = Meeting(2)
    turn = calls(("bash", {"name": "one"}), ("bash", {"name": "two"}))
    async with agent([turn, {"text": "ok"}], tools=[tool("bash", meeting.attend)], loop=loop) as a:
        await a.ask()
        assert await a.results() == ["result of one", "result of two"]


@each_loop
async def test_all_calls_complete_before_the_next_request(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    relay = Relay("quick", "slow")
    finished_at_request: list[int] = []
    tools = [tool(name, relay.run) for name in relay.order]
    async with agent([calls(*named("slow", "quick")), {"text": "ok"}], tools=tools, loop=loop) as a:
        a.on("provider:request", *[lambda data: _noted(finished_at_request, relay)] * 2)
        await a.ask()
        assert finished_at_request == [0, 2]
        assert [m.content for m in a.requests[1].messages[2:]] == ["result of slow", "result of quick"]


def _noted(seen: list[int], relay: Relay) -> HookResult:
    seen.append(len(relay.finished))
    return HookResult()


@each_loop
async def test_results_are_added_to_context_in_original_order(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    relay = Relay("third", "second", "first")
    asked = ("first", "second", "third")
    tools = [tool(name, relay.run) for name in asked]
    async with agent([calls(*named(*asked)), {"text": "ok"}], tools=tools, loop=loop) as a:
        await a.ask()
        assert relay.finished == ["third", "second", "first"]
        assert await a.results() == [f"result of {name}" for name in asked]
        ids = [m["tool_call_id"] for m in await a.messages() if m["role"] == "tool"]
        assert ids == [call["id"] for call in (await a.messages())[1]["tool_calls"]] == ["c1", "c2", "c3"]


@each_loop
async def test_the_context_is_the_same_whichever_tool_is_done_first(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    contexts = []
    for order in itertools.permutations(("a", "b", "c")):
        relay = Relay(*order)
        tools = [tool(name, relay.run) for name in ("a", "b", "c")]
        async with agent([calls(*named("a", "b", "c")), {"text": "ok"}], tools=tools, loop=loop) as a:
            await a.ask()
            assert tuple(relay.finished) == order
            contexts.append(await a.messages())
    assert all(context == contexts[0] for context in contexts)
    assert [m["role"] for m in contexts[0]] == ["user", "assistant", "tool", "tool", "tool", "assistant"]


@every_loop
async def test_a_parallel_group_id_correlates_the_events_of_one_response(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    def fail(_: dict[str, Any]) -> Any:
        raise OSError("no such file")

    turns = [calls("good", "bad"), calls("bad", "good"), {"text": "ok"}]
    async with agent(turns, tools=[tool("good"), tool("bad", fail)], loop=loop) as a:
        await a.ask()
        groups = [
            (name, data["parallel_group_id"])
            for name, data in a.events
            if name in ("tool:pre", "tool:error") or (name == "tool:post" and data["result"]["success"])
        ]
        first, second = {group for _, group in groups[:4]}, {group for _, group in groups[4:]}
        assert (len(first), len(second), len(first | second)) == (1, 1, 2)
        assert all(isinstance(group, str) and group for _, group in groups)
        for part in (groups[:4], groups[4:]):
            assert sorted(name for name, _ in part) == ["tool:error", "tool:post", "tool:pre", "tool:pre"]
