"""The provider in a real AmplifierSession, mounted by its entry point, under each of the loops."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from amplifier_core import HookResult
from openai_client import forget_environment
from openai_server import MODEL, Exchange, Server, call, completion, error, finish, streamed, text, usage

BOUND_S = 20
STREAMING = ["loop-streaming", "loop-events", "loop-reactive"]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as started:
        yield started


def plan(server: Server, loop: str, **config: Any) -> dict[str, Any]:
    provider = {"base_url": server.url, "model": MODEL, "max_retries": 0, **config}
    return {
        "session": {"orchestrator": {"module": loop, "config": {}}, "context": "context-simple"},
        "providers": [{"module": "provider-openai-compatible", "config": provider}],
    }


def whole_call(arguments: str, name: str = "add") -> dict[str, Any]:
    made = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"message": {"tool_calls": [made]}, "finish_reason": "tool_calls"}


def streamed_call(arguments: str, name: str = "add") -> tuple[dict[str, Any], ...]:
    middle = len(arguments) // 2
    return (
        call(0, "", "c1", name),
        call(0, arguments[:middle]),
        call(0, arguments[middle:]),
        finish("tool_calls"),
        usage(),
    )


@pytest.mark.parametrize("loop", ["loop-basic", *STREAMING[:2]])
async def test_a_tool_call_goes_through_and_its_result_comes_back_to_the_server(
    server: Server, agent: Any, tool: Any, loop: str
) -> None:
    if loop == "loop-basic":
        server.answers(completion(None, **whole_call('{"x": 1, "y": 2}', "math_add")), completion("three"))
    else:
        server.answers(
            streamed(*streamed_call('{"x": 1, "y": 2}', "math_add")),
            streamed(text("three"), finish(), usage()),
        )
    add = tool("math.add", lambda arguments: arguments["x"] + arguments["y"])
    prices = {"input_per_million": 1000, "output_per_million": 0}
    async with agent(tools=[add], plan=plan(server, loop, prices=prices)) as a, asyncio.timeout(BOUND_S):
        assert await a.ask("1 + 2?") == "three"
        spent = await a.session.coordinator.collect_contributions("session.cost")
    assert add.calls == [{"x": 1, "y": 2}]
    first, second = server.bodies
    assert [one["function"]["name"] for one in first["tools"]] == ["math_add"]
    assert [one["role"] for one in second["messages"]] == ["user", "assistant", "tool"]
    (made,) = second["messages"][1]["tool_calls"]
    assert json.loads(made["function"]["arguments"]) == {"x": 1, "y": 2}
    assert second["messages"][2] == {"role": "tool", "tool_call_id": made["id"], "content": "3"}
    assert spent == ([] if loop == "loop-basic" else [{"cost_usd": Decimal("0.02")}])


@pytest.mark.parametrize("loop", ["loop-basic", *STREAMING[:2]])
async def test_bad_arguments_are_told_to_the_llm_by_their_problem(
    server: Server, agent: Any, tool: Any, loop: str
) -> None:
    whole = loop == "loop-basic"
    bad = completion(None, **whole_call("{oops")) if whole else streamed(*streamed_call("{oops"))
    server.answers(bad, completion("sorry") if whole else streamed(text("sorry"), finish()))
    add = tool("add")
    async with agent(tools=[add], plan=plan(server, loop)) as a, asyncio.timeout(BOUND_S):
        assert await a.ask() == "sorry"
    assert add.calls == []
    told = server.bodies[1]["messages"][-1]
    assert told["role"] == "tool"
    assert "not valid JSON" in told["content"]


@pytest.mark.parametrize("loop", STREAMING[:2])
async def test_the_first_text_reaches_the_hooks_before_the_response_has_ended(
    server: Server, agent: Any, loop: str
) -> None:
    held = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(text("he"))
        await held.wait()
        await exchange.send(text("llo"), finish())
        await exchange.end()

    async def heard(_event: str, _data: dict[str, Any]) -> HookResult:
        held.set()
        return HookResult()

    server.answers(answer)
    async with agent(plan=plan(server, loop)) as a, asyncio.timeout(BOUND_S):
        a.hooks.register("content_block:delta", heard, name="heard")
        assert await a.ask() == "hello"


async def test_the_first_text_reaches_the_caller_before_the_response_has_ended(
    server: Server, agent: Any, tool: Any
) -> None:
    held = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(text("it"))
        await held.wait()
        await exchange.send(text(" is 3"), finish())
        await exchange.end()

    server.answers(streamed(*streamed_call('{"x": 1}')), answer)
    add = tool("add")
    pieces = []
    async with agent(tools=[add], plan=plan(server, "loop-streaming")) as a, asyncio.timeout(BOUND_S):
        parts = a.session.coordinator
        loop = parts.get("orchestrator")
        mounted = (parts.get("context"), parts.get("providers"), parts.get("tools"), a.hooks)
        async for piece in loop.stream("1 + 2?", *mounted, coordinator=parts):
            pieces.append(piece)
            held.set()  # only now may the response go on
    assert "".join(pieces) == "it is 3"
    assert len(pieces) == 2
    assert add.calls == [{"x": 1}]


@pytest.mark.parametrize("loop", STREAMING)
async def test_a_dropped_connection_is_a_provider_error_and_a_clean_end(
    server: Server, agent: Any, loop: str
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(text("half an"))
        exchange.drop()

    server.answers(answer)
    raising = pytest.raises(RuntimeError, match="StreamError")  # the kernel's, around the provider's
    async with agent(plan=plan(server, loop)) as a, asyncio.timeout(BOUND_S):
        with contextlib.nullcontext() if loop == "loop-events" else raising:
            assert "StreamError" in await a.ask()
        (told,) = a.told("provider:error")
        assert (told["error"]["type"], told["retryable"]) == ("StreamError", True)
        assert len(a.told("execution:end")) == 1
        assert a.told("execution:end")[0]["status"] == "error"
        assert not [one for one in await a.messages() if one["role"] == "tool"]


async def test_a_refused_key_is_told_with_its_status_and_never_with_the_key(
    server: Server, agent: Any
) -> None:
    key = "sk-refused-0123456789"
    server.answers(error(401, f"Incorrect API key provided: {key}"))
    async with agent(plan=plan(server, "loop-events", api_key=key)) as a, asyncio.timeout(BOUND_S):
        answer = await a.ask()
        (told,) = a.told("provider:error")
        assert (told["status_code"], told["retryable"]) == (401, False)
        assert key not in f"{answer}{a.events}{await a.messages()}"


async def test_a_call_starts_while_the_llm_still_speaks(server: Server, agent: Any, tool: Any) -> None:
    started = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(call(0, '{"city": "Kyoto"}', "c1", "weather"))
        await started.wait()  # the rest of the response comes only once the tool runs
        await exchange.send(call(1, '{"output": "sunny"}', "c2", "null"), finish("tool_calls"))
        await exchange.end()

    def run(_arguments: dict[str, Any]) -> str:
        started.set()
        return "sunny"

    server.answers(answer, streamed(text("sunny"), finish()), streamed(text("sunny"), finish()))
    weather = tool("weather", run)
    async with agent(tools=[weather], plan=plan(server, "loop-reactive")) as a, asyncio.timeout(BOUND_S):
        await a.ask("How is the weather in Kyoto?")
    assert weather.calls == [{"city": "Kyoto"}]


async def test_the_session_closes_the_connections(server: Server, agent: Any) -> None:
    server.answers(streamed(text("hello"), finish()))
    async with agent(plan=plan(server, "loop-streaming")) as a, asyncio.timeout(BOUND_S):
        assert await a.ask() == "hello"
        assert not server.requests[0].gone.is_set(), "kept alive for the next request"
    async with asyncio.timeout(BOUND_S):
        await server.requests[0].gone.wait()
