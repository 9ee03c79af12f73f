"""The seed orchestrator-contract, sentence by sentence: its events, on every way and on every way out.

What the five seeds name for one event differs; a payload carries all of it (`UNION`).
"""

import asyncio
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import pytest
from amplifier_core import HookResult
from amplifier_core.events import EXECUTION_END, EXECUTION_START
from amplifier_core.testing import EventRecorder, MockContextManager
from four_loops import LOOPS
from toolgate_bus.errors import ConfigError

pytestmark = pytest.mark.pure

each_loop = pytest.mark.parametrize("loop", LOOPS)

USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}

UNION = {
    "execution:start": {"prompt"},
    "prompt:submit": {"prompt"},
    "provider:request": {"provider", "iteration", "messages", "model"},
    "provider:response": {"provider", "response", "usage", "tool_calls"},
    "provider:error": {"provider", "error", "retryable", "status_code"},
    "tool:pre": {"tool_name", "tool_input", "input", "parallel_group_id"},
    "tool:post": {"tool_name", "tool_input", "result", "tool_result", "parallel_group_id"},
    "tool:error": {"tool_name", "error", "parallel_group_id"},
    "prompt:complete": {"response_preview", "length", "response"},
    "orchestrator:complete": {"orchestrator", "turn_count", "status", "iterations", "tokens"},
    "execution:end": {"response", "status"},
}
"""Event to the fields that any of the seeds names for it."""
UNION_OF_SELECTION = {
    "tool:selecting": {"tool_name", "tool_input", "available_tools"},
    "tool:selected": {"tool", "source", "original_tool"},
}


def fail(_: dict[str, Any]) -> Any:
    raise RuntimeError("exit code 1")


async def fail_to_answer(a: Any, loop: str) -> None:
    """A turn whose provider is overloaded: loop-events tells the user, the others raise."""
    if loop == "loop-events":
        assert "overloaded" in await a.ask()
        return
    with pytest.raises(RuntimeError, match="overloaded"):
        await a.ask()


def eventful(calls: Any) -> list[dict[str, Any]]:
    """A turn with a tool that works and one that fails, then one whose provider fails."""
    return [{**calls("good", "bad"), "usage": USAGE}, {"text": "ok", "usage": USAGE}, {"error": "overloaded"}]


