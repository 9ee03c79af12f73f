"""The seed loop-basic, sentence by sentence: its events, when each is emitted and what it carries."""

import asyncio
from typing import Any

import pytest
from amplifier_core import HookResult
from amplifier_core.llm_errors import (
    AuthenticationError,
    ContextLengthError,
    LLMError,
    LLMTimeoutError,
    NetworkError,
    ProviderUnavailableError,
    RateLimitError,
)

pytestmark = pytest.mark.pure

each_loop = pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming"])

USAGE = {"input_tokens": 30, "output_tokens": 4, "total_tokens": 34}
PAGE = {
    "provider:request",
    "provider:response",
    "provider:error",
    "tool:pre",
    "tool:post",
    "tool:error",
    "prompt:submit",
    "prompt:complete",
    "orchestrator:complete",
}
"""The events that the page lists."""


def fail(_: dict[str, Any]) -> Any:
    raise RuntimeError("exit code 1")


@each_loop
async def test_it_emits_all_events_of_its_page(agent: Any, tool: Any, calls: Any, loop: str) -> None:
    turns = [calls("bash", "broken"), {"text": "done"}, {"error": "overloaded"}]
    async with agent(turns, tools=[tool("bash"), tool("broken", fail)], loop=loop) as a:
        await a.ask()
        with pytest.raises(RuntimeError, match="overloaded"):
            await a.ask()
        assert set(a.names()) >= PAGE | {"execution:start", "execution:end"}


@each_loop
async def test_the_event_stream_of_a_turn_is_complete_and_in_order(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls("bash"), {"text": "done"}], tools=[tool("bash")], loop=loop) as a:
        await a.ask()
        told = [name for name in a.names() if not name.startswith(("content_block:", "session:"))]
        assert told == [
            "execution:start",
            "prompt:submit",
            "provider:request",
            "provider:response",
            "tool:pre",
            "tool:post",
            "provider:request",
            "provider:response",
            "prompt:complete",
            "orchestrator:complete",
            "execution:end",
        ]


# ------------------------------------------------------------------ provider events


