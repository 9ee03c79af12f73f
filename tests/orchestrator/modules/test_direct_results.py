"""What a tool gives to whoever calls it directly is ruled on too; an error keeps nothing that is hidden."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from amplifier_core import HookResult, ToolResult
from amplifier_core.message_models import TextBlock
from four_loops import causes_of
from gate_world import World
from ruled_bus import SECRET, RuledBus, mask_secret
from toolgate_bus.protocol.events import Continue, Deny
from toolgate_orchestrator.modules.direct_calls import DirectCalls
from toolgate_orchestrator.modules.tool_delegate import Delegate

pytestmark = pytest.mark.pure


class Look:
    """A tool that gives what the test says."""

    name, description, input_schema = "look", "", {"type": "object"}

    def __init__(self, gives: Any) -> None:
        self.gives = gives

    async def execute(self, arguments: Any) -> Any:
        if isinstance(self.gives, BaseException):
            raise self.gives
        return self.gives


class Session:
    """A session with that tool."""

    session_id, parent_id, config = "s-1", None, {}

    def __init__(self, tool: Look) -> None:
        self.tools = {"look": tool}

    def get(self, point: str) -> Any:
        return self.tools if point == "tools" else None


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(stack)


async def call(world: World, gives: Any) -> Any:
    """Call the tool directly, and return what the caller gets."""

    async def no_fault() -> None:
        """Nothing speaks against a call."""

    gate, session = await world.gate(), Session(Look(gives))
    await DirectCalls(session, no_fault, lambda: gate).wrap()
    return await session.tools["look"].execute({"at": "the door"})


GIVES: dict[str, Any] = {
    "text": f"it is {SECRET}",
    "map": {"key": SECRET},
    "result": ToolResult(output={"key": SECRET}, content=[TextBlock(text=SECRET)]),
    "failure": ToolResult(success=False, error={"message": SECRET}),
    "error": ValueError(f"bad {SECRET}"),
    "exit": SystemExit(f"bad {SECRET}"),
}


@pytest.mark.parametrize("what", GIVES)
@pytest.mark.parametrize("also", [("result",), ("select", "result")])
async def test_what_a_mask_hides_does_not_reach_the_caller(
    world: World, what: str, also: tuple[str, ...]
) -> None:
    judge = lambda call: mask_secret(call) if call.phase == "result" else Continue()  # noqa: E731
    await world.scheduler("judge", judge, phases=also)
    given = await call(world, GIVES[what])
    assert isinstance(given, ToolResult)
    assert SECRET not in given.model_dump_json()
    assert "[withheld: key]" in given.model_dump_json()
    assert given.success is (what not in ("failure", "error", "exit"))


@pytest.mark.parametrize("what", GIVES)
async def test_a_withheld_result_is_one_that_failed(world: World, what: str) -> None:
    await world.scheduler("judge", Deny(reason="no"), phases=("result",))
    given = await call(world, GIVES[what])
    assert (given.success, SECRET in given.model_dump_json()) == (False, False)
    assert "its result is withheld: no" in given.error["message"]


async def test_a_result_or_error_that_all_agree_with_is_the_tools_own(world: World) -> None:
    await world.scheduler("judge", Continue(), phases=("result",))
    assert await call(world, GIVES["map"]) is GIVES["map"]
    with pytest.raises(ValueError, match="bad"):
        await call(world, GIVES["error"])


@pytest.mark.parametrize("ruled", [True, False])
async def test_why_a_sub_agent_failed_is_told_to_hooks_only_where_nobody_rules_on_it(
    agent: Any, llm: Any, wants: Any, ruled: bool
) -> None:
    arguments = {"agent": "helper", "instruction": "look"}
    plan = {"agents": {"helper": {}}}
    async with AsyncExitStack() as stack:
        bus = RuledBus(stack)
        await bus.scheduler(mask_secret if ruled else Continue(), phases=("result" if ruled else "select",))
        async with agent(llm=llm([wants("c1", "delegate", arguments)]), plan=plan) as a:
            coordinator = a.session.coordinator
            await bus.listens(a, "loop-basic")

            async def spawn(**asked: Any) -> Any:
                raise RuntimeError(f"it saw {SECRET}")

            told: list[Any] = []

            async def hear(event: str, data: dict[str, Any]) -> HookResult:
                told.append(data)
                return HookResult()

            coordinator.register_capability("session.spawn", spawn)
            coordinator.hooks.register("delegate:error", hear, name="test")
            await coordinator.mount("tools", Delegate(coordinator), name="delegate")
            await a.ask()
            assert [SECRET in str(one["error"]) for one in told] == [not ruled]
            assert (SECRET in str(await a.messages())) is (not ruled)


async def test_a_result_that_its_tool_changes_while_it_is_ruled_on_is_withheld(world: World) -> None:
    held = ["fine"]

    def change(_: Any) -> Any:
        held.append(SECRET)
        return Continue()

    await world.scheduler("judge", change, phases=("result",))
    given = await call(world, ToolResult(output=held))
    assert given.success is False
    assert "it was changed while it was ruled on" in str(given.error)
    assert SECRET not in given.model_dump_json()


async def test_a_cancellation_while_an_error_is_ruled_on_does_not_bear_it(world: World) -> None:
    asked = asyncio.Event()

    async def hold(_: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    await world.scheduler("judge", hold, phases=("result",))
    running = asyncio.ensure_future(call(world, ValueError(SECRET)))
    await asyncio.wait_for(asked.wait(), 5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await running
    assert (raised.value.__cause__, raised.value.__context__) == (None, None)


async def test_a_cancellation_while_hooks_hear_that_a_child_failed_does_not_bear_its_error(
    agent: Any, llm: Any
) -> None:
    heard = asyncio.Event()

    async def spawn(**_: Any) -> Any:
        raise ValueError(SECRET)

    async def wait(event: str, data: dict[str, Any]) -> HookResult:
        heard.set()
        await asyncio.Event().wait()
        return HookResult()

    async with agent(llm=llm(), plan={"agents": {"helper": {}}}) as a:
        coordinator = a.session.coordinator
        coordinator.register_capability("session.spawn", spawn)
        coordinator.hooks.register("delegate:error", wait, name="test")
        delegate = Delegate(coordinator)
        running = asyncio.ensure_future(delegate.execute({"agent": "helper", "instruction": "look"}))
        await asyncio.wait_for(heard.wait(), 5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await running
    assert SECRET not in str(causes_of(raised.value))
