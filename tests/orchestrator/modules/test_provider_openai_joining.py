"""Chunks on their way in: events, and the calls that fragments make, however they were cut."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_server import call, chunk, finish, text
from toolgate_orchestrator.modules.provider_openai.stream import (
    BadReply,
    ChunkAssembler,
    ObjectEnd,
    arguments_of,
)
from toolgate_orchestrator.turn.values.messages import (
    calls_in,
)

pytestmark = pytest.mark.pure


def joined(*chunks: Any) -> tuple[ChunkAssembler, list[dict[str, Any]]]:
    one = ChunkAssembler()
    events = [event for each in chunks for event in one.feed(each)]
    return one, events + one.close()


def ends(events: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(event["name"], event["arguments"]) for event in events if event["type"] == "tool_call.end"]


OBJECTS = st.dictionaries(
    st.text(max_size=5), st.text(max_size=8) | st.integers() | st.lists(st.text(max_size=3))
)


@given(
    st.lists(OBJECTS | st.just("{oops") | st.just("") | st.just("{} {"), min_size=1, max_size=4),
    st.data(),
)
def test_however_the_fragments_are_cut_and_mixed_the_calls_are_the_same(wanted: list[Any], data: Any) -> None:
    raws = [one if isinstance(one, str) else json.dumps(one) for one in wanted]
    queues = [_cut(raw, index, data) for index, raw in enumerate(raws)]
    chunks = [queue.pop(0) for queue in queues]  # each call begins before any goes on: fully interleaved
    while any(queues):
        chunks.append(data.draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    whole, events = joined(*chunks, finish("tool_calls"))
    expected = {f"t{index}": _meant(one) for index, one in enumerate(wanted)}
    assert dict(ends(events)) == expected
    assert len(ends(events)) == len(wanted)
    assert {one.name: one.arguments for one in whole.calls} == expected
    for index, raw in enumerate(raws):
        told = [one for one in events if one.get("id") == f"c{index}"]
        assert [one["type"] for one in told][:1] == ["tool_call.start"]
        assert "".join(one.get("arguments_fragment", "") for one in told) == raw
        assert told[-1]["type"] == "tool_call.end"


def _cut(raw: str, index: int, data: Any) -> list[dict[str, Any]]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    begin = call(index, "", f"c{index}", f"t{index}")
    return [begin, *(call(index, piece) for piece in pieces)]


def _meant(one: Any) -> Any:
    return {"": {}}.get(one, one) if isinstance(one, str) else one


def test_a_call_is_complete_with_its_last_brace_and_an_empty_one_with_the_next_call() -> None:
    one = ChunkAssembler()
    assert ends(one.feed(call(0, '{"x": "}"', "a", "t"))) == []
    assert ends(one.feed(call(0, "}"))) == [("t", {"x": "}"})]
    assert one.feed(call(0, " \n")) == [], "blanks may follow"
    assert ends(one.feed(call(1, "{}", "b", "u"))) == []
    assert ends(one.feed(call(2, "", "c", "v"))) == [("u", {})]
    assert ends(one.feed(finish("tool_calls"))) == [("v", {})]
    assert one.close() == []


def test_an_empty_object_in_front_of_the_arguments_is_dropped() -> None:
    _, events = joined(call(0, "{}", "a", "t"), call(0, '{"x":'), call(0, " 1}"), finish())
    assert ends(events) == [("t", {"x": 1})]


def test_calls_that_share_an_index_are_told_apart_by_their_ids() -> None:
    first, second = call(0, '{"x": 1}', "a", "t"), call(0, '{"x": 2}', "b", "t")
    assert ends(joined(first, second, finish())[1]) == [("t", {"x": 1}), ("t", {"x": 2})]
    none = [call(0, '{"x": 1}', None, "t"), call(0, '{"x": 2}', None, "u")]
    assert ends(joined(*none, finish())[1]) == [("t", {"x": 1}), ("u", {"x": 2})]


def test_fragments_that_repeat_id_and_name_are_one_call() -> None:
    parts = [call(0, part, "a", "t") for part in ('{"x"', ": ", "1}")]
    assert ends(joined(*parts, finish())[1]) == [("t", {"x": 1})]


def test_ids_are_unique_within_an_answer_whatever_the_server_says() -> None:
    whole, _ = joined(
        call(0, '{"x": 1}', "a", "t"), call(1, '{"x": 2}', "a", "t"), call(2, "{}", None, "t"), finish()
    )
    assert len({one.id for one in whole.calls}) == 3
    assert whole.calls[0].id == "a"


def test_a_call_without_a_name_is_kept_for_the_engine_to_name_the_problem() -> None:
    _, events = joined(call(0, '{"x": 1}', "a"), finish())
    (end,) = [event for event in events if event["type"] == "tool_call.end"]
    (read,) = calls_in([end])
    assert read.problem == "the call names no tool"


def test_what_comes_after_a_complete_call_is_not_added_to_it() -> None:
    whole, events = joined(call(0, '{"x": 1}', "a", "t"), call(0, '{"y": 2}'), finish())
    assert ends(events) == [("t", {"x": 1})]
    assert whole.calls[0].arguments == {"x": 1}


def test_what_comes_before_the_name_is_told_with_it() -> None:
    _, events = joined(call(0, '{"x"', "a"), call(0, ": ", None, "t"), call(0, "1}"), finish())
    assert [one.get("arguments_fragment") for one in events if one["type"] == "tool_call.delta"] == [
        '{"x": ',
        "1}",
    ]
    assert ends(events) == [("t", {"x": 1})]


def test_arguments_given_as_an_object_are_taken() -> None:
    part = {"index": 0, "id": "a", "function": {"name": "t", "arguments": {"x": 1}}}
    assert ends(joined(chunk({"tool_calls": [part]}), finish())[1]) == [("t", {"x": 1})]


def test_content_in_parts_is_told_by_kind() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "a"},
    ]
    whole, _ = joined(chunk({"content": parts}), chunk({"refusal": "b"}), finish())
    assert (whole.thinking, whole.text) == ("hm", "ab")


def test_only_the_first_choice_counts() -> None:
    other = {"index": 1, "delta": {"content": "x"}, "finish_reason": "stop"}
    whole, _ = joined(text("a"), {"choices": [other]}, finish())
    assert whole.text == "a"


def test_an_answer_without_end_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(BadReply, match="longer than"):
        joined(*[text("x" * 1_000_000)] * 20)
    with pytest.raises(BadReply, match="more than 512 tool calls"):
        joined(*(call(index, "{}", None, "t") for index in range(513)))


_KEYS = st.sampled_from(
    [
        "choices",
        "delta",
        "message",
        "content",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "index",
        "id",
        "usage",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=4), st.lists(st.dictionaries(_KEYS, JSON), max_size=4))
def test_no_chunk_makes_anything_but_events_or_a_bad_reply(odd: list[Any], deltas: list[Any]) -> None:
    one = ChunkAssembler()
    for each in [*odd, *(chunk(delta) for delta in deltas), *({"choices": [delta]} for delta in deltas)]:
        try:
            events = one.feed(each)
        except BadReply:
            continue
        assert all(isinstance(event["type"], str) for event in events)
    one.feed(finish())
    one.close()


@given(OBJECTS, st.text(max_size=3))
def test_an_object_ends_with_its_last_brace_and_nowhere_before(wanted: dict[str, Any], blank: str) -> None:
    raw = json.dumps(wanted)
    end = ObjectEnd()
    closings = [position for position, char in enumerate(raw) if end.feed(char)]
    assert closings == [len(raw) - 1]
    assert arguments_of(raw + " " * len(blank)) == wanted


def test_a_string_that_is_open_is_no_end() -> None:
    end = ObjectEnd()
    assert not end.feed('{}"')
    assert not end.closed


@pytest.mark.parametrize("raw", ["", "  ", "null"])
def test_nothing_is_no_arguments(raw: str) -> None:
    assert arguments_of(raw) == {}


@pytest.mark.parametrize("raw", ["{", "[1]", '"x"', "7", "{} {", "[" * 100_000])
def test_what_is_no_object_is_no_arguments(raw: str) -> None:
    assert arguments_of(raw) is None
