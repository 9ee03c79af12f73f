"""Whatever stands in an answer of the LLM is shown to rules, or excused by its kind, before it is used."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import ChatResponse, Usage
from amplifier_core.llm_errors import ContextLengthError
from amplifier_core.message_models import (
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    ToolResultBlock,
)
from four_loops import LOOPS, begin_turn, causes_of
from ruled_bus import SECRET, RuledBus, mask_secret
from toolgate_bus.protocol.events import Continue, Mask, MaskedPart

pytestmark = pytest.mark.pure

READ = ToolCall(id="c1", name="read", arguments={"x": "ok"})


class Texts(ChatResponse):
    """A response as some providers give it: with its text once more."""

    text: str | None = None
    content_blocks: list[Any] | None = None


def answer(*more: Any, calls: list[ToolCall] | None = None, **fields: Any) -> ChatResponse:
    return Texts(content=[TextBlock(text="a"), *more], tool_calls=calls, **fields)


def tokens(**more: Any) -> Usage:
    return Usage(input_tokens=3, output_tokens=4, total_tokens=7, **more)


def block(**fields: Any) -> ToolCallBlock:
    return ToolCallBlock(**{"id": "c1", "name": "read", "input": {"x": "ok"}, **fields})


OTHERS: dict[str, ChatResponse] = {
    "a field of a text": ChatResponse(content=[TextBlock(text="a", citations=[{"cited_text": SECRET}])]),
    "a result of the provider's tool": answer(ToolResultBlock(tool_call_id="s1", output=f"web: {SECRET}")),
    "the address of an image": answer(ImageBlock(source={"type": "url", "url": f"http://x/{SECRET}"})),
    "a text in the place of an image's data": answer(
        ImageBlock(source={"type": "base64", "media_type": "image/png", "data": f"it is {SECRET}"})
    ),
    "a field of a call among the blocks": answer(block(note=SECRET), calls=[READ]),
    "other arguments of a call among the blocks": answer(block(input={"x": SECRET}), calls=[READ]),
    "a call among the blocks that is not listed": answer(block(id="zz", input={"x": SECRET}), calls=[READ]),
    "a field of a listed call": answer(calls=[READ.model_copy(update={"note": SECRET})]),
    "a field of the response": answer(note=f"it is {SECRET}"),
    "a text beside the blocks": answer(text=f"it is {SECRET}"),
    "other blocks": answer(content_blocks=[{"type": "text", "text": SECRET}]),
    "a field of the usage": answer(usage=tokens(note=SECRET)),
    "the reason why it ended": answer(finish_reason=SECRET),
}


class Answers:
    """A provider that gives one response, and then another text."""

    name = "llm"
    model = "llm-1"

    def __init__(self, response: Any) -> None:
        self.response, self.requests = response, list[Any]()

    async def complete(self, request: Any, **options: Any) -> Any:
        self.requests.append(request)
        return ChatResponse(content=[TextBlock(text="bye")]) if len(self.requests) > 1 else self.response

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return getattr(response, "tool_calls", None) or []


@pytest.fixture
async def bus() -> AsyncIterator[RuledBus]:
    async with AsyncExitStack() as stack:
        yield RuledBus(stack)


def mask_the_beginning(call: Any) -> Any:
    is_first = SECRET in str(call.result)
    return Mask(parts=[MaskedPart("/text", 0, 2, "it")], reason="no") if is_first else Continue()


async def everything_seen(a: Any, bus: RuledBus) -> str:
    return str(
        [await a.messages(), a.events, bus.facts(), a.session.coordinator.get("providers")["llm"].requests]
    )


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("loop", LOOPS)
async def test_what_a_mask_hides_beside_the_text_of_an_answer_is_seen_by_nobody(
    agent: Any, tool: Any, bus: RuledBus, loop: str, what: str
) -> None:
    await bus.scheduler(mask_secret, tools=("llm:request",))
    async with agent(llm=Answers(OTHERS[what]), tools=[tool("read")]) as a:
        await bus.listens(a, loop)
        given = await a.ask()
        assert SECRET not in await everything_seen(a, bus)
        calls = OTHERS[what].tool_calls
        assert (given, a.tools["read"].calls) == (("bye", [{"x": "ok"}]) if calls else ("a", []))
        (told, *_) = a.told("provider:response")
        assert told["response"] == {"content": "a"}


@pytest.mark.parametrize("what", OTHERS)
async def test_an_answer_of_which_nobody_hides_anything_is_the_providers_own(
    agent: Any, tool: Any, bus: RuledBus, what: str
) -> None:
    async def converse(*, is_ruled: bool) -> Any:
        async with agent(llm=Answers(OTHERS[what]), tools=[tool("read")]) as a:
            if is_ruled:
                await bus.listens(a, "loop-basic")
            await a.ask()
            told = [one["response"] for one in a.told("provider:response")]
            return [str(await a.messages()), told, a.told("content_block:end")]

    await bus.scheduler(Continue(), tools=("llm:request",))
    assert (await converse(is_ruled=True))[1] == (await converse(is_ruled=False))[1]
    first = bus.seen[0].result
    assert (first["text"], first["tool_calls"]) == (
        "a",
        [one.model_dump(include={"id", "name", "arguments"}) for one in OTHERS[what].tool_calls or ()],
    )
    assert SECRET in json.dumps(first["other"])


async def test_of_an_answer_that_holds_nothing_else_only_text_and_calls_are_sent(
    agent: Any, tool: Any, bus: RuledBus
) -> None:
    thoughts = [ThinkingBlock(thinking="t", signature="s"), ReasoningBlock(content=["r"], summary=[])]
    whole = answer(
        *thoughts,
        TextBlock(text="b"),
        block(),
        calls=[READ],
        usage=tokens(cost_usd="0.01"),
        metadata={"state": "m"},
        text="a\n\nb",
        finish_reason="tool_use",
        content_blocks=[{"type": "text", "text": "b", "raw": None}, {"type": "thinking", "text": "t"}],
    )
    await bus.scheduler(Continue(), tools=("llm:request",))
    async with agent(llm=Answers(whole), tools=[tool("read")]) as a:
        await bus.listens(a, "loop-basic")
        await a.ask()
    assert bus.seen[0].result == {"text": "a\n\nb", "tool_calls": [READ.model_dump()]}


@pytest.mark.parametrize(
    "whole",
    [
        {"content": "a"},
        {"content": [{"type": "text", "text": "a"}], "finish_reason": "stop"},
        SimpleNamespace(content="a"),
        SimpleNamespace(content=[TextBlock(text="a")], finish_reason="end_turn", usage=None),
    ],
)
@pytest.mark.parametrize("loop", LOOPS)
async def test_an_answer_of_any_form_is_ruled_on(agent: Any, bus: RuledBus, whole: Any, loop: str) -> None:
    await bus.scheduler(Continue(), tools=("llm:request",))
    async with agent(llm=Answers(whole)) as a:
        await bus.listens(a, loop)
        assert await a.ask() == "a"
    assert bus.seen[0].result == {"text": "a", "tool_calls": []}


async def test_the_data_of_an_image_are_sent_as_type_and_size(agent: Any, bus: RuledBus) -> None:
    image = ImageBlock(source={"type": "base64", "media_type": "image/png", "data": "QUJD" * 50})
    await bus.scheduler(Continue(), tools=("llm:request",))
    async with agent(llm=Answers(answer(image))) as a:
        await bus.listens(a, "loop-basic")
        await a.ask()
    (shown,) = bus.seen[0].result["other"]["content"]
    assert shown["source"]["data"] == "[image/png, 150 bytes, not shown to rules]"


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_usage_of_a_masked_answer_is_its_counts_alone(agent: Any, bus: RuledBus, loop: str) -> None:
    await bus.scheduler(mask_secret, tools=("llm:request",))
    whole = ChatResponse(content=[TextBlock(text=f"it is {SECRET}")], usage=tokens(note=f"x {SECRET}"))
    async with agent(llm=Answers(whole)) as a:
        await bus.listens(a, loop)
        assert await a.ask() == "it is [withheld: key]"
        assert SECRET not in await everything_seen(a, bus)
        counts = tokens().model_dump()
        assert [one["usage"] for one in a.told("provider:response")] == [counts]
        assert [one["usage"] for one in a.told("content_block:end")] == [counts]
    assert [one["output_tokens"] for one in bus.facts("usage")] == [4]


async def test_a_count_that_is_hidden_is_left_out(agent: Any, bus: RuledBus) -> None:
    hide = Mask(parts=[MaskedPart("/text", 3, 7, "pin")], reason="a pin")
    await bus.scheduler(hide, tools=("llm:request",))
    whole = ChatResponse(
        content=[TextBlock(text="is 4711")], usage=Usage(input_tokens=1, output_tokens=4711, total_tokens=2)
    )
    async with agent(llm=Answers(whole)) as a:
        await bus.listens(a, "loop-basic")
        await a.ask()
        (told,) = a.told("provider:response")
        assert "4711" not in str(told)
        assert told["usage"]["input_tokens"] == 1


async def test_reasoning_stays_where_only_the_text_is_masked(agent: Any, bus: RuledBus) -> None:
    await bus.scheduler(mask_secret, tools=("llm:request",))
    thoughts = [ReasoningBlock(content=[say], summary=[]) for say in ("fine", f"say {SECRET}")]
    async with agent(llm=Answers(answer(*thoughts, TextBlock(text=SECRET)))) as a:
        await bus.listens(a, "loop-basic")
        await a.ask()
        assert SECRET not in await everything_seen(a, bus)
        stored = (await a.messages())[-1]["content"]
        assert [one.get("content") for one in stored if one["type"] == "reasoning"] == [["fine"]]


async def test_an_answer_of_which_only_the_rest_is_too_long_keeps_its_text_and_its_calls(
    agent: Any, tool: Any, bus: RuledBus
) -> None:
    await bus.scheduler(Continue(), tools=("llm:request",))
    long = answer(ToolResultBlock(tool_call_id="s1", output="x" * 5_000), block(), calls=[READ])
    async with agent(llm=Answers(long), tools=[tool("read")]) as a:
        await bus.listens(a, "loop-basic", asked={"result_bytes": 1_024})
        assert await a.ask() == "bye"
        assert a.tools["read"].calls == [{"x": "ok"}]
        assert [one["type"] for one in (await a.messages())[1]["content"]] == ["text", "tool_call"]
        assert "xxx" not in await everything_seen(a, bus)


async def test_a_text_that_is_too_long_is_given_as_its_beginning(
    agent: Any, tool: Any, bus: RuledBus
) -> None:
    await bus.scheduler(Continue(), tools=("llm:request",))
    long = ChatResponse(content=[TextBlock(text="x" * 5_000)], tool_calls=[READ])
    async with agent(llm=Answers(long), tools=[tool("read")]) as a:
        await bus.listens(a, "loop-basic", asked={"result_bytes": 1_024})
        said, _, mark = (await a.ask()).partition("\n")
        assert set(said) == {"x"}
        assert mark.startswith("[cut off here: ")
        assert a.tools["read"].calls == []


async def test_an_answer_that_its_provider_changes_while_it_is_ruled_on_is_withheld(
    agent: Any, bus: RuledBus
) -> None:
    whole = answer()

    def change(_: Any) -> Any:
        whole.content.append(TextBlock(text=SECRET))
        return Continue()

    await bus.scheduler(change, tools=("llm:request",))
    async with agent(llm=Answers(whole)) as a:
        await bus.listens(a, "loop-basic")
        assert "withheld: it was changed while it was ruled on" in await a.ask()
        assert SECRET not in await everything_seen(a, bus)


@pytest.mark.parametrize("hides", [mask_secret, mask_the_beginning])
async def test_arguments_that_cannot_be_read_are_ruled_on_too(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any, bus: RuledBus, hides: Callable[[Any], Any]
) -> None:
    await bus.scheduler(hides, tools=("llm:request",))
    model = llm([says("I do"), wants("c1", "read", f'{{"x": {SECRET}')])
    async with agent(llm=model, tools=[tool("read")]) as a:
        await bus.listens(a, "loop-reactive")
        assert await a.ask() == "done"
        assert SECRET not in await everything_seen(a, bus)
    assert SECRET in str(bus.seen[0].result["other"])


async def test_a_cancellation_while_a_request_is_shortened_bears_no_error_of_the_provider(
    agent: Any, llm: Any, bus: RuledBus
) -> None:
    begun = asyncio.Event()
    model = llm([ContextLengthError(f"too long: {SECRET}")])

    async def recover(request: Any, error: Any, *, context_estimate: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    model.recover_context_overflow = recover
    await bus.scheduler(mask_secret, tools=("llm:request",))
    async with agent(llm=model) as a:
        turn = begin_turn(a, await bus.listens(a, "loop-basic"))
        await asyncio.wait_for(begun.wait(), 5)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await turn
    assert SECRET not in str(causes_of(raised.value))
