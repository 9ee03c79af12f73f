"""The kernel's requests on their way out: messages, results behind their calls, names, choices."""

import json
import re
from typing import Any

import pytest
from amplifier_core import ChatRequest, Message, ToolSpec
from hypothesis import given
from hypothesis import strategies as st
from toolgate_orchestrator.modules.provider_openai.config import OpenAIConfig
from toolgate_orchestrator.modules.provider_openai.request import (
    Dialect,
    ToolNames,
    build_request,
    names_in,
    wire_messages,
)
from toolgate_orchestrator.turn.values.messages import (
    ToolCall,
    assistant_message,
    chat_request,
    result_message,
)

pytestmark = pytest.mark.pure

PIXEL = {"type": "base64", "media_type": "image/png", "data": "aGk="}
PIXEL_URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def wire(*messages: dict[str, Any], dialect: Dialect | None = None) -> list[dict[str, Any]]:
    typed = chat_request(list(messages), None).messages
    return wire_messages(typed, ToolNames(names_in(typed)), dialect or Dialect())


def calling(*ids: str, name: str = "t") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": i, "name": name, "arguments": {}} for i in ids],
    }


def result(call_id: str, content: Any = "r") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def shape(messages: list[dict[str, Any]]) -> list[str]:
    """Roles, and with calls and results their ids."""
    return [
        f"{one['role']} {' '.join(call['id'] for call in one.get('tool_calls', ()))}"
        f"{one.get('tool_call_id', '')}".strip()
        for one in messages
    ]


# ---------------------------------------------------------------------- messages


def test_what_the_engine_stores_is_what_the_server_gets() -> None:
    made = ToolCall("c1", "web.search", {"q": "ü"})
    response = ChatRequest(messages=[])  # stands for a response without content
    stored = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
        assistant_message(response, [made]),
        result_message(made, "found"),
    ]
    assert wire(*stored) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "web_search", "arguments": '{"q": "ü"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
    ]


@pytest.mark.parametrize(
    "stored",
    [
        {"tool_calls": [{"id": "a", "name": "t", "tool": "t", "arguments": {"x": 1}}]},
        {"tool_calls": [{"id": "a", "tool": "t", "arguments": '{"x": 1}'}]},
        {"tool_calls": [{"id": "a", "type": "function", "function": {"name": "t", "arguments": '{"x": 1}'}}]},
        {"content": [{"type": "tool_call", "id": "a", "name": "t", "input": {"x": 1}}]},
        {
            "content": [{"type": "tool_call", "id": "a", "name": "t", "input": {}}],
            "tool_calls": [{"id": "a", "name": "t", "arguments": {"x": 1}}],
        },
    ],
)
def test_calls_are_read_from_the_field_or_from_blocks_and_sent_once(stored: dict[str, Any]) -> None:
    sent, _ = wire({"role": "assistant", "content": "", **stored}, result("a"))
    function = {"name": "t", "arguments": '{"x": 1}'}
    assert sent["tool_calls"] == [{"id": "a", "type": "function", "function": function}]


@pytest.mark.parametrize("arguments", ["{oops", "[1]", "7", None, "[" * 100_000])
def test_arguments_that_are_no_object_are_sent_as_an_empty_one(arguments: Any) -> None:
    stored = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "a", "name": "t", "arguments": arguments}],
    }
    assert wire(stored)[0]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_images_of_users_are_parts_and_images_of_tools_follow_the_results() -> None:
    url = {"type": "image", "source": {"type": "url", "url": "https://example.org/i.png"}}
    image = {"type": "image", "source": PIXEL}
    odd = {"type": "image", "source": {"type": "file"}}
    told = [{"type": "text", "text": "see"}, image, url, odd]
    sent = wire(
        {"role": "user", "content": told},
        calling("a", "b"),
        result("a", [{"type": "text", "text": "one"}, image]),
        result("b", [image]),
    )
    assert sent[0]["content"] == [
        {"type": "text", "text": "see"},
        PIXEL_URL,
        {"type": "image_url", "image_url": {"url": "https://example.org/i.png"}},
        {"type": "text", "text": "(an image that could not be sent)"},
    ]
    assert shape(sent[1:]) == ["assistant a b", "tool a", "tool b", "user", "user"]
    assert [one["content"] for one in sent[2:4]] == ["one", "(images, see below)"]
    assert [PIXEL_URL in one["content"] for one in sent[4:]] == [True, True]