@each_loop
async def test_payloads_carry_the_union_of_what_the_seeds_name(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent(eventful(calls), tools=[tool("good"), tool("bad", fail)], loop=loop) as a:
        await a.ask()
        await fail_to_answer(a, loop)
        missing = {
            event: fields - data.keys()
            for event, fields in UNION.items()
            for data in (a.told(event) or [{}])
            if not fields <= data.keys()
        }
        assert missing == {}


@pytest.mark.parametrize("loop", LOOPS[2:])
async def test_payloads_of_the_selection_carry_what_the_seed_names(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    selecting: list[dict[str, Any]] = []
    async with agent([calls(("good", {"n": 1})), {"text": "ok"}], tools=[tool("good")], loop=loop) as a:

        async def note(_: str, data: dict[str, Any]) -> HookResult:
            selecting.append(data)
            return HookResult()

        a.hooks.register("tool:selecting", note)
        await a.ask()
        (selected,) = a.told("tool:selected")
        assert selecting[0].keys() >= UNION_OF_SELECTION["tool:selecting"]
        assert selected.keys() >= UNION_OF_SELECTION["tool:selected"]
        assert (selected["tool"], selected["source"], selected["original_tool"]) == ("good", "llm", None)


@each_loop
async def test_payloads_are_plain_data_that_hooks_can_read(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent(eventful(calls), tools=[tool("good"), tool("bad", fail)], loop=loop) as a:
        await a.ask()
        await fail_to_answer(a, loop)
        response, second = a.told("provider:response")
        assert response["usage"]["total_tokens"] == 7
        assert second["response"]["content"][0]["text"] == "ok"
        assert a.told("provider:request")[0]["messages"] == [{"role": "user", "content": "hello"}]
        posted = [data["tool_result"] for data in a.told("tool:post")]
        assert [one["output"] for one in posted if one["success"]] == ["done"]
        assert a.told("tool:error")[0]["error"] == {"type": "RuntimeError", "msg": "exit code 1"}
        assert "object at 0x" not in str(a.events)


# ------------------------------------------------------------------ provider and tool events


@each_loop
async def test_provider_request_tells_messages_and_model_before_the_llm_call(agent: Any, loop: str) -> None:
    async with agent([{"text": "ok"}], loop=loop) as a:
        a.on("provider:request", HookResult(action="deny", reason="not now"))
        await a.ask("what is told?")
        (told,) = a.told("provider:request")
        assert (told["provider"], told["model"]) == ("scripted", "scripted-1")
        assert [message["content"] for message in told["messages"]] == ["what is told?"]
        assert a.requests == []


# ------------------------------------------------------------------ execution:start and execution:end


def test_the_constants_of_the_kernel_are_the_names_of_the_contract() -> None:
    assert (EXECUTION_START, EXECUTION_END) == ("execution:start", "execution:end")


@each_loop
async def test_execution_start_with_the_prompt_comes_before_any_other_work(agent: Any, loop: str) -> None:
    async with agent([{"text": "ok"}], loop=loop) as a:
        done: list[tuple[str, int, int]] = []

        async def note(event: str, _: dict[str, Any]) -> HookResult:
            done.append((event, len(await a.messages()), len(a.requests)))
            return HookResult()

        for event in ("execution:start", "prompt:submit", "provider:request"):
            a.hooks.register(event, note, name="note")
        await a.ask("the very prompt")
        assert done == [("execution:start", 0, 0), ("prompt:submit", 0, 0), ("provider:request", 1, 0)]
        assert a.names()[:2] == ["session:start", "execution:start"]
        assert a.told("execution:start")[0]["prompt"] == "the very prompt"


@each_loop
async def test_execution_starts_and_ends_even_where_no_provider_is_mounted(agent: Any, loop: str) -> None:
    async with agent(loop=loop) as a:
        await a.session.coordinator.unmount("providers", "scripted")
        with pytest.raises(RuntimeError, match="no provider"):
            await a.ask()
        assert a.names()[1] == "execution:start"
        assert [data["status"] for data in a.told("execution:end")] == ["error"]


@each_loop
async def test_execution_starts_and_ends_even_where_a_loop_made_by_hand_finds_no_gate(loop: str) -> None:
    (point,) = entry_points(group="amplifier.modules", name=loop)
    parts = vars(import_module(point.module)).values()
    make: Any = next(each for each in parts if isinstance(each, type) and getattr(each, "name", "") == loop)
    make_recorder: Any = EventRecorder
    recorder = make_recorder()
    with pytest.raises(ConfigError):
        await make({"toolgate": {"redis": "http://nowhere"}}).execute(
            "hi", MockContextManager(), {}, {}, recorder
        )
    assert [name for name, _ in recorder.events[:1]] == ["execution:start"]
    assert [data["status"] for _, data in recorder.get_events("execution:end")] == ["error"]


@each_loop
async def test_execution_starts_and_ends_even_where_a_tool_cannot_tell_its_schema(
    agent: Any, loop: str
) -> None:
    class Broken:
        name, description = "broken", "its schema cannot be read"

        @property
        def input_schema(self) -> dict[str, Any]:
            raise OSError("no schema file")

    async with agent(loop=loop) as a:
        await a.session.coordinator.mount("tools", Broken(), name="broken")
        with pytest.raises(RuntimeError, match="no schema file"):
            await a.ask()
        assert a.names("execution:start", "execution:end") == ["execution:start", "execution:end"]
        assert a.told("execution:end")[0]["status"] == "error"


@each_loop
async def test_normal_completion_ends_with_the_response_and_completed(agent: Any, loop: str) -> None:
    async with agent([{"text": "final response"}], loop=loop) as a:
        await a.ask()
        (end,) = a.told("execution:end")
        assert (end["response"], end["status"]) == ("final response", "completed")
        assert a.names()[-1] == "execution:end"


@each_loop
async def test_an_error_ends_with_no_response_and_error_and_is_raised(agent: Any, loop: str) -> None:
    class Broken:
        async def add_message(self, message: dict[str, Any]) -> None:
            raise OSError("disk full")

    async with agent(loop=loop) as a:
        await a.session.coordinator.mount("context", Broken())
        with pytest.raises(RuntimeError, match="disk full"):
            await a.ask()
        (end,) = a.told("execution:end")
        assert (end["response"], end["status"]) == ("", "error")
        assert a.names()[-1] == "execution:end"


@each_loop
async def test_a_cancellation_ends_with_no_response_and_cancelled_and_is_raised(
    agent: Any, llm: Any, loop: str
) -> None:
    async with agent(loop=loop, llm=llm([asyncio.Event()])) as a:
        coordinator = a.session.coordinator
        names = ("orchestrator", "context", "providers", "tools")
        orchestrator, *common = map(coordinator.get, names)
        asked = asyncio.Event()

        def note(_: dict[str, Any]) -> HookResult:
            asked.set()
            return HookResult()

        a.on("provider:request", note)
        task = asyncio.ensure_future(
            orchestrator.execute("hi", *common, coordinator.hooks, coordinator=coordinator)
        )
        await asyncio.wait_for(asked.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (end,) = a.told("execution:end")
        assert (end["response"], end["status"]) == ("", "cancelled")
        assert a.names()[-1] == "execution:end"


# ------------------------------------------------------------------ orchestrator:complete


@each_loop
@pytest.mark.parametrize(
    ("way", "status"), [("answer", "success"), ("limit", "incomplete"), ("cancelled", "cancelled")]
)
async def test_orchestrator_complete_tells_one_of_the_three_statuses(
    agent: Any, tool: Any, calls: Any, loop: str, way: str, status: str
) -> None:
    config = {"max_iterations": 1} if way == "limit" else {}
    turns = [calls("step"), {"text": "an answer"}]
    async with agent(turns, tools=[tool("step")], loop=loop, config=config) as a:
        if way == "cancelled":
            a.tools["step"].answer = lambda _: a.session.coordinator.request_cancel(immediate=False)
        await a.ask()
        (end,) = a.told("orchestrator:complete")
        assert (end["orchestrator"], end["status"]) == (loop, status)
        assert isinstance(end["turn_count"], int)
        assert end["turn_count"] == len(a.requests)


@each_loop
async def test_orchestrator_complete_is_emitted_once_at_the_end_of_every_turn(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    names: list[str] = []
    async with agent([{"text": "one"}, {"text": "two"}, {"error": "overloaded"}], loop=loop) as a:

        def name_session(_: dict[str, Any]) -> HookResult:
            names.append(f"session {len(names) + 1}")
            return HookResult()

        a.on("orchestrator:complete", *[name_session] * 9)
        await a.ask()
        await a.ask()
        await fail_to_answer(a, loop)
        assert names == ["session 1", "session 2", "session 3"]
        ends = ["orchestrator:complete", "execution:end"]
        assert a.names("orchestrator:complete", "execution:end") == ends * 3
        statuses = [data["status"] for data in a.told("orchestrator:complete")]
        failed = "error" if loop == "loop-streaming" else "incomplete"
        assert statuses == ["success", "success", failed]
