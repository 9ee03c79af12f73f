"""The provider's streams through the real SDK: what comes when; time-outs, retries, cancellation."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from amplifier_core import ChatResponse, ToolSpec, llm_errors
from openai_client import BOUND_S, events_of, forget_environment, of_type, provider_for, request
from openai_server import Exchange, Server, call, chunk, completion, error, finish, streamed, text, usage
from toolgate_orchestrator.modules.provider_openai.provider import ProviderOpenAI
from toolgate_orchestrator.turn.values.messages import text_of


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as started:
        yield started


@pytest.fixture
async def provider(server: Server) -> AsyncIterator[ProviderOpenAI]:
    provider = provider_for(server)
    yield provider
    await provider.close()


async def test_text_arrives_before_the_response_has_ended(server: Server, provider: ProviderOpenAI) -> None:
    held = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(chunk({"reasoning": "hm"}), text("he"))
        await held.wait()
        await exchange.send(text("llo"), finish(), usage())
        await exchange.end()

    server.answers(answer)
    events: list[Any] = []
    async with asyncio.timeout(BOUND_S):
        async for event in provider.stream(request()):
            events.append(event)
            if isinstance(event, dict) and event.get("text") == "he":
                assert not held.is_set()
                held.set()
    assert [event["type"] for event in events[:-1]] == [
        "message.start",
        "thinking.delta",
        "text.delta",
        "text.delta",
        "message.end",
    ]
    assert events[-2]["usage"]["total_tokens"] == 15
    final = events[-1]
    assert isinstance(final, ChatResponse)
    assert (text_of(final), final.finish_reason) == ("hello", "stop")
    (asked,) = server.bodies
    assert (asked["stream"], asked["stream_options"]) == (True, {"include_usage": True})


async def test_a_streamed_call_is_told_before_the_next_one_begins(
    server: Server, provider: ProviderOpenAI
) -> None:
    held = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(call(0, "", "a", "web_search"), call(0, '{"q":'), call(0, ' "x"}'))
        await held.wait()
        await exchange.send(call(1, '{"q": 2}', "b", "web_search"), finish("tool_calls"))
        await exchange.end()

    server.answers(answer)
    asked = request(tools=[ToolSpec(name="web.search", parameters={})])
    events: list[Any] = []
    async with asyncio.timeout(BOUND_S):
        async for event in provider.stream(asked):
            events.append(event)
            if isinstance(event, dict) and event["type"] == "tool_call.end":
                held.set()
    assert of_type(events, "tool_call.end") == [
        {"type": "tool_call.end", "id": "a", "name": "web.search", "arguments": {"q": "x"}},
        {"type": "tool_call.end", "id": "b", "name": "web.search", "arguments": {"q": 2}},
    ]
    assert [one.id for one in events[-1].tool_calls] == ["a", "b"]


async def test_bad_json_in_a_streamed_call_goes_out_as_the_text_it_is(
    server: Server, provider: ProviderOpenAI
) -> None:
    server.answers(streamed(call(0, '{"q": ', "a", "t"), call(0, "oops}"), finish("tool_calls")))
    events = await events_of(provider)
    (end,) = of_type(events, "tool_call.end")
    assert end["arguments"] == '{"q": oops}'
    assert events[-1].tool_calls[0].arguments == {}
    (raw,) = provider.parse_tool_calls(events[-1])
    assert raw == {"id": "a", "name": "t", "arguments": '{"q": oops}'}


async def test_lone_surrogates_from_a_server_become_question_marks(
    server: Server, provider: ProviderOpenAI
) -> None:
    broken = call(0, json.dumps({"x": "\ud800", "y": "😀"}), "a", "t\ud800")
    server.answers(streamed(text("a\ud800"), broken, finish("tool_calls")))
    events = await events_of(provider)
    final = events[-1]
    assert text_of(final) == "a?"
    assert [(one.name, one.arguments) for one in final.tool_calls] == [("t?", {"x": "?", "y": "😀"})]
    json.dumps([events[:-1], final.model_dump()], ensure_ascii=False).encode()


async def test_a_server_that_refuses_stream_options_is_asked_without(
    server: Server, provider: ProviderOpenAI
) -> None:
    refusal = error(400, "Unknown parameter: 'stream_options'.")
    server.answers(refusal, streamed(text("a"), finish()), streamed(text("b"), finish()))
    assert text_of((await events_of(provider))[-1]) == "a"
    assert text_of((await events_of(provider))[-1]) == "b"
    assert ["stream_options" in body for body in server.bodies] == [True, False, False]


async def test_a_server_that_tells_no_usage_leaves_it_unknown(
    server: Server, provider: ProviderOpenAI
) -> None:
    server.answers(streamed(text("a"), finish()))
    assert (await events_of(provider))[-1].usage is None


async def test_a_request_takes_no_longer_than_its_timeout(server: Server, provider: ProviderOpenAI) -> None:
    never = asyncio.Event()

    async def silent(exchange: Exchange) -> None:
        await never.wait()

    async def slow(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(text("a"))
        await never.wait()

    server.answers(silent, silent, slow)
    asked = request(timeout=0.2)
    for stream in (False, True, True):
        with pytest.raises(llm_errors.LLMTimeoutError, match="in time") as caught:
            await (events_of(provider, asked) if stream else provider.complete(asked))
        assert caught.value.retryable


async def test_a_silent_server_is_given_up_after_the_configured_time(server: Server) -> None:
    never = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(text("a"))
        await never.wait()

    server.answers(slow)
    provider = provider_for(server, timeout_s=0.2)
    with pytest.raises(llm_errors.LLMTimeoutError):
        await events_of(provider)
    await provider.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_retries_are_those_of_the_config(server: Server, stream: bool) -> None:
    refusal = error(429, headers={"retry-after-ms": "1"})
    provider = provider_for(server, max_retries=1)
    server.answers(refusal, streamed(text("ok"), finish()) if stream else completion("ok"))
    response: Any = (await events_of(provider))[-1] if stream else await provider.complete(request())
    assert text_of(response) == "ok"
    assert response.metadata["retries"] == 1
    server.answers(refusal, refusal)
    with pytest.raises(llm_errors.RateLimitError):
        await provider.complete(request())
    assert len(server.requests) == 4
    await provider.close()


async def test_cancelling_the_reader_closes_the_connection(server: Server, provider: ProviderOpenAI) -> None:
    never, said = asyncio.Event(), asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(text("a"))
        await never.wait()

    async def read() -> None:
        async for _ in provider.stream(request()):
            said.set()

    server.answers(slow)
    reading = asyncio.ensure_future(read())
    async with asyncio.timeout(BOUND_S):
        await said.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await server.requests[0].gone.wait()


async def test_a_reader_that_stops_early_closes_the_connection(
    server: Server, provider: ProviderOpenAI
) -> None:
    never = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(text("a"))
        await never.wait()

    server.answers(slow)
    stream = provider.stream(request())
    async with asyncio.timeout(BOUND_S):
        await anext(stream)
        await stream.aclose()
        await server.requests[0].gone.wait()


async def test_cancelling_a_whole_answer_closes_the_connection(
    server: Server, provider: ProviderOpenAI
) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def silent(exchange: Exchange) -> None:
        asked.set()
        await never.wait()

    server.answers(silent)
    waiting = asyncio.ensure_future(provider.complete(request()))
    async with asyncio.timeout(BOUND_S):
        await asked.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await server.requests[0].gone.wait()
