"""The provider through the real SDK, against a server on loopback: streams, errors, retries, cancellation."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from amplifier_core import ChatRequest, ChatResponse, Message, ToolSpec, llm_errors
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.modules.provider_openai import ProviderOpenAI
from toolgate_orchestrator.modules.provider_openai_errors import Whose, told
from toolgate_orchestrator.turn.messages import calls_in, text_of

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode adds no folder
from openai_server import (
    MODEL,
    Exchange,
    Server,
    call,
    chunk,
    completion,
    error,
    finish,
    streamed,
    text,
    usage,
)

KEY = "sk-test-0123456789abcdef"
BOUND_S = 10


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as started:
        yield started


@pytest.fixture
async def provider(server: Server) -> AsyncIterator[ProviderOpenAI]:
    provider = provider_for(server)
    yield provider
    await provider.close()


def provider_for(server: Server, **config: Any) -> ProviderOpenAI:
    return ProviderOpenAI(
        {"base_url": server.url, "model": MODEL, "api_key": KEY, "max_retries": 0, **config}
    )


def request(said: str = "hello", **fields: Any) -> ChatRequest:
    return ChatRequest(messages=[Message(role="user", content=said)], **fields)


async def events_of(
    provider: ProviderOpenAI, asked: ChatRequest | None = None, into: list[Any] | None = None
) -> list[Any]:
    events = [] if into is None else into
    async with asyncio.timeout(BOUND_S):
        async for event in provider.stream(asked or request()):
            events.append(event)
    return events


def of_type(events: list[Any], *types: str) -> list[dict[str, Any]]:
    return [event for event in events if isinstance(event, dict) and event["type"] in types]


# ---------------------------------------------------------------------- whole answers


async def test_a_whole_answer_has_text_usage_and_what_was_asked(
    server: Server, provider: ProviderOpenAI
) -> None:
    details = {
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    told = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **details}
    server.answers(completion("hi", message={"reasoning_content": "hm"}, usage=told))
    response = await provider.complete(request())
    assert (text_of(response), response.finish_reason) == ("hi", "stop")
    assert [block.type for block in response.content] == ["thinking", "text"]
    assert response.usage is not None
    counts = response.usage.model_dump(exclude_none=True)
    assert counts == {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "cache_read_tokens": 4,
        "reasoning_tokens": 2,
    }
    (sent,) = server.requests
    assert (sent.method, sent.path) == ("POST", "/v1/chat/completions")
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.body == {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}


async def test_the_fields_of_a_request_and_the_config_reach_the_server(server: Server) -> None:
    provider = provider_for(
        server,
        temperature=0.5,
        max_output_tokens=100,
        extra_body={"top_k": 3},
        extra_headers={"x-team": "blue-team"},
        reasoning_effort="high",
    )
    server.answers(completion("1"), completion("2"), completion("3"))
    schema = {"type": "json_schema", "json_schema": {"type": "object"}, "strict": True}
    asked = request(
        tools=[ToolSpec(name="web.search", description="d", parameters={"type": "object"})],
        tool_choice="web.search",
        temperature=0.1,
        top_p=0.9,
        max_output_tokens=7,
        stop=["END"],
        reasoning_effort="low",
        model="other",
        response_format=schema,
    )
    await provider.complete(asked)
    await provider.complete(request(), extended_thinking=True)
    await provider.complete(asked, model="third", tool_choice="none", unheard_of=1)
    first, second, third = server.bodies
    function = {"name": "web_search", "description": "d", "parameters": {"type": "object"}}
    assert first == {
        "model": "other",
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "web_search"}},
        "temperature": 0.1,
        "top_p": 0.9,
        "max_tokens": 7,
        "stop": ["END"],
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "response", "schema": {"type": "object"}, "strict": True},
        },
        "top_k": 3,
    }
    assert (second["temperature"], second["max_tokens"], second["reasoning_effort"]) == (0.5, 100, "high")
    assert (third["model"], third["tool_choice"]) == ("third", "none")
    assert server.requests[0].headers["x-team"] == "blue-team"
    await provider.close()


async def test_calls_come_back_by_the_names_of_the_tools(server: Server, provider: ProviderOpenAI) -> None:
    calls = [
        {"id": "a", "type": "function", "function": {"name": "web_search", "arguments": '{"q": 1}'}},
        {"id": "b", "type": "function", "function": {"name": "web_search", "arguments": "{oops"}},
    ]
    server.answers(completion(None, message={"tool_calls": calls}, finish_reason="tool_calls"))
    asked = request(tools=[ToolSpec(name="web.search", parameters={})])
    response = await provider.complete(asked)
    assert response.tool_calls is not None
    assert [(one.name, one.arguments) for one in response.tool_calls] == [
        ("web.search", {"q": 1}),
        ("web.search", {}),
    ]
    sound, bad = calls_in(provider.parse_tool_calls(response))
    assert (sound.name, sound.arguments, sound.problem) == ("web.search", {"q": 1}, None)
    assert bad.problem is not None
    assert "not valid JSON" in bad.problem


# ---------------------------------------------------------------------- streams


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


# ---------------------------------------------------------------------- cost


async def test_the_configured_prices_make_the_cost_exactly(server: Server) -> None:
    prices = {"input_per_million": 2.5, "output_per_million": "10", "cached_input_per_million": 1.25}
    provider = provider_for(server, prices=prices)
    used = usage(1000, 100, prompt_tokens_details={"cached_tokens": 200})
    server.answers(streamed(text("a"), finish(), used), completion("b", usage=used["usage"]), completion("c"))
    events = await events_of(provider)
    assert events[-1].usage.cost_usd == Decimal("0.00325")
    await provider.complete(request())
    assert (await provider.complete(request())).usage is None
    assert provider.spent() == {"cost_usd": Decimal("0.0065")}
    server.answers(completion("d", usage=used["usage"]))
    other = await provider.complete(request(model="another"))
    assert other.usage is not None
    assert other.usage.cost_usd is None, "the prices are those of the configured model"
    await provider.close()


async def test_what_a_proxy_says_it_cost_counts_before_the_prices(server: Server) -> None:
    provider = provider_for(server, prices={"input_per_million": 1, "output_per_million": 1})
    said = {"x-litellm-response-cost": "2.85e-05"}
    nothing_yet = {"x-litellm-response-cost": "0.0"}
    tokens = usage(10, 10)["usage"]
    server.answers(
        completion("a", usage=tokens, headers=said),
        completion("b", usage=tokens, headers=nothing_yet),
        completion("c", usage=tokens, headers={"x-litellm-response-cost": "NaN"}),
        streamed(text("d"), finish(), usage(10, 10), headers=nothing_yet),
        streamed(text("e"), finish(), usage(10, 10, cost=0.25), headers=nothing_yet),
    )
    whole = [await provider.complete(request()) for _ in range(3)]
    streams = [(await events_of(provider))[-1] for _ in range(2)]
    assert [response.usage.cost_usd for response in [*whole, *streams] if response.usage] == [
        Decimal("0.0000285"),
        Decimal(0),
        Decimal("0.00002"),
        Decimal("0.00002"),
        Decimal("0.25"),
    ]
    await provider.close()


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("status", "more", "kind", "retryable"),
    [
        (400, {}, llm_errors.InvalidRequestError, False),
        (400, {"code": "context_length_exceeded"}, llm_errors.ContextLengthError, False),
        (400, {"message": "maximum context length is 4096"}, llm_errors.ContextLengthError, False),
        (400, {"code": "content_filter"}, llm_errors.ContentFilterError, False),
        (401, {}, llm_errors.AuthenticationError, False),
        (403, {}, llm_errors.AccessDeniedError, False),
        (404, {}, llm_errors.NotFoundError, False),
        (408, {}, llm_errors.LLMTimeoutError, True),
        (409, {}, llm_errors.ProviderUnavailableError, True),
        (413, {}, llm_errors.ContextLengthError, False),
        (418, {}, llm_errors.InvalidRequestError, False),
        (422, {}, llm_errors.InvalidRequestError, False),
        (429, {}, llm_errors.RateLimitError, True),
        (429, {"code": "insufficient_quota"}, llm_errors.QuotaExceededError, False),
        (500, {}, llm_errors.ProviderUnavailableError, True),
        (503, {}, llm_errors.ProviderUnavailableError, True),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_each_status_is_an_error_of_its_kind(
    server: Server,
    provider: ProviderOpenAI,
    status: int,
    more: dict[str, Any],
    kind: type[llm_errors.LLMError],
    retryable: bool,
    stream: bool,
) -> None:
    server.answers(error(status, **{"message": f"said no to {KEY}", **more}))
    with pytest.raises(llm_errors.LLMError) as caught:
        await (events_of(provider) if stream else provider.complete(request()))
    failed = caught.value
    assert type(failed) is kind
    assert (failed.status_code, failed.retryable) == (status, retryable)
    assert (failed.provider, failed.model) == ("openai-compatible", MODEL)
    assert str(failed) == more.get("message", "said no to [secret]")
    assert failed.__cause__ is not None
    assert KEY not in f"{failed!r}{failed.__cause__}{failed.__cause__!r}{vars(failed.__cause__)['body']}"


@pytest.mark.parametrize(
    ("header", "value", "seconds"),
    [
        ("retry-after", "7", 7.0),
        ("retry-after-ms", "1500", 1.5),
        ("retry-after", "-1", None),
        ("retry-after", "soon", None),
        ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
    ],
)
async def test_how_long_to_wait_is_read_from_the_header(
    server: Server, provider: ProviderOpenAI, header: str, value: str, seconds: float | None
) -> None:
    server.answers(error(429, headers={header: value}))
    with pytest.raises(llm_errors.RateLimitError) as caught:
        await provider.complete(request())
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    "body", ['{"error": "plain"}', '{"detail": [{"loc": ["plain"]}]}', "plain", '["plain"]']
)
async def test_errors_in_other_forms_say_what_the_server_said(
    server: Server, provider: ProviderOpenAI, body: str
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.raw(body.encode(), 422, {"content-type": "application/json"})

    server.answers(answer)
    with pytest.raises(llm_errors.InvalidRequestError, match="plain"):
        await provider.complete(request())


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("begun", [(), (text("half an"),)])
async def test_a_connection_that_breaks_in_mid_stream_is_a_retryable_error(
    server: Server, provider: ProviderOpenAI, chunked: bool, begun: tuple[Any, ...]
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.begin(chunked=chunked)
        await exchange.send(*begun)
        exchange.drop()

    server.answers(answer)
    said: list[Any] = []
    with pytest.raises(llm_errors.StreamError) as caught:
        await events_of(provider, into=said)
    assert caught.value.retryable
    assert [event["text"] for event in of_type(said, "text.delta")] == ["half an"] * len(begun)


async def test_an_end_without_a_finish_reason_is_no_answer(server: Server, provider: ProviderOpenAI) -> None:
    server.answers(streamed(text("half an")))
    with pytest.raises(llm_errors.StreamError, match="before it was complete") as caught:
        await events_of(provider)
    assert caught.value.retryable


async def test_what_breaks_behind_a_whole_answer_does_not_matter(
    server: Server, provider: ProviderOpenAI
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(text("all of it"), finish())
        exchange.drop()

    server.answers(answer)
    assert text_of((await events_of(provider))[-1]) == "all of it"


@pytest.mark.parametrize("garbage", [b"data: {oops\n\n", b'data: {"id": "\xff"}\n\n'])
async def test_garbage_in_a_stream_is_an_error_and_no_crash(
    server: Server, provider: ProviderOpenAI, garbage: bytes
) -> None:
    server.answers(streamed(text("a"), garbage, finish()))
    with pytest.raises(llm_errors.StreamError):
        await events_of(provider)


async def test_an_error_that_the_server_tells_in_mid_stream_keeps_its_kind(
    server: Server, provider: ProviderOpenAI
) -> None:
    server.answers(
        streamed(text("a"), {"error": {"message": "bad input", "code": 400}}),
        streamed(text("a"), {"error": {"message": "engine died"}}),
        streamed(text("a"), {"error": {"message": "no", "code": "context_length_exceeded"}}),
    )
    for kind in (llm_errors.InvalidRequestError, llm_errors.StreamError, llm_errors.ContextLengthError):
        with pytest.raises(kind):
            await events_of(provider)


@pytest.mark.parametrize(
    "odd", [[1], "text", 5, {}, {"choices": 7}, {"choices": [None]}, chunk({"content": 5})]
)
async def test_chunks_of_other_shapes_are_passed_over(
    server: Server, provider: ProviderOpenAI, odd: Any
) -> None:
    server.answers(streamed(text("a"), odd, text("b"), finish()))
    assert text_of((await events_of(provider))[-1]) == "ab"


async def test_a_page_instead_of_an_answer_points_at_the_base_url(
    server: Server, provider: ProviderOpenAI
) -> None:
    async def page(exchange: Exchange) -> None:
        await exchange.raw(b"<html>welcome</html>", 200, {"content-type": "text/html"})

    server.answers(page, page)
    with pytest.raises(llm_errors.ConfigurationError, match="right base_url"):
        await provider.complete(request())
    with pytest.raises(llm_errors.StreamError, match="before it was complete"):
        await events_of(provider)


async def test_an_answer_that_the_filter_took_away_is_an_error(
    server: Server, provider: ProviderOpenAI
) -> None:
    server.answers(completion(None, finish_reason="content_filter"), streamed(finish("content_filter")))
    with pytest.raises(llm_errors.ContentFilterError):
        await provider.complete(request())
    with pytest.raises(llm_errors.ContentFilterError):
        await events_of(provider)


async def test_a_server_that_is_not_there_is_a_network_error() -> None:
    async with Server() as gone:
        url = gone.url
    provider = ProviderOpenAI({"base_url": url, "model": MODEL, "max_retries": 0})
    with pytest.raises(llm_errors.NetworkError, match=r"127\.0\.0\.1") as caught:
        await provider.complete(request())
    assert caught.value.retryable
    with pytest.raises(llm_errors.NetworkError):
        await events_of(provider)
    await provider.close()


# ---------------------------------------------------------------------- time


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
        await stream.aclose()  # type: ignore[attr-defined]  # an asynchronous generator
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


# ---------------------------------------------------------------------- models, config


async def test_it_lists_the_models_of_the_server(server: Server, provider: ProviderOpenAI) -> None:
    async def models(exchange: Exchange) -> None:
        listed = [
            {"id": "small", "object": "model", "created": 1, "owned_by": "x", "max_model_len": 4096},
            {"id": "large", "object": "model", "created": 1, "owned_by": "x"},
            {"object": "model"},
        ]
        await exchange.json({"object": "list", "data": listed})

    server.answers(models, error(401))
    assert [(one.id, one.context_window) for one in await provider.list_models()] == [
        ("small", 4096),
        ("large", 128_000),
    ]
    assert (server.requests[0].method, server.requests[0].path) == ("GET", "/v1/models")
    with pytest.raises(llm_errors.AuthenticationError):
        await provider.list_models()


async def test_a_server_without_keys_gets_a_placeholder(server: Server) -> None:
    server.answers(completion("a"), completion("b"))
    for config in ({"api_key": None}, {"api_key": ""}):
        provider = provider_for(server, **config)
        await provider.complete(request())
        await provider.close()
    assert {asked.headers["authorization"] for asked in server.requests} == {"Bearer no-key"}


async def test_key_and_server_may_come_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " sk-environment\n")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    provider = ProviderOpenAI({"model": MODEL})
    server.answers(completion("a"))
    await provider.complete(request())
    assert server.requests[0].headers["authorization"] == "Bearer sk-environment"
    await provider.close()


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({}, "model: .*name the model to use"),
        ({"model": " "}, "model: .*name the model to use"),
        ({"model": "m", "base": "x"}, "unknown base; allowed: model, base_url"),
        ({"model": "m", "base_url": "localhost:11434"}, "base_url: .*http"),
        (
            {"model": "m", "prices": {"input_per_million": -1, "output_per_million": 1}},
            "prices.input_per_million",
        ),
        ({"model": "m", "prices": {"input_per_million": 1}}, "prices.output_per_million"),
        ({"model": "m", "max_retries": -1}, "max_retries"),
        ({"model": "m", "timeout_s": 0}, "timeout_s"),
        ({"model": "m"}, "api_key: none given; set OPENAI_API_KEY"),
        ({"model": "m", "api_key": "sk-secret\nkey"}, "api_key: .*one line"),
        (
            {"model": "m", "api_key": "k", "extra_headers": {"x": "sk-secret\r\ny: z"}},
            "extra_headers: .*one line",
        ),
    ],
)
def test_a_wrong_config_is_refused_by_name_and_without_its_secrets(
    config: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        ProviderOpenAI(config)
    assert "sk-secret" not in str(caught.value)


def test_a_key_of_the_environment_that_cannot_be_sent_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret\nkey")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY: must be one line") as caught:
        ProviderOpenAI({"model": "m"})
    assert "sk-secret" not in str(caught.value)


def test_secrets_are_taken_out_of_the_whole_chain_of_an_error() -> None:
    inner, outer = OSError(f"refused {KEY}"), RuntimeError("outer")
    outer.__cause__ = inner
    failed = told(outer, Whose("p", "s", (KEY,)), "m")
    assert str(failed) == "outer"
    assert str(inner) == "refused [secret]"


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError, match=r'pip install "toolgate\[llm\]"'):
        ProviderOpenAI({"model": "m", "api_key": KEY})


async def test_it_describes_itself_and_hides_its_key() -> None:
    provider = ProviderOpenAI({"model": "gpt-x", "api_key": KEY, "priority": 3, "name": "mine"})
    info = provider.get_info()
    assert (provider.name, provider.model, provider.priority, info.id) == ("mine", "gpt-x", 3, "mine")
    assert {key: info.defaults[key] for key in ("model", "context_window", "max_output_tokens")} == {
        "model": "gpt-x",
        "context_window": 128_000,
        "max_output_tokens": 8_192,
    }
    assert KEY not in f"{info!r}{vars(provider)}"
    await provider.close()
