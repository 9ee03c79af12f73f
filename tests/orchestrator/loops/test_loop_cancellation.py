"""A turn that is cancelled, in each of the ways there are, ends once and leaves nothing behind."""

import asyncio
from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult
from four_loops import LOOPS
from transcript_rules import breaks

pytestmark = pytest.mark.pure


def ends(a: Any) -> list[tuple[str, str]]:
    """How the turn was reported to have ended."""
    return [(n, d["status"]) for n, d in a.events if n in ("execution:end", "orchestrator:complete")]


CANCELLED = [("orchestrator:complete", "cancelled"), ("execution:end", "cancelled")]


async def test_a_graceful_cancellation_lets_the_running_tool_finish_and_starts_no_other(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("a", "b"), {"text": "never"}], tools=[tool("a"), tool("b")]) as a:

        async def ask_to_stop(_: dict[str, Any]) -> str:
            await a.session.coordinator.request_cancel(immediate=False)
            return "finished"

        a.tools["a"].answer = ask_to_stop
        assert await a.ask() == ""
        assert a.tools["b"].calls == []
        results = await a.results()
        assert results[0] == "finished"
        assert "not run: the session was cancelled" in results[1]
        assert ends(a) == CANCELLED
        assert a.told("execution:end")[0]["response"] == ""
        assert len(a.requests) == 1


async def test_an_immediate_cancellation_ends_the_running_tool(agent: Any, tool: Any, calls: Any) -> None:
    ended: list[str] = []

    async with agent([calls("a", "b"), {"text": "never"}], tools=[tool("a"), tool("b")]) as a:

        async def hang(_: dict[str, Any]) -> str:
            a.session.coordinator.cancellation.request_immediate()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("tool")
            return "never"

        a.tools["a"].answer = hang
        assert await asyncio.wait_for(a.ask(), 5) == ""
        assert ended == ["tool"]
        assert ["not completed" in result for result in await a.results()] == [True, True]
        assert ends(a) == CANCELLED
        assert a.session.coordinator.cancellation.running_tools == set()


async def test_an_immediate_cancellation_ends_a_request_to_the_llm(agent: Any) -> None:
    class Slow:
        name = "slow"

        async def complete(self, request: Any, **kwargs: Any) -> Any:
            a.session.coordinator.cancellation.request_immediate()
            await asyncio.Event().wait()

    async with agent() as a:
        await a.session.coordinator.mount("providers", Slow(), name="scripted")
        assert await asyncio.wait_for(a.ask(), 5) == ""
        assert ends(a) == CANCELLED
        assert a.names("provider:error") == []


async def test_a_session_that_is_already_cancelled_asks_nobody(agent: Any) -> None:
    async with agent([{"text": "never"}]) as a:
        await a.session.coordinator.request_cancel(immediate=True)
        assert await a.ask() == ""
        assert a.requests == []
        assert a.names("execution:start", "execution:end") == ["execution:start", "execution:end"]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_session_that_is_already_cancelled_ends_its_turn_in_order_where_no_hook_listens(
    agent: Any, loop: str
) -> None:
    async with agent([{"text": "never"}], loop=loop) as a:
        await a.session.coordinator.request_cancel(immediate=True)
        turn = await run_by_hand(a, HookRegistry())
        assert await turn == ""
        assert a.requests == []
        assert breaks(await a.messages()) == []


async def run_by_hand(a: Any, hooks: Any = None) -> "asyncio.Task[str]":
    """The loop's own execute in a task of ours: the kernel's execute runs in one that it does not cancel."""
    coordinator = a.session.coordinator
    context, providers, tools, loop = map(coordinator.get, ("context", "providers", "tools", "orchestrator"))
    return asyncio.ensure_future(
        loop.execute("hello", context, providers, tools, hooks or coordinator.hooks, coordinator=coordinator)
    )


async def test_a_cancelled_task_ends_once_with_every_call_answered(agent: Any, tool: Any, calls: Any) -> None:
    started = asyncio.Event()

    async def hang(_: dict[str, Any]) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    async with agent([calls("a", "a")], tools=[tool("a", hang)]) as a:
        task = await run_by_hand(a)
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ends(a) == CANCELLED
        assert len(await a.results()) == 2


async def test_a_cancelled_task_waits_for_no_verdict(
    agent: Any, tool: Any, calls: Any, wait_until: Any
) -> None:
    started = asyncio.Event()

    async def never_decides(event: str, data: dict[str, Any]) -> HookResult:
        started.set()
        await asyncio.Event().wait()
        return HookResult()

    async with agent([calls("a")], tools=[tool("a")]) as a:
        a.hooks.register("tool:selecting", never_decides)
        before = asyncio.all_tasks()
        task = await run_by_hand(a)
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert a.tools["a"].calls == []
        await wait_until(lambda: not {each for each in asyncio.all_tasks() - before if not each.done()})


async def test_closing_a_session_ends_the_turn_whose_caller_was_cancelled(
    agent: Any, tool: Any, calls: Any
) -> None:
    started = asyncio.Event()
    ended: list[str] = []

    async def hang(_: dict[str, Any]) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("tool")
        return "never"

    before = asyncio.all_tasks()
    async with agent([calls("a")], tools=[tool("a", hang)]) as a:
        task = asyncio.ensure_future(a.session.execute("hello"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert ended == ["tool"]
    assert ends(a) == CANCELLED
    assert {each for each in asyncio.all_tasks() - before if not each.done()} == set()


async def test_a_hook_that_hangs_at_the_end_is_abandoned_by_a_second_cancellation(agent: Any) -> None:
    async with agent() as a:
        reached = asyncio.Event()

        class Hanging:
            name = "hanging"

            async def complete(self, request: Any, **kwargs: Any) -> Any:
                reached.set()
                await asyncio.Event().wait()

        at_the_end = asyncio.Event()

        async def hang(event: str, data: dict[str, Any]) -> HookResult:
            at_the_end.set()
            await asyncio.Event().wait()
            return HookResult()

        await a.session.coordinator.mount("providers", Hanging(), name="scripted")
        a.hooks.register("orchestrator:complete", hang)
        task = await run_by_hand(a)
        await reached.wait()
        task.cancel()
        await at_the_end.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_cancellation_inside_an_anyio_scope_still_reports_the_end(
    agent: Any, tool: Any, calls: Any
) -> None:
    import anyio

    started = asyncio.Event()

    async def hang(_: dict[str, Any]) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    async with agent([calls("a")], tools=[tool("a", hang)]) as a:
        coordinator = a.session.coordinator
        context, providers, tools, loop = map(
            coordinator.get, ("context", "providers", "tools", "orchestrator")
        )
        async with anyio.create_task_group() as group:

            async def turn() -> None:
                await loop.execute(
                    "hi", context, providers, tools, coordinator.hooks, coordinator=coordinator
                )

            group.start_soon(turn)
            await started.wait()
            group.cancel_scope.cancel()
        assert ends(a) == CANCELLED
        assert len(await a.results()) == 1
