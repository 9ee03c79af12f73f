"""What is stored of a response, so that every provider can send it back: calls, thinking, text, tools."""

from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import ChatResponse, TextBlock, ToolCallBlock
from amplifier_core.content_models import TextContent, ThinkingContent, ToolCallContent
from amplifier_core.message_models import RedactedThinkingBlock, ThinkingBlock
from amplifier_core.testing import EventRecorder
from four_loops import LOOPS
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.hooks.injections import Injections
from toolgate_orchestrator.turn.llm.provider_stream import ContentBlocks
from toolgate_orchestrator.turn.values.messages import (
    NOTHING_SAID,
    ToolCall,
    assistant_message,
    chat_request,
    text_of,
    tool_specs,
)

pytestmark = pytest.mark.pure

SIGNED = ThinkingBlock(thinking="Let me see", signature="sig-1", visibility="internal")
CALLS = [ToolCall("c1", "look", {"at": "x"}), ToolCall("c2", "look", {"at": "y"})]
BLOCKS = [ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in CALLS]


def stored(*blocks: Any, calls: Any = ()) -> dict[str, Any]:
    return assistant_message(ChatResponse(content=list(blocks)), calls)


def called(message: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and id of the calls among the blocks."""
    return [(block["name"], block["id"]) for block in message["content"] if block["type"] == "tool_call"]


def test_signed_thinking_stands_where_the_provider_looks_for_it() -> None:
    message = stored(SIGNED, TextBlock(text="I look."), *BLOCKS, calls=CALLS)
    thought = {"type": "thinking", "thinking": "Let me see", "signature": "sig-1", "visibility": "internal"}
    assert message["thinking_block"] == thought
    assert message["content"][0] == thought


def test_redacted_thinking_survives() -> None:
    redacted = RedactedThinkingBlock(data="opaque")
    assert stored(redacted, *BLOCKS, calls=CALLS)["thinking_block"] == {
        "type": "redacted_thinking",
        "data": "opaque",
    }
    both = stored(redacted, SIGNED, *BLOCKS, calls=CALLS)
    assert both["thinking_block"]["signature"] == "sig-1"
    assert [block["type"] for block in both["content"]][:2] == ["redacted_thinking", "thinking"]


@pytest.mark.parametrize("signature", [None, ""])
def test_thinking_that_nobody_signed_is_not_given_back_as_signed(signature: str | None) -> None:
    message = stored(ThinkingBlock(thinking="hm", signature=signature), *BLOCKS, calls=CALLS)
    assert "thinking_block" not in message
    assert message["content"][0]["thinking"] == "hm"


def test_a_call_has_a_name_in_one_place_only() -> None:
    message = stored(*BLOCKS, calls=CALLS)
    assert called(message) == [("look", "c1"), ("look", "c2")]
    assert message["tool_calls"] == [
        {"id": "c1", "tool": "look", "arguments": {"at": "x"}},
        {"id": "c2", "tool": "look", "arguments": {"at": "y"}},
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([BLOCKS[1], TextBlock(text="and")], ["tool_call", "text", "tool_call"]),
        ([TextBlock(text="\n"), *BLOCKS], ["tool_call", "tool_call"]),
    ],
)
def test_every_call_is_among_the_blocks_where_the_provider_puts_one_there(
    content: list[Any], expected: list[str]
) -> None:
    message = stored(*content, calls=CALLS)
    assert [block["type"] for block in message["content"]] == expected
    assert sorted(called(message)) == [("look", "c1"), ("look", "c2")]


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ([], ""),
        ([TextBlock(text="\n")], ""),
        ([TextBlock(text="I look.")], [{"type": "text", "text": "I look."}]),
        ("I look.", "I look."),
    ],
)
def test_calls_that_a_provider_keeps_beside_its_content_stay_there_and_have_their_names(
    content: Any, kept: Any
) -> None:
    listed = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in CALLS]
    message = assistant_message(SimpleNamespace(content=content, tool_calls=listed), CALLS)
    assert message["content"] == kept
    assert [(call["name"], call["tool"]) for call in message["tool_calls"]] == [("look", "look")] * 2


def test_a_block_follows_its_call_into_another_id() -> None:
    again = [BLOCKS[0], BLOCKS[0].model_copy(update={"input": {"at": "y"}})]
    message = stored(*again, calls=[CALLS[0], ToolCall("c1_ab", "look", {"at": "y"})])
    assert [(block["id"], block["input"]["at"]) for block in message["content"]] == [
        ("c1", "x"),
        ("c1_ab", "y"),
    ]


def test_a_call_that_is_not_run_is_not_stored() -> None:
    message = stored(TextBlock(text="so far"), *BLOCKS)
    assert message == {"role": "assistant", "content": [{"type": "text", "text": "so far"}]}


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ([SIGNED], NOTHING_SAID),
        ([SIGNED, TextBlock(text="so far")], [{"type": "text", "text": "so far"}]),
    ],
)
@pytest.mark.parametrize("listed", [None, [{"id": "c1", "name": "look"}]])
def test_what_led_to_calls_that_are_not_run_is_not_stored_either(
    content: list[Any], kept: Any, listed: Any
) -> None:
    blocks = [*content, *(BLOCKS if listed is None else ())]
    response = SimpleNamespace(content=blocks, tool_calls=listed, metadata={"response_id": "resp-1"})
    message = assistant_message(response, ())
    assert message == {"role": "assistant", "content": kept}


def test_a_call_goes_back_with_what_its_provider_signed_it_with() -> None:
    seal, encoded = b"\xff\x00seal", "/wBzZWFs"
    block = ToolCallBlock(id="c1", name="look", input={"at": "x"}, signature=seal)
    text = TextBlock(text="I look.", signature=seal)
    message = stored(text, block, *BLOCKS[1:], calls=CALLS)
    assert [call.get("signature") for call in message["tool_calls"]] == [encoded, None]
    assert [part.get("signature") for part in message["content"]] == [encoded, encoded, None]
    beside = SimpleNamespace(content="", tool_calls=[{"id": "c1", "name": "look", "signature": encoded}])
    assert assistant_message(beside, CALLS[:1])["tool_calls"][0]["signature"] == encoded


def test_a_blank_line_stands_between_the_text_blocks_of_an_answer() -> None:
    blocks = [TextBlock(text="First."), SIGNED, {"type": "text", "text": "Second."}]
    assert text_of(SimpleNamespace(content=blocks)) == "First.\n\nSecond."


async def test_what_is_announced_of_two_texts_is_their_text_as_rules_see_it() -> None:
    hooks = EventRecorder()
    response = ChatResponse(content=[SIGNED, TextBlock(text="sk-123"), TextBlock(text="456"), SIGNED])
    await ContentBlocks(Hooks(hooks, None, Injections()), "p", 1).announce(response, [])
    told = [
        data["block"]["text"] for _, data in hooks.get_events("content_block:end") if "text" in data["block"]
    ]
    assert told == [text_of(response)] == ["sk-123\n\n456"]


@pytest.mark.parametrize("response", [ChatResponse(content=[]), SimpleNamespace(content=""), None])
def test_a_response_that_says_nothing_is_no_empty_message(response: Any) -> None:
    assert assistant_message(response, ())["content"] == NOTHING_SAID


def test_thinking_alone_is_followed_by_a_text() -> None:
    assert [block["type"] for block in stored(SIGNED)["content"]] == ["thinking", "text"]


@pytest.mark.parametrize("content", [None, "", []])
def test_a_text_that_stands_beside_the_content_is_the_answer(content: Any) -> None:
    response = SimpleNamespace(content=content, text="Hello.")
    assert text_of(response) == "Hello."
    assert assistant_message(response, ())["content"] == "Hello."
    assert assistant_message(response, CALLS[:1])["content"] == "Hello."


def test_the_text_of_the_content_counts_before_the_one_beside_it() -> None:
    response = SimpleNamespace(content=[TextBlock(text="Hello.")], text="Hi!")
    assert text_of(response) == "Hello."
    assert assistant_message(response, ())["content"] == [{"type": "text", "text": "Hello."}]


@pytest.mark.parametrize("calls", [CALLS[:1], ()])
@pytest.mark.parametrize(
    "block",
    [
        *(TextContent(text="Hello."), SimpleNamespace(text="Hello."), {"text": "Hello."}),
        *({"type": "web_search", "query": "x"}, {"type": "text", "text": 5}, {}, "Hello.", None, [[]]),
        *(ThinkingContent(text="Hm"), ToolCallContent(id="c1", name="look", arguments={}), object()),
    ],
)
def test_of_a_block_that_messages_do_not_have_its_text_is_stored(block: Any, calls: Any) -> None:
    response = SimpleNamespace(content=[SIGNED, block, {"type": "text", "text": "Done."}])
    message = assistant_message(response, calls)
    (sent,) = chat_request([message], None).messages
    says_hello = isinstance(block, TextContent | SimpleNamespace) or block == {"text": "Hello."}
    texts = [one.text for one in sent.content if one.type == "text"]
    assert texts == [*(["Hello."] * says_hello), "Done."]


NATIVE = {"type": "computer_20251124", "name": "computer", "display_width_px": 1024}


class Computer:
    description = "A screen"

    def __init__(self, native: Any = NATIVE) -> None:
        self.native_tool_spec = native


class Broken:
    description = "A screen"

    @property
    def native_tool_spec(self) -> Any:
        raise RuntimeError("no screen")


def test_a_tool_of_the_providers_own_reaches_it_as_it_is() -> None:
    (spec,) = tool_specs({"computer": Computer()})
    assert (spec.name, spec.description) == ("computer", "A screen")
    assert spec.model_extra == {"type": "computer_20251124", "display_width_px": 1024}


@pytest.mark.parametrize(
    "tool",
    [
        Computer(None),
        Computer("computer"),
        Computer({"name": "x"}),
        Computer({"type": "x", "name": 7}),
        Broken(),
    ],
)
def test_a_tool_whose_own_form_is_none_is_offered_as_a_function(tool: Any) -> None:
    (spec,) = tool_specs({"computer": tool})
    assert (spec.name, spec.model_extra) == ("computer", {})


@pytest.mark.parametrize("loop", LOOPS)
async def test_every_loop_offers_a_tool_of_the_providers_own_as_it_is(
    loop: str, agent: Any, tool: Any
) -> None:
    native = tool("computer")
    native.native_tool_spec = NATIVE
    async with agent([{"text": "ok"}], loop=loop, tools=[native, tool("plain")]) as a:
        await a.ask()
        first, second = a.requests[0].tools
        assert first.model_extra == {"type": "computer_20251124", "display_width_px": 1024}
        assert (first.parameters, second.model_extra) == ({"type": "object"}, {})
