"""Which tools a loop offers to the LLM while a policy denies some of them whatever their arguments."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from four_loops import LOOPS
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_schedulers import Worker
from toolgate_schedulers.author.forms import as_scheduler
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig

pytestmark = pytest.mark.acceptance

DENIES = {"rules": [{"tools": "delete", "action": "deny"}]}
ChangeRules = Callable[[dict[str, Any]], Any]


@pytest.fixture
async def policy(server_url: str, namespace: str) -> AsyncIterator[ChangeRules]:
    """A policy that denies `delete`, at work on a real server: a function that changes its rules."""

    def make(rules: dict[str, Any]) -> Any:
        return as_scheduler(Policy(PolicyConfig.model_validate(rules)))

    async with contextlib.AsyncExitStack() as stack:
        bus = RedisSchedulerBus(server_url, namespace)
        stack.push_async_callback(bus.aclose)

        def shared() -> Any:
            return connect_shared_state(server_url, bus.commands, namespace)

        worker = Worker(make(DENIES), bus, shared=shared())
        await worker.start()

        async def change(rules: dict[str, Any]) -> None:
            await worker.swap(make(rules), shared())

        yield change


def offered(a: Any) -> list[list[str]]:
    """Return the tools that each request offered."""
    return [[one.name for one in request.tools or ()] for request in a.requests]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_tool_whose_every_call_is_denied_is_not_offered_and_never_runs(
    agent: Any, tool: Any, calls: Any, server_url: str, namespace: str, policy: ChangeRules, loop: str
) -> None:
    toolgate = {"redis": server_url, "namespace": namespace, "required": ["policy"]}
    turns = [calls("delete"), {"text": "done"}, {"text": "done"}]
    both = [tool("read"), tool("delete")]
    async with agent(turns, tools=both, loop=loop, config={"toolgate": toolgate}) as a:
        await a.ask()
        assert offered(a) == [["read"], ["read"]]
        assert a.tools["delete"].calls == []  # the LLM called it all the same
        await policy({"rules": []})
        async with asyncio.timeout(30):
            while offered(a)[-1] != ["read", "delete"]:  # until this agent has read the new rules
                await a.ask()


async def test_offer_denied_keeps_the_tool(
    agent: Any, tool: Any, server_url: str, namespace: str, policy: ChangeRules
) -> None:
    toolgate = {"redis": server_url, "namespace": namespace, "required": ["policy"], "offer_denied": True}
    async with agent(
        [{"text": "done"}], tools=[tool("read"), tool("delete")], config={"toolgate": toolgate}
    ) as a:
        await a.ask()
        assert offered(a) == [["read", "delete"]]


async def test_an_agent_whose_every_tool_is_denied_is_offered_all(
    agent: Any, tool: Any, server_url: str, namespace: str, policy: ChangeRules
) -> None:
    toolgate = {"redis": server_url, "namespace": namespace, "required": ["policy"]}
    async with agent([{"text": "done"}], tools=[tool("delete")], config={"toolgate": toolgate}) as a:
        await a.ask()
        assert offered(a) == [["delete"]]