@each_loop
async def test_provider_request_tells_provider_and_iteration_before_the_llm_is_called(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    seen: list[int] = []

    async with agent([*[calls("bash")] * 2, {"text": "ok"}], tools=[tool("bash")], loop=loop) as a:

        def note(_: dict[str, Any]) -> HookResult:
            seen.append(len(a.requests))
            return HookResult()

        a.on("provider:request", *[note] * 3)
        await a.ask()
        told = [(data["provider"], data["iteration"]) for data in a.told("provider:request")]
        assert told == [("scripted", 1), ("scripted", 2), ("scripted", 3)]
        assert seen == [0, 1, 2]


@each_loop
async def test_provider_response_tells_usage_and_whether_there_are_tool_calls_after_the_llm_answered(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    seen: list[tuple[int, int]] = []
    turns = [{**calls("bash"), "usage": USAGE}, {"text": "ok", "usage": USAGE}]

    async with agent(turns, tools=[tool("bash")], loop=loop) as a:

        def note(_: dict[str, Any]) -> HookResult:
            seen.append((len(a.requests), len(a.tools["bash"].calls)))
            return HookResult()

        a.on("provider:response", *[note] * 2)
        await a.ask()
        first, second = a.told("provider:response")
        assert (first["provider"], first["tool_calls"], second["tool_calls"]) == ("scripted", True, False)
        for response in (first, second):
            assert isinstance(response["usage"], dict)
            assert {name: response["usage"][name] for name in USAGE} == USAGE
        assert seen == [(1, 0), (2, 1)]


@each_loop
@pytest.mark.parametrize(
    ("error", "retryable", "status_code"),
    [
        (RateLimitError("slow down", status_code=429), True, 429),
        (AuthenticationError("bad key", status_code=401), False, 401),
        (ContextLengthError("too long", status_code=413), False, 413),
        (ProviderUnavailableError("down", status_code=503), True, 503),
        (LLMTimeoutError("no answer"), True, None),
        (NetworkError("unreachable"), True, None),
        (LLMError("odd"), False, None),
        (ValueError("not of the kernel"), False, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
async def test_provider_error_tells_what_went_wrong_and_whether_to_try_again(
    agent: Any, llm: Any, loop: str, error: Exception, retryable: bool, status_code: int | None
) -> None:
    async with agent(llm=llm([error]), loop=loop) as a:
        with pytest.raises(RuntimeError, match=str(error)):
            await a.ask()
        (told,) = a.told("provider:error")
        assert told["provider"] == "llm"
        assert told["error"] == {"type": type(error).__name__, "msg": str(error)}
        assert (told["retryable"], told["status_code"]) == (retryable, status_code)


# ------------------------------------------------------------------ tool events


@each_loop
async def test_tool_pre_is_emitted_before_tool_execution(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    ran: list[int] = []
    async with agent([calls(("bash", {"command": "ls"})), {"text": "ok"}], loop=loop) as a:
        bash = tool("bash")
        await a.session.coordinator.mount("tools", bash, name="bash")

        def note(_: dict[str, Any]) -> HookResult:
            ran.append(len(bash.calls))
            return HookResult()

        a.on("tool:pre", note)
        a.on("tool:post", note)
        await a.ask()
        (pre,) = a.told("tool:pre")
        assert (pre["tool_name"], pre["tool_input"]) == ("bash", {"command": "ls"})
        assert isinstance(pre["parallel_group_id"], str)
        assert ran == [0, 1]


@each_loop
async def test_tool_error_tells_type_and_message_and_comes_before_or_without_tool_post(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls("bash"), {"text": "ok"}], tools=[tool("bash", fail)], loop=loop) as a:
        await a.ask()
        (error,) = a.told("tool:error")
        assert error["tool_name"] == "bash"
        assert error["error"] == {"type": "RuntimeError", "msg": "exit code 1"}
        assert error["parallel_group_id"] == a.told("tool:pre")[0]["parallel_group_id"]
        after = ["tool:post"] if loop == "loop-streaming" else []  # hosts of that loop save on tool:post
        assert a.names("tool:error", "tool:post") == ["tool:error", *after]


# ------------------------------------------------------------------ prompt and orchestrator events


@each_loop
@pytest.mark.parametrize("length", [0, 5, 199, 200, 201, 1234])
async def test_prompt_complete_tells_the_first_200_characters_and_the_length(
    agent: Any, loop: str, length: int
) -> None:
    answer = ("0123456789" * 200)[:length]
    async with agent([{"text": answer}], loop=loop) as a:
        assert await a.ask() == answer
        (done,) = a.told("prompt:complete")
        assert (done["response_preview"], done["length"]) == (answer[:200], length)


@each_loop
async def test_prompt_complete_at_the_limit_previews_the_text_that_is_returned(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    turns = [calls("step"), {"text": "so far so good"}]
    async with agent(turns, tools=[tool("step")], loop=loop, config={"max_iterations": 1}) as a:
        await a.ask()
        (done,) = a.told("prompt:complete")
        assert (done["response_preview"], done["length"]) == ("so far so good", 14)
        assert len(a.told("provider:response")) == 2


@each_loop
@pytest.mark.parametrize("rounds", [0, 1, 4])
async def test_orchestrator_complete_tells_name_turn_count_and_status(
    agent: Any, tool: Any, calls: Any, loop: str, rounds: int
) -> None:
    async with agent([*[calls("step")] * rounds, {"text": "ok"}], tools=[tool("step")], loop=loop) as a:
        await a.ask()
        (end,) = a.told("orchestrator:complete")
        assert (end["orchestrator"], end["turn_count"], end["status"]) == (loop, rounds + 1, "success")


@each_loop
async def test_events_of_parallel_calls_name_the_call_they_belong_to(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    first_may_end = asyncio.Event()

    async def first(_: dict[str, Any]) -> str:
        await asyncio.wait_for(first_may_end.wait(), 5)
        return "first"

    async def second(_: dict[str, Any]) -> str:
        first_may_end.set()
        return "second"

    async with agent(
        [calls("a", "b"), {"text": "ok"}], tools=[tool("a", first), tool("b", second)], loop=loop
    ) as a:
        await a.ask()
        posts = {d["tool_call_id"]: (d["tool_name"], d["result"]["output"]) for d in a.told("tool:post")}
        assert posts == {"c1": ("a", "first"), "c2": ("b", "second")}