def test_text_blocks_are_sent_as_one_text_and_thinking_stays_here() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    assert wire({"role": "assistant", "content": blocks}) == [{"role": "assistant", "content": "a\nb"}]
    kept = wire(
        {"role": "assistant", "content": blocks}, dialect=Dialect(reasoning_field="reasoning_content")
    )
    assert kept == [{"role": "assistant", "content": "a\nb", "reasoning_content": "hm"}]
    assert wire({"role": "user", "content": blocks[1:]}) == [{"role": "user", "content": "a\nb"}]
    assert wire({"role": "assistant", "content": blocks[:1]}) == [], "nothing of it can be sent"


@pytest.mark.parametrize(("dialect", "role"), [(Dialect(), "system"), (Dialect("developer"), "developer")])
def test_the_developer_speaks_in_the_role_that_the_server_knows(dialect: Dialect, role: str) -> None:
    assert wire({"role": "developer", "content": "x"}, dialect=dialect) == [{"role": role, "content": "x"}]


def test_results_of_any_form_are_sent_as_text() -> None:
    block = {"type": "tool_result", "tool_call_id": "b", "output": {"x": [1]}}
    sent = wire(
        calling("a", "b"),
        {"role": "user", "content": [{"type": "text", "text": "and"}, block]},
        result("a", [{"type": "reasoning", "content": [1], "summary": []}]),
    )
    assert shape(sent) == ["assistant a b", "tool a", "tool b", "user"]
    assert sent[2]["content"] == '{"x": [1]}'
    assert json.loads(sent[1]["content"])[0]["content"] == [1]


def test_a_sound_conversation_passes_unchanged_even_where_ids_repeat() -> None:
    sent = wire(calling("c1"), result("c1", "one"), calling("c1"), result("c1", "two"))
    assert shape(sent) == ["assistant c1", "tool c1"] * 2
    assert [one["content"] for one in sent if one["role"] == "tool"] == ["one", "two"]


def test_calls_that_share_an_id_do_not_share_a_result() -> None:
    def results(*messages: dict[str, Any]) -> list[str]:
        return [one["content"] for one in wire(*messages) if one["role"] == "tool"]

    none = "No result of this call was recorded."
    assert results(calling("a", "a"), result("a", "one"), result("a", "two")) == ["one", "two"]
    assert results(calling("a", "a"), result("a", "one")) == ["one", none]
    assert results(calling("a"), calling("a"), result("a", "two")) == [none, "two"]


def test_orphans_are_mended_and_results_come_right_behind_their_calls() -> None:
    note = {"role": "system", "content": "injected"}
    sent = wire(result("gone"), calling("a", "b", "c"), note, result("b"), result("b"), result("a"))
    assert shape(sent) == ["user", "assistant a b c", "tool a", "tool b", "tool c", "system", "user"]
    assert sent[4]["content"] == "No result of this call was recorded."


@given(
    st.lists(st.sampled_from(["user", "call a", "call b", "call a b", "result a", "result b"]), max_size=12)
)
def test_however_a_conversation_lies_each_call_is_followed_by_its_result(kinds: list[str]) -> None:
    messages = []
    for kind, _, ids in (each.partition(" ") for each in kinds):
        if kind == "call":
            messages.append(calling(*ids.split()))
        else:
            messages.append(result(ids) if kind == "result" else {"role": "user", "content": "u"})
    expected: list[str] = []
    for one in wire(*messages):
        if one["role"] == "tool":
            assert expected.pop(0) == one["tool_call_id"]
        else:
            assert not expected
            expected = [each["id"] for each in one.get("tool_calls", ())]
    assert not expected


