"""The provider through the real SDK, against a server on loopback: answers, usage, cost, models."""

from collections.abc import AsyncIterator
from decimal import Decimal

import pytest
from amplifier_core import ToolSpec, llm_errors
from openai_client import KEY, events_of, forget_environment, provider_for, request
from openai_server import MODEL, Exchange, Server, completion, error, finish, streamed, text, usage
from toolgate_orchestrator.modules.provider_openai.provider import ProviderOpenAI
from toolgate_orchestrator.turn.values.messages import calls_in, text_of


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


async def test_the_configured_prices_make_the_cost_exactly(server: Server) -> None:
    prices = {"input_per_million": 2.5, "output_per_million": "10", "cached_input_per_million": 1.25}
    provider = provider_for(server, prices=prices)
    used = usage(1000, 100, prompt_tokens_details={"cached_tokens": 200})
    server.answers(streamed(text("a"), finish(), used), completion("b", usage=used["usage"]), completion("c"))
    events = await events_of(provider)
    assert events[-1].usage.cost_usd == Decimal("0.00325")
    await provider.complete(request())
    assert (await provider.complete(request())).usage is None
    assert provider.report_cost() == {"cost_usd": Decimal("0.0065")}
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
