"""The seed orchestrator-contract, sentence by sentence: the rest of its checklist, and its test samples."""

import ast
import asyncio
import inspect
from collections.abc import AsyncGenerator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import toolgate_orchestrator
from amplifier_core import ChatResponse, HookRegistry, LLMError, TextBlock, ToolCall
from amplifier_core.events import ALL_EVENTS
from amplifier_core.testing import (
    EventRecorder,
    MockContextManager,
    MockCoordinator,
    MockTool,
    ScriptedOrchestrator,
)
from four_loops import LOOPS

pytestmark = pytest.mark.pure

each_loop = pytest.mark.parametrize("loop", LOOPS)


def stream(a: Any) -> AsyncGenerator[str, None]:
    """The answer of an agent's loop to a prompt, piece by piece."""
    coordinator = a.session.coordinator
    names = ("context", "providers", "tools", "orchestrator")
    context, providers, tools, loop = map(coordinator.get, names)
    pieces: AsyncGenerator[str, None] = loop.stream(
        "hello", context, providers, tools, coordinator.hooks, coordinator=coordinator
    )
    return pieces


@each_loop
async def test_a_provider_error_is_handled_so_that_the_session_can_go_on(agent: Any, loop: str) -> None:
    async with agent([{"error": "overloaded"}, {"text": "there you are"}], loop=loop) as a:
        if loop == "loop-events":
            assert "overloaded" in await a.ask("first")
        else:
            with pytest.raises(RuntimeError, match="overloaded"):
                await a.ask("first")
        assert await a.ask("second") == "there you are"
        assert [data["status"] for data in a.told("execution:end")] == ["error", "completed"]


@pytest.mark.parametrize("loop", LOOPS[1:])
async def test_streaming_is_supported_via_async_generators(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    more = asyncio.Event()
    async with agent(loop=loop, llm=llm([says("one "), more, says("two")])) as a:
        pieces = stream(a)
        assert inspect.isasyncgen(pieces)
        assert await asyncio.wait_for(anext(pieces), 5) == "one "
        assert a.names("provider:response") == []
        more.set()
        assert [piece async for piece in pieces] == ["two"]
        assert a.told("execution:end")[0]["response"] == "one two"


async def test_loop_basic_gives_its_whole_answer_through_the_same_generator(
    agent: Any, llm: Any, says: Any
) -> None:
    async with agent(loop="loop-basic", llm=llm([says("one "), says("two")])) as a:
        pieces = stream(a)
        assert [piece async for piece in pieces] == ["one two"]


@pytest.mark.parametrize("loop", ["loop-streaming", "loop-reactive"])
async def test_the_generator_raises_what_the_turn_raises_after_the_last_piece(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    async with agent(loop=loop, llm=llm([says("one "), LLMError("cut off")])) as a:
        pieces = stream(a)
        assert await anext(pieces) == "one "
        with pytest.raises(LLMError, match="cut off"):
            await anext(pieces)


# ------------------------------------------------------------------ constants


def test_events_of_the_kernel_are_named_by_its_constants() -> None:
    folder = Path(toolgate_orchestrator.__file__).parent
    files = [file for part in ("turn", "loops", "reactive") for file in sorted((folder / part).glob("*.py"))]
    literals = [
        f"{file.name}:{node.lineno}: {node.value}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in ALL_EVENTS
    ]
    assert len(files) > 10
    assert literals == []


# ------------------------------------------------------------------ the contract's test samples


class MockProvider:
    """What the sample takes for granted: a provider in the kernel's protocol."""

    name = "test"

    def __init__(self, *calls: ToolCall) -> None:
        self.complete = AsyncMock(side_effect=self._complete)
        self._calls = list(calls)

    async def _complete(self, request: Any, **kwargs: Any) -> ChatResponse:
        calls, self._calls = self._calls, []
        return ChatResponse(content=[TextBlock(text="Test response")], tool_calls=calls or None)

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return list(response.tool_calls or [])


def class_of(loop: str) -> Any:
    """`MyOrchestrator` of the sample."""
    (point,) = entry_points(group="amplifier.modules", name=loop)
    found = vars(import_module(point.module)).values()
    return next(each for each in found if isinstance(each, type) and getattr(each, "name", None) == loop)


@each_loop
async def test_orchestrator_basic(loop: str) -> None:
    MyOrchestrator = class_of(loop)  # noqa: N806 - the sample's name
    orchestrator = MyOrchestrator(config={})
    context = MockContextManager()
    providers = {"test": MockProvider()}
    tools = {"test_tool": MockTool()}
    hooks = HookRegistry()

    result = await orchestrator.execute(
        prompt="Test prompt", context=context, providers=providers, tools=tools, hooks=hooks
    )

    assert isinstance(result, str)
    assert len(context.messages) > 0
    assert result == "Test response"
    assert [message["role"] for message in context.messages] == ["user", "assistant"]


@each_loop
async def test_the_kernels_mock_tool_is_called_and_its_event_recorder_records_the_turn(loop: str) -> None:
    make_recorder: Any = EventRecorder
    tool, recorder, context = MockTool("echo", output="Echo"), make_recorder(), MockContextManager()
    provider = MockProvider(ToolCall(id="c1", name="echo", arguments={"text": "hi"}))
    result = await class_of(loop)(config={}).execute(
        prompt="Test prompt",
        context=context,
        providers={"test": provider},
        tools={"echo": tool},
        hooks=recorder,
    )
    assert result == "Test response"
    assert tool.call_count == 1
    tool.execute.assert_awaited_once_with({"text": "hi"})
    assert [message["role"] for message in context.messages] == ["user", "assistant", "tool", "assistant"]
    assert "Echo" in context.messages[2]["content"]
    names = [name for name, _ in recorder.events]
    assert (names[0], names[-1]) == ("execution:start", "execution:end")
    for event in ("prompt:submit", "tool:pre", "tool:post", "prompt:complete", "orchestrator:complete"):
        assert len(recorder.get_events(event)) == 1
    assert len(recorder.get_events("provider:request")) == len(recorder.get_events("provider:response")) == 2


@each_loop
async def test_the_kernels_mock_coordinator_takes_the_loop_and_serves_its_turn(loop: str) -> None:
    (point,) = entry_points(group="amplifier.modules", name=loop)
    make: Any = MockCoordinator
    coordinator = make()
    cleanup = await point.load()(coordinator, {})
    assert [mount["mount_point"] for mount in coordinator.mount_history] == ["orchestrator"]
    result = await coordinator.get("orchestrator").execute(
        "Test prompt",
        MockContextManager(),
        {"test": MockProvider()},
        {},
        coordinator.hooks,
        coordinator=coordinator,
    )
    assert result == "Test response"
    await cleanup()


async def test_the_scripted_orchestrator_of_the_sample_answers_from_its_script() -> None:
    orchestrator = ScriptedOrchestrator(responses=["Response 1", "Response 2"])
    common: Any = ("Test prompt", MockContextManager(), {}, {}, HookRegistry())
    assert await orchestrator.execute(*common) == "Response 1"
    assert await orchestrator.execute(*common) == "Response 2"