def test_long_ids_are_shortened_alike_for_call_and_result() -> None:
    sent = wire(calling("x" * 41), result("x" * 41))
    assert sent[0]["tool_calls"][0]["id"] == sent[1]["tool_call_id"]
    assert len(sent[1]["tool_call_id"]) <= 40


def test_lone_surrogates_can_be_sent() -> None:
    sent = wire({"role": "user", "content": "a\ud800"}, calling("a"), result("a", {"x": "\ud800"}.__repr__()))
    json.dumps(sent, ensure_ascii=False).encode()


# ---------------------------------------------------------------------- names


@given(st.lists(st.text(max_size=80), max_size=8))
def test_every_name_becomes_a_safe_one_and_comes_back(names: list[str]) -> None:
    mapped = ToolNames(names)
    safe = [mapped.safe(name) for name in names]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one) for one in safe)
    assert [mapped.original(one) for one in safe] == names


def test_names_that_would_be_one_stay_apart_and_good_names_stay() -> None:
    names = ToolNames(["a.b", "a b", "a_b", "x" * 70, "x" * 71])
    assert names.safe("a_b") == "a_b"
    assert len({names.safe(one) for one in ("a.b", "a b", "a_b", "x" * 70, "x" * 71)}) == 5
    assert names.original("unheard-of") == "unheard-of"


# ---------------------------------------------------------------------- requests


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("any", "required"),
        ("required", "required"),
        ("t.x", {"type": "function", "function": {"name": "t_x"}}),
        ({"type": "tool", "name": "t.x"}, {"type": "function", "function": {"name": "t_x"}}),
        (
            {"type": "function", "function": {"name": "t.x"}},
            {"type": "function", "function": {"name": "t_x"}},
        ),
        ({"type": "auto"}, "auto"),
        ({}, None),
    ],
)
def test_a_tool_is_chosen_in_each_of_the_usual_ways(choice: Any, sent: Any) -> None:
    tools = [ToolSpec(name="t.x", parameters={})]
    config = OpenAIConfig(model="m")
    params = build_request(
        ChatRequest(messages=[], tools=tools, tool_choice=choice), {}, config, "max_tokens"
    ).params
    assert params.get("tool_choice") == sent
    assert params["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}
    without = build_request(ChatRequest(messages=[], tool_choice=choice), {}, config, "max_tokens").params
    assert "tool_choice" not in without


def test_the_longest_answer_has_the_name_that_the_server_knows() -> None:
    official, other = OpenAIConfig(model="m"), OpenAIConfig(model="m", base_url="http://localhost:8000/v1")
    assert official.length_field({}) == "max_completion_tokens"
    assert other.length_field({}) == official.length_field({"OPENAI_BASE_URL": "http://x/v1"}) == "max_tokens"
    params = build_request(
        ChatRequest(messages=[], max_output_tokens=3), {}, official, "max_completion_tokens"
    ).params
    assert params == {"model": "m", "messages": [], "max_completion_tokens": 3}


def test_forms_of_answers_are_asked_for_as_the_wire_has_them() -> None:
    def sent(form: Any) -> Any:
        request = ChatRequest(messages=[], response_format=form)
        return build_request(request, {}, OpenAIConfig(model="m"), "max_tokens").params.get("response_format")

    named = {"name": "n", "schema": {"type": "object"}}
    assert sent({"type": "text"}) is None
    assert sent({"type": "json"}) == {"type": "json_object"}
    assert sent({"type": "json_schema", "json_schema": named}) == {
        "type": "json_schema",
        "json_schema": named,
    }


def test_a_message_of_another_role_is_said_by_the_user() -> None:
    typed = [Message(role="function", content="x", name="f")]
    assert wire_messages(typed, ToolNames([]), Dialect()) == [{"role": "user", "content": "x"}]
