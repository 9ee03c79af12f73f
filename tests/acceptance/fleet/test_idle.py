"""Without schedulers Toolgate costs nothing: no command for a call, beyond what idling costs anyway."""

import asyncio
from collections import Counter

import pytest
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.system, pytest.mark.acceptance]

WINDOW = 2.0
"""Seconds; several heartbeats and blocking reads."""
TWO_ROUNDS = 20
"""A window may catch a heartbeat (8 commands) and a blocking read more at each end than another does."""
TOOLS = ["bash", "search"]


async def spent(statistics, seconds, work=None):
    """Commands that the server ran in a window with the work in its middle, and how long it was in truth."""
    began = asyncio.get_running_loop().time()
    before = await statistics.calls()
    await asyncio.sleep(seconds / 2)
    if work is not None:
        await work()
    await asyncio.sleep(seconds / 2)
    return await statistics.calls() - before, asyncio.get_running_loop().time() - began


def more_than(idle: tuple[Counter, float], busy: tuple[Counter, float]):
    """How many commands the busy window had more than as long a one that was idle."""
    return busy[0].total() - idle[0].total() * busy[1] / idle[1]


async def test_100_calls_with_nobody_alive_add_no_command(own_server, statistics):
    server = statistics(own_server.url)
    async with Gate.open(redis=own_server.url) as gate:
        idle = await spent(server, WINDOW)
        assert idle[0].total() > 4  # it does beat, so the comparison means something

        async def calls():
            for number in range(100):
                decision = await gate.decide(Call("bash", {"n": number}, TOOLS))
                assert (decision.outcome, decision.why) == ("continue", "unasked")
                gate.note("tool:post", {"n": number})

        busy = await spent(server, WINDOW, calls)
    assert more_than(idle, busy) <= TWO_ROUNDS, (idle, busy)
    # What a question or a fact would be written with.
    assert busy[0]["xadd"] == 0
    assert await server.keys("*:facts:*") == []


async def test_a_scheduler_of_other_tools_is_not_told_of_100_calls(own_server, statistics, schedulers_on):
    """It pays only for what it asked to see: none of them reaches its inbox."""
    schedulers = schedulers_on(own_server.url)
    await schedulers.start("obedient:alpha", "--tools", "web_*")
    async with Gate.open(redis=own_server.url) as gate:
        for number in range(100):
            assert (await gate.decide(Call("bash", {"n": number}, TOOLS))).why == "unasked"
        assert (await gate.decide(Call("web_search", {}, TOOLS))).why == "agreed"
    (line,) = schedulers.lines("asked")
    assert line.tool == "web_search"


async def test_100_tool_calls_of_a_session_with_nobody_alive_add_no_command(own_server, statistics):
    from amplifier_core import AmplifierSession, ToolResult

    class Tool:
        name, description, input_schema = "bash", "counts", {"type": "object"}
        calls = 0

        async def execute(self, arguments):
            self.calls += 1
            return ToolResult(success=True, output="done")

    call = {"name": "bash", "arguments": {"n": 1}}
    turns = [{"tool_calls": [call] * 20} for _ in range(5)]
    plan = {
        "session": {
            "orchestrator": {"module": "loop-events", "config": {"toolgate": {"redis": own_server.url}}},
            "context": "context-simple",
        },
        "providers": [{"module": "provider-scripted", "config": {"turns": [*turns, {"text": "done"}]}}],
    }
    server = statistics(own_server.url)
    async with AmplifierSession(plan) as session:
        tool = Tool()
        await session.coordinator.mount("tools", tool, name="bash")
        idle = await spent(server, WINDOW)
        assert idle[0].total() > 4

        async def turn():
            await session.execute("count to a hundred")

        busy = await spent(server, WINDOW, turn)
    assert tool.calls == 100
    assert more_than(idle, busy) <= TWO_ROUNDS, (idle, busy)
    assert busy[0]["xadd"] == 0
