"""A request that a provider finds too long is sent with less of the conversation, or not at all."""

from typing import Any

import pytest
from amplifier_core import HookResult
from amplifier_core.llm_errors import ContextLengthError
from four_loops import LOOPS

pytestmark = pytest.mark.pure


def size(estimated: int, limit: int, context: int, output: int | None = None) -> dict[str, int]:
    said = {"estimated_input_tokens": estimated, "input_limit_tokens": limit, "context_token_budget": context}
    return said if output is None else said | {"max_output_tokens": output}


def measuring(model: Any, *said: Any) -> Any:
    """Has a provider measure its requests, and answer these one after another."""
    left, model.measured = list(said), []

    async def request_budget(request: Any, *, context_estimate: int, request_options: Any = None) -> Any:
        model.measured.append((len(request.messages), context_estimate, request_options))
        return left.pop(0)

    model.request_budget = request_budget
    return model


def heard_of(a: Any, event: str) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []

    async def hear(_event: str, data: dict[str, Any]) -> HookResult:
        heard.append(data)
        return HookResult()

    a.hooks.register(event, hear, name="test")
    return heard


async def remember(a: Any) -> None:
    """A conversation of some length."""
    context = a.session.coordinator.get("context")
    for number in range(6):
        await context.add_message({"role": "user", "content": f"old question {number} " * 40})
        await context.add_message({"role": "assistant", "content": f"old answer {number} " * 40})


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_request_that_is_too_long_is_sent_with_less_of_the_conversation_and_all_that_hooks_say(
    agent: Any, llm: Any, loop: str
) -> None:
    model = measuring(llm(), size(900, 300, 200), size(250, 300, 200, 128))
    async with agent(llm=model, loop=loop) as a:
        told = heard_of(a, "orchestrator:provider_budget")
        await remember(a)
        a.on("prompt:submit", HookResult(action="inject_context", context_injection="note", ephemeral=True))
        assert await a.ask() == "done"
        (request,) = a.requests
        (before, estimate, options), (after, *_) = model.measured
        assert (before, options) == (14, {})
        assert estimate > 500
        assert len(request.messages) == after < before
        assert {"hello", "note"} <= {message.content for message in request.messages}
        assert request.max_output_tokens == 128
        assert [event["result"] for event in told] == ["oversized", "fits"]
        assert len(a.told("provider:request")) == 1


async def test_a_provider_that_cannot_say_is_asked_as_ever(agent: Any, llm: Any) -> None:
    async with agent(llm=measuring(llm(), None)) as a:
        told = heard_of(a, "orchestrator:provider_budget")
        assert await a.ask() == "done"
        assert [(event["result"], event["mode"]) for event in told] == [("unavailable", "initial_fallback")]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([size(9, 5, 0)], "cannot retain"),
        ([size(9, 5, 7), size(8, 5, 7)], "would not reduce"),
        ([size(9, 5, 7), size(8, 5, 4), size(7, 5, 2)], "after two context rebuilds"),
        ([size(9, 5, 7), None], "unavailable after"),
        ([{"estimated_input_tokens": True}], "invalid budget decision"),
        ([size(9, -5, 7)], "invalid budget decision"),
        (["much"], "invalid budget decision"),
    ],
)
async def test_what_cannot_be_made_to_fit_is_not_sent(agent: Any, llm: Any, said: Any, why: str) -> None:
    async with agent(llm=measuring(llm(), *said), loop="loop-basic") as a:
        with pytest.raises(RuntimeError, match=f"ContextLengthError.*{why}"):
            await a.ask()
        assert a.requests == []
        assert len(a.told("provider:error")) == 1


def recovering(model: Any, said: Any) -> Any:
    """Has a provider say how short a request that it refused has to be."""
    model.asked = []

    def recover_context_overflow(request: Any, error: Exception, **keywords: Any) -> Any:
        model.asked.append((str(error), sorted(keywords)))
        return said

    model.recover_context_overflow = recover_context_overflow
    return model


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_request_that_was_refused_as_too_long_is_sent_once_more_and_shorter(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    model = recovering(llm([ContextLengthError("too long")], [says("recovered")]), size(900, 300, 200, 64))
    async with agent(llm=model, loop=loop) as a:
        told = heard_of(a, "orchestrator:provider_overflow_recovery")
        await remember(a)
        assert await a.ask() == "recovered"
        first, second = a.requests
        assert len(second.messages) < len(first.messages)
        assert second.max_output_tokens == 64
        assert model.asked == [("too long", ["context_estimate"])]
        assert [event["result"] for event in told] == ["retry"]
        assert a.told("provider:error") == []
        assert a.told("orchestrator:complete")[0]["metadata"]["llm_calls"] == 1


@pytest.mark.parametrize(
    ("said", "result"),
    [
        (None, "unavailable"),
        (size(900, 300, 0), "invalid"),
        (size(900, 300, 999_999), "invalid"),
        (size(10, 300, 200), "invalid"),
        ({}, "invalid"),
    ],
)
async def test_advice_that_would_not_help_is_not_followed(
    agent: Any, llm: Any, said: Any, result: str
) -> None:
    model = recovering(llm([ContextLengthError("too long")]), said)
    async with agent(llm=model, loop="loop-basic") as a:
        told = heard_of(a, "orchestrator:provider_overflow_recovery")
        await remember(a)
        with pytest.raises(RuntimeError, match="too long"):
            await a.ask()
        assert [event["result"] for event in told] == [result]
        assert (len(a.requests), len(a.told("provider:error"))) == (1, 1)


async def test_an_answer_that_has_begun_is_not_asked_for_again(agent: Any, llm: Any, says: Any) -> None:
    model = recovering(llm([says("I beg"), ContextLengthError("too long")]), size(900, 300, 200))
    async with agent(llm=model, loop="loop-streaming") as a:
        await remember(a)
        with pytest.raises(RuntimeError, match="too long"):
            await a.ask()
        assert (len(a.requests), model.asked) == (1, [])
