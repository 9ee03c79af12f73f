"""The strict servers do refuse: each kind of request that the real ones refuse, and no sound one."""

from copy import deepcopy
from typing import Any

import pytest
from strict_chat import Chat
from strict_messages import Messages
from strict_responses import Responses
from strict_server import Refusal, seal

pytestmark = pytest.mark.pure

THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": seal("Hm.")}
USE = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "shut"}
USER, TEXT = {"role": "user", "content": "Look."}, {"type": "text", "text": "I look."}
TOOL = {"name": "look", "description": "", "input_schema": {"type": "object"}}


def said(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def told(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def messages(*talk: Any, **more: Any) -> dict[str, Any]:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    body = {"max_tokens": 4096, "messages": list(talk), "tools": [TOOL], "thinking": thinking, **more}
    return deepcopy({key: value for key, value in body.items() if value is not None})


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (messages(USER, said(USE), told(RESULT)), "Expected `thinking`"),
        (messages(USER, said(TEXT, THOUGHT, USE), told(RESULT)), "first block must be `thinking`"),
        (messages(USER, said(THOUGHT), USER), "cannot be `thinking`"),
        (messages(USER, said(THOUGHT | {"signature": "x"}, USE), told(RESULT)), "Invalid `signature`"),
        (messages(USER, said({"type": "thinking", "thinking": "Hm."}, USE), told(RESULT)), "signature"),
        (messages(USER, said(THOUGHT | {"visibility": None}, USE), told(RESULT)), "Extra inputs"),
        (messages(USER, said(THOUGHT, USE), USER), "without `tool_result` blocks"),
        (messages(USER, said(THOUGHT, USE), told(TEXT, RESULT)), "must come first"),
        (messages(USER, said(THOUGHT, USE), told(RESULT, RESULT)), "single result"),
        (messages(told(RESULT)), "unexpected `tool_use_id`"),
        (messages(USER, said(THOUGHT, USE, USE), told(RESULT)), "unique"),
        (messages(USER, said(THOUGHT, USE), told(RESULT), tools=None), "tools"),
        (messages(USER, {"role": "assistant", "content": ""}, USER), "non-empty"),
        (messages(USER, said(), USER), "non-empty"),
        (messages({"role": "assistant", "content": "Hi."}), "first message"),
        (messages(USER, {"role": "assistant", "content": "Hi."}), "end with a user message"),
        (messages(USER, tool_choice={"type": "any"}), "Thinking may not be enabled"),
        (messages(USER, tool_choice="none"), "tool_choice"),
        (messages(USER, tool_choice={"type": "none"}, tools=None), "only be given with tools"),
    ],
)
def test_the_messages_api_refuses(body: Any, why: str) -> None:
    with pytest.raises(Refusal, match=why):
        Messages().check(body)


def test_the_messages_api_takes_what_is_sound() -> None:
    Messages().check(messages(USER, said(THOUGHT, TEXT, USE), told(RESULT), USER))


CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "shut"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": seal("rs_1")}
FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object"}}


def items(*given: Any, **more: Any) -> dict[str, Any]:
    return {"store": False, "input": list(given), "tools": [FUNCTION], **more}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (items(USER, CALL, CALL, OUTPUT), "Duplicate 'call_id'"),
        (items(USER, CALL), "No tool output found"),
        (items(USER, OUTPUT), "No tool call found"),
        (items(USER, OUTPUT, CALL), "No tool call found"),
        (items(USER, CALL, OUTPUT, OUTPUT), "No tool call found"),
        (items(USER, REASONING), "without its required following item"),
        (items(USER, REASONING | {"encrypted_content": None}, CALL, OUTPUT), "not found"),
        (items(USER, CALL, OUTPUT, tools=[]), "tools"),
        (items(USER, {"role": "assistant", "content": []}), "must not be empty"),
        (
            items(USER, {"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}),
            "not for assistant",
        ),
    ],
)
def test_the_responses_api_refuses(body: Any, why: str) -> None:
    with pytest.raises(Refusal, match=why):
        Responses().check(body)


def test_the_responses_api_takes_what_is_sound() -> None:
    Responses().check(items(USER, REASONING, CALL, OUTPUT, USER))


MADE = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ASKING = {"role": "assistant", "content": None, "tool_calls": [MADE]}
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "shut"}
CHAT_TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


def chat(*talk: Any, **more: Any) -> dict[str, Any]:
    return {"messages": list(talk), "tools": [CHAT_TOOL], **more}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (chat(USER, ASKING, USER), "must be followed by tool messages"),
        (chat(USER, ASKING), "without a response"),
        (chat(USER, ANSWER), "must be a response"),
        (chat(USER, ASKING, ANSWER, ANSWER), "must be a response"),
        (chat(USER, ASKING, ANSWER, ASKING, ANSWER), "Duplicate"),
        (chat(USER, {"role": "assistant", "content": None}), "must not be empty"),
        (chat(USER, {"role": "assistant", "content": ""}), "must not be empty"),
        (chat(USER, ASKING, {**ANSWER, "content": [TEXT]}), "images"),
        (chat(USER, ASKING, ANSWER, tools=None), "tools"),
        (chat(USER, {"role": "user", "content": "Hi", "thinking_block": {}}), "Extra inputs"),
    ],
)
def test_the_chat_api_refuses(body: Any, why: str) -> None:
    with pytest.raises(Refusal, match=why):
        Chat().check(body)


def test_the_chat_api_takes_what_is_sound() -> None:
    Chat().check(chat(USER, ASKING, ANSWER, USER))
