"""loop-events with schedulers on a real server: cancelled sessions, and a plain loop that costs nothing."""

import asyncio
from functools import partial
from typing import Any

import pytest
from redis import Redis

pytestmark = pytest.mark.acceptance


def connections(url: str) -> int:
    """How many clients the server has, this one aside."""
    client = Redis.from_url(url)
    try:
        return len(client.client_list()) - 1
    finally:
        client.close()


def asked(url: str, namespace: str) -> bool:
    """Whether a question lies in the inbox of the scheduler `silent`."""
    client = Redis.from_url(url)
    try:
        return any(True for _ in client.scan_iter(f"tg:{{{namespace}:*}}:in:silent"))
    finally:
        client.close()


@pytest.mark.system
async def test_sessions_cancelled_while_they_wait_for_verdicts_leave_nothing_behind(
    agent: Any, tool: Any, calls: Any, server_url: str, namespace: str, wait_until: Any
) -> None:
    bus = {"redis": server_url, "required": ["silent"], "patience_ms": 60_000}
    before, tasks = connections(server_url), asyncio.all_tasks()
    for number in range(20):
        name = f"{namespace}-{number}"
        own = {**bus, "namespace": name}
        async with agent([calls("a")], tools=[tool("a")], config={"toolgate": own}) as a:
            turn = asyncio.ensure_future(a.ask())
            await wait_until(partial(asked, server_url, name))
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
        assert a.tools["a"].calls == []
        assert a.told("execution:end")[0]["status"] == "cancelled"
    # Not more than before: what a test before this one had open may have ended meanwhile.
    await wait_until(lambda: connections(server_url) <= before)
    await wait_until(lambda: not {task for task in asyncio.all_tasks() - tasks if not task.done()})


async def test_an_immediate_cancellation_ends_the_waiting_for_verdicts(
    agent: Any, tool: Any, calls: Any, server_url: str, namespace: str, wait_until: Any
) -> None:
    bus = {"redis": server_url, "namespace": namespace, "required": ["silent"], "patience_ms": 60_000}
    async with agent([calls("a")], tools=[tool("a")], config={"toolgate": bus}) as a:
        turn = asyncio.ensure_future(a.ask())
        await wait_until(lambda: asked(server_url, namespace))
        await a.session.coordinator.request_cancel(immediate=True)
        assert await turn == ""
        assert ["not completed" in result for result in await a.results()] == [True]


async def test_a_call_that_is_too_deep_for_any_rule_is_denied_at_once_and_runs_where_nobody_rules(
    agent: Any, tool: Any, wants: Any, llm: Any, server_url: str, namespace: str
) -> None:
    deep: Any = 1
    for _ in range(29):
        deep = [deep]
    bus = {"redis": server_url, "namespace": namespace, "patience_ms": 60_000}
    for required in (["silent"], []):
        answers = llm([wants("c1", "a", {"deep": deep})])
        config = {"toolgate": {**bus, "required": required}}
        async with agent(llm=answers, tools=[tool("a")], config=config) as a:
            await a.ask()
            assert [call["deep"] for call in a.tools["a"].calls] == ([] if required else [deep])
            assert ["nested more than 28 levels deep" in one for one in await a.results()] == [bool(required)]


async def test_a_required_scheduler_that_is_silent_denies_and_the_turn_goes_on(
    agent: Any, tool: Any, calls: Any, server_url: str, namespace: str
) -> None:
    bus = {"redis": server_url, "namespace": namespace, "required": ["silent"], "patience_ms": 50}
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], config={"toolgate": bus}) as a:
        assert await a.ask() == "ok"
        assert a.tools["a"].calls == []
        assert a.told("policy:violation")[0]["decision"]["why"] == "silent"
        assert a.told("policy:violation")[0]["decision"]["silent"] == ["silent"]


async def test_with_nobody_on_the_bus_a_hundred_calls_send_it_no_question(
    agent: Any, tool: Any, calls: Any, server_url: str, namespace: str
) -> None:
    bus = {"redis": server_url, "namespace": namespace}
    turns = [*[calls("a", "a", "a", "a")] * 25, {"text": "ok"}]
    async with agent(turns, tools=[tool("a")], config={"toolgate": bus}) as a:
        client = Redis.from_url(server_url)
        wrote = client.info("commandstats").get("cmdstat_xadd", {"calls": 0})["calls"]
        assert await a.ask() == "ok"
        assert len(a.tools["a"].calls) == 100
        assert client.info("commandstats").get("cmdstat_xadd", {"calls": 0})["calls"] == wrote
        client.close()
