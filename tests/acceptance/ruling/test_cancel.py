"""Cancelling what waits for verdicts ends it at once and leaves nothing behind."""

import asyncio

import pytest
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

TOOLS = ["bash", "search"]
HANG = {"rules": {"alpha": {"do": "hang"}}}


@pytest.fixture
async def bus(own_server, schedulers_on):
    """A server of its own, so that its connections can be counted, with alpha alive on it."""
    schedulers = schedulers_on(own_server.url)
    await schedulers.start("obedient:alpha", "--concurrency", 5000)
    return schedulers


def gate_on(bus, **config):
    return Gate.open(redis=bus.url, **{"patience_ms": 600_000} | config)


def open_rounds(gate):
    """How many questions wait for verdicts."""
    return len(gate._client.table.open)


async def cancelled(task):
    """Cancel a task that waits, and see it end so."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelling_one_that_waits_ends_it_at_once_and_leaves_nothing(
    bus, wait_until, statistics, counted
):
    server = statistics(bus.url)
    async with gate_on(bus) as gate:
        assert (await gate.decide(Call("search", {}, TOOLS))).why == "agreed"
        tasks, connections = asyncio.all_tasks(), await server.connections()
        told = []
        gate.subscribe(told.append)
        deciding = asyncio.create_task(gate.decide(Call("search", HANG, TOOLS)))
        await wait_until(lambda: len(bus.lines("asked")) == 2)
        assert open_rounds(gate) == 1
        await cancelled(deciding)
        assert open_rounds(gate) == 0
        await wait_until(lambda: asyncio.all_tasks() <= tasks)  # but for a heartbeat on its way
        assert await server.connections() == connections
        assert [one.outcome for one in told] == ["cancelled"]
        assert counted("toolgate_decisions_total", outcome="cancelled", tool="search", agent="") == 1
        # The gate is as good as new, and nobody was blamed.
        after = await gate.decide(
            Call("search", {"rules": {"alpha": {"action": "deny", "reason": "no"}}}, TOOLS)
        )
        assert (after.outcome, after.passed_over) == ("deny", ())


async def test_200_cancellations_at_any_moment_leave_the_connections_as_they_were(
    bus, wait_until, statistics
):
    server = statistics(bus.url)
    async with gate_on(bus) as gate:
        await gate.decide(Call("search", {}, TOOLS))
        tasks, connections = asyncio.all_tasks(), await server.connections()
        for number in range(200):
            deciding = asyncio.create_task(gate.decide(Call("search", HANG, TOOLS)))
            for _ in range(number % 20):  # from before its first step to long after it was written
                await asyncio.sleep(0)
            await cancelled(deciding)
        assert open_rounds(gate) == 0
        await wait_until(lambda: asyncio.all_tasks() <= tasks)  # but for a heartbeat on its way
        assert await server.connections() == connections
        assert (await gate.decide(Call("search", {}, TOOLS))).why == "agreed"


async def test_cancelling_while_the_replacement_is_verified_leaves_nothing(bus, wait_until):
    async with gate_on(bus) as gate:
        # The author is in this process, so alpha is asked about the replacement.
        async def author(call):
            from toolgate_bus.protocol.events import Continue, Modify

            return [Modify(tool="bash", arguments=HANG) if call.phase == "select" else Continue()]

        tasks = asyncio.all_tasks()
        deciding = asyncio.create_task(gate.decide(Call("search", {}, TOOLS), local=author))
        await wait_until(lambda: bus.lines("asked", phase="verify"))
        await cancelled(deciding)
        assert open_rounds(gate) == 0
        await wait_until(lambda: asyncio.all_tasks() <= tasks)  # but for a heartbeat on its way


async def test_cancelling_while_a_person_is_asked_ends_the_asking(bus, wait_until):
    asking = asyncio.Event()
    ended = asyncio.Event()

    async def person(question, call):
        asking.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with gate_on(bus, ask=person) as gate:
        rules = {"rules": {"alpha": {"action": "ask_user", "prompt": "sure?"}}}
        deciding = asyncio.create_task(gate.decide(Call("search", rules, TOOLS)))
        await asyncio.wait_for(asking.wait(), 10)
        await cancelled(deciding)
        assert ended.is_set()
        assert open_rounds(gate) == 0


async def test_closing_the_gate_leaves_no_task_and_no_connection(bus, statistics, wait_until):
    server = statistics(bus.url)
    tasks, connections = asyncio.all_tasks(), await server.connections()
    for _ in range(5):
        async with gate_on(bus) as gate, gate_on(bus) as other:  # they share one client
            assert other._client is gate._client
            await gate.decide(Call("search", {}, TOOLS))
            assert await server.connections() > connections
        assert asyncio.all_tasks() == tasks

    async def as_before():
        return await server.connections() == connections

    await wait_until(as_before)


async def test_cancelling_a_session_while_it_waits_for_verdicts_ends_it_at_once(bus, statistics, wait_until):
    from amplifier_core import AmplifierSession, ToolResult

    class Tool:
        name, description, input_schema = "bash", "must not run", {"type": "object"}
        calls = 0

        async def execute(self, arguments):
            self.calls += 1
            return ToolResult(success=True, output="done")

    toolgate = {"redis": bus.url, "patience_ms": 600_000}
    plan = {
        "session": {
            "orchestrator": {"module": "loop-events", "config": {"toolgate": toolgate}},
            "context": "context-simple",
        },
        "providers": [
            {
                "module": "provider-scripted",
                "config": {"turns": [{"tool_calls": [{"name": "bash", "arguments": HANG}]}, {"text": "end"}]},
            }
        ],
    }
    server = statistics(bus.url)
    before, connections = asyncio.all_tasks(), await server.connections()
    async with AmplifierSession(plan) as session:
        tool = Tool()
        await session.coordinator.mount("tools", tool, name="bash")
        tasks = asyncio.all_tasks()
        turn = asyncio.create_task(session.execute("go"))
        await wait_until(lambda: bus.lines("asked"))
        await session.coordinator.request_cancel(immediate=True)
        assert await turn == ""
        # What began with the session may have ended meanwhile; of the turn nothing is left.
        await wait_until(lambda: asyncio.all_tasks() <= tasks, timeout=30)
        assert tool.calls == 0
        messages = await session.coordinator.get("context").get_messages()
        # The history is whole: the call that was cancelled has its result, and the turn its end.
        assert [one["role"] for one in messages][-3:] == ["assistant", "tool", "assistant"]
    assert asyncio.all_tasks() == before

    async def as_before():
        return await server.connections() == connections

    await wait_until(as_before)
