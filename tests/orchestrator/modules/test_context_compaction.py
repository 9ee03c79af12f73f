"""Compaction as properties: it fits, keeps what must stay, and parts no call from its result."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_orchestrator.modules.compaction import compact, estimate_tokens, pieces

pytestmark = pytest.mark.pure

texts = st.integers(0, 2_000).map(lambda length: "x" * length)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Turns with system messages, tool calls and their results, some text very long."""
    serial = iter(range(10_000))
    systems = draw(st.integers(0, 2))
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": f"s{next(serial)}"} for _ in range(systems)
    ]
    for _ in range(draw(st.integers(0, 5))):
        messages.append({"role": "user", "content": f"u{next(serial)}" + draw(texts)})
        for _ in range(draw(st.integers(0, 4))):
            ids = [f"c{next(serial)}" for _ in range(draw(st.integers(0, 3)))]
            assistant: dict[str, Any] = {"role": "assistant", "content": f"a{next(serial)}" + draw(texts)}
            if ids:
                assistant["tool_calls"] = [{"id": each, "name": "t", "arguments": {}} for each in ids]
            messages.append(assistant)
            messages += [{"role": "tool", "tool_call_id": each, "content": draw(texts)} for each in ids]
    return messages


budgets = st.integers(0, 3_000)


def ids_called(messages: list[dict[str, Any]]) -> set[str]:
    return {call["id"] for message in messages for call in message.get("tool_calls", ())}


def ids_answered(messages: list[dict[str, Any]]) -> set[str]:
    return {message["tool_call_id"] for message in messages if message["role"] == "tool"}


@given(conversations(), budgets)
def test_a_call_and_its_results_both_stay_or_both_go(messages: list[dict[str, Any]], budget: int) -> None:
    sent = compact(messages, budget)
    assert ids_called(sent) == ids_answered(sent)


@given(conversations(), budgets)
def test_what_is_sent_fits_or_cannot_be_made_smaller(messages: list[dict[str, Any]], budget: int) -> None:
    sent = compact(messages, budget)
    if estimate_tokens(sent) > budget:
        latest = [index for index, message in enumerate(messages) if message["role"] == "user"][-1:]
        newest = [piece for piece in pieces(messages) if messages[piece[0]]["role"] != "system"][-1:]
        allowed = {message["content"] for message in messages if message["role"] == "system"}
        assert len(sent) <= len(allowed) + 1 + len(latest) + sum(map(len, newest))
        assert all(len(message["content"]) <= 300 for message in sent if message["role"] != "system")


@given(conversations(), budgets)
def test_system_messages_and_the_first_and_the_latest_prompt_always_stay(
    messages: list[dict[str, Any]], budget: int
) -> None:
    sent = compact(messages, budget)
    assert [m for m in sent if m["role"] == "system"] == [m for m in messages if m["role"] == "system"]
    prompts = [message for message in messages if message["role"] == "user"]
    if prompts:
        kept = [message for message in sent if message["role"] == "user"]
        assert kept[-1]["content"][:2] == prompts[-1]["content"][:2]
        assert kept[0]["content"][:2] == prompts[0]["content"][:2]


@given(conversations(), budgets)
def test_the_order_is_kept_and_nothing_is_made_up(messages: list[dict[str, Any]], budget: int) -> None:
    sent = compact(messages, budget)
    left = iter(messages)

    def origin(message: dict[str, Any]) -> bool:
        same = (each for each in left if {**each, "content": ""} == {**message, "content": ""})
        return any(each["content"][:1] == message["content"][:1] or not message["content"] for each in same)

    assert all(origin(message) for message in sent)


@given(conversations())
def test_what_fits_is_left_alone(messages: list[dict[str, Any]]) -> None:
    assert compact(messages, estimate_tokens(messages)) == messages


@given(conversations(), budgets)
def test_the_given_messages_are_not_touched(messages: list[dict[str, Any]], budget: int) -> None:
    before = repr(messages)
    compact(messages, budget)
    assert repr(messages) == before


@given(conversations(), budgets)
def test_compacting_twice_changes_nothing_more(messages: list[dict[str, Any]], budget: int) -> None:
    once = compact(messages, budget)
    assert compact(once, max(budget, estimate_tokens(once))) == once


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_older_turns_go_first_and_whole() -> None:
    turns = [[user(f"q{n}" * 50), {"role": "assistant", "content": f"a{n}" * 50}] for n in range(5)]
    messages = [message for turn in turns for message in turn]
    budget = estimate_tokens(messages) // 2
    sent = compact(messages, budget)
    assert sent == [messages[0], *messages[1 - len(sent) :]]
    assert sent[1]["role"] == "user"
    assert 2 <= len(sent) < len(messages)


def test_a_long_turn_keeps_its_prompt_and_its_newest_steps() -> None:
    messages = [user("do it")]
    for n in range(20):
        call = {"id": f"c{n}", "name": "t", "arguments": {}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": "r" * 400})
    sent = compact(messages, 1_000)
    assert sent[0] == user("do it")
    assert sent[-1] == messages[-1]
    assert estimate_tokens(sent) <= 1_000
    assert len(sent) > 3


def test_a_result_larger_than_the_budget_is_shortened_and_says_so() -> None:
    call = {"id": "c", "name": "t", "arguments": {}}
    messages = [
        user("read the log"),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "start" + "x" * 100_000 + "end"},
    ]
    sent = compact(messages, 1_000)
    assert estimate_tokens(sent) <= 1_000
    text = sent[-1]["content"]
    assert text.startswith("start")
    assert text.endswith("end")
    assert "characters left out" in text


def test_calls_inside_content_blocks_keep_their_results_too() -> None:
    messages: list[dict[str, Any]] = [
        user("x" * 5_000),
        {"role": "assistant", "content": [{"type": "tool_call", "id": "c", "name": "t", "input": {}}]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
        user("next"),
    ]
    assert pieces(messages) == [[0], [1, 2], [3]]
    assert [message["role"] for message in compact(messages, 100)] == ["user", "user"]
