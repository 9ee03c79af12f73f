"""One answer to whether two JSON values are the same, and two ways to read one as one."""

import json
import math
import uuid
from datetime import date
from enum import Enum

import pytest
from bus_strategies import json_values
from hypothesis import assume, given
from hypothesis import strategies as st
from toolgate_bus.protocol import written_json
from toolgate_bus.protocol.json_values import (
    MAX_DEPTH,
    MAX_DIGITS,
    NotJson,
    UnreadableJson,
    read_json,
    same_json,
)
from toolgate_bus.protocol.written_json import is_written, read_written, write_json

pytestmark = pytest.mark.pure


class Text(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


class Liar:
    def __eq__(self, other):
        return True

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (0, -0.0),
        (math.nan, float("nan")),
        (2**70, 2**70),
        (2**70, float(2**70)),
        ({"a": 1, "b": [None]}, {"b": [None], "a": 1.0}),
        ([1, (2, 3)], [1, [2, 3]]),
        ("ü", "ü"),
    ],
)
def test_the_same_json_is_the_same(one, other):
    assert same_json(one, other)
    assert same_json({"a": [one]}, {"a": [other]})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0, False),
        (0, None),
        (1, "1"),
        ("", None),
        (2**53 + 1, float(2**53)),
        (2**70, 2**70 + 1),
        (math.nan, 0),
        ([], {}),
        ([1], [1, 2]),
        ({"a": 1}, {"b": 1}),
        ({"a": None}, {}),
        ({"1": 1}, {1: 1}),
        ("ü", "u\u0308"),
        (Text("a"), "b"),
        (Liar(), "a"),
        (Liar(), Liar()),
    ],
)
def test_other_json_is_not_the_same_in_either_order(one, other):
    assert not same_json(one, other)
    assert not same_json(other, one)
    assert not same_json({"a": [one]}, {"a": [other]})


def test_a_value_as_deep_as_python_makes_them_is_compared():
    def nest(end):
        for _ in range(100_000):
            end = [end]
        return end

    assert same_json(nest(1), nest(1.0))
    assert not same_json(nest(1), nest(True))


NUMBERS = [
    "-0",
    "0.10",
    "1e5",
    "1E400",
    "-1e-7",
    "NaN",
    "Infinity",
    "01",
    "9" * MAX_DIGITS,
    "9" * (MAX_DIGITS + 1),
]
ODD = [
    *NUMBERS,
    '{"a":1,"a":2}',
    '{"a":1,"\\u0061":1}',
    '["\\ud83d"]',
    '["\\ud83d\\ude00","\\/","\x7f"]',
    '["a\tb"]',
    "[1, 2]",
    "[1]\n",
    "\ufeff[1]",
    "[1,]",
    "",
    '["' + "9" * (MAX_DIGITS + 1) + '"]',
    *("[" * depth + "]" * depth for depth in (MAX_DEPTH, MAX_DEPTH + 1, 250, 100_000)),
    '{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1),
]


def outcome(read, text):
    try:
        return json.dumps(read(text))
    except UnreadableJson:
        return UnreadableJson


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:12])
def test_what_programs_read_differently_is_refused_by_the_fast_way_too(text):
    for one in (text.encode(), f'[{text},"x"]'.encode(), b"\xff" + text.encode()):
        assert outcome(read_written, one) == outcome(read_json, one)


@given(json_values, st.sampled_from([None, 1]), st.data())
def test_both_ways_read_the_same_out_of_what_was_written_or_tampered_with(value, indent, data):
    assume(not holds_odd(value))
    text = json.dumps(value, indent=indent, ensure_ascii=False).encode() if indent else write_json(value)
    assert outcome(read_written, text) == outcome(read_json, text) == json.dumps(value)
    at = data.draw(st.integers(0, len(text) - 1))
    until = data.draw(st.integers(at, min(len(text), at + 3)))
    other = text[:at] + data.draw(st.sampled_from([b"", b"0", b'"', b"\\", b",", text[:9]])) + text[until:]
    assert outcome(read_written, other) == outcome(read_json, other)


def test_what_was_written_is_read_the_fast_way(monkeypatch):
    monkeypatch.setattr(written_json, "read_json", None)
    value = {"rows": [{"id": n, "name": "\u00fc\n\u20ac", "part": n / 7, "open": True} for n in range(500)]}
    assert read_written(write_json(value)) == value


class Kind(Enum):
    CARD = "card"


ALIKE = [1.2e308, -1.7e308, 0xCB7FF0, 0xCBFFF0, 2**64 - 1, -(2**63), "\ufb7f", None, "null", {}, []]
"""Values of JSON whose bytes look as if a number in them were not finite."""
NOT_JSON = [
    *(math.nan, -math.nan, math.inf, -math.inf, 2**64, -(2**63) - 1, b"b", (1,), {1}, Text("t"), "\ud83d"),
    *({1: "a"}, {None: 1}, {b"k": 1}, {Kind.CARD: 1}, {Text("t"): 1}),
    *(Kind.CARD, uuid.UUID(int=0), date(2026, 1, 1)),
]


def holds_odd(value):
    if isinstance(value, dict):
        return any(type(key) is not str for key in value) or any(map(holds_odd, value.values()))
    if isinstance(value, float):
        return not math.isfinite(value)
    return any(map(holds_odd, value)) if type(value) is list else any(value is odd for odd in NOT_JSON)


@given(
    st.recursive(
        json_values | st.sampled_from(ALIKE) | st.sampled_from(NOT_JSON),
        lambda one: st.lists(one, max_size=4) | st.dictionaries(st.text(max_size=2), one, max_size=4),
        max_leaves=6,
    )
)
def test_only_what_is_read_as_it_was_is_written(value):
    value = [value]
    if holds_odd(value):
        with pytest.raises(NotJson):
            write_json(value)
        return
    text = write_json(value)
    assert is_written(value, text)
    assert json.dumps(read_json(text)) == json.dumps(value)


@pytest.mark.parametrize("odd", NOT_JSON, ids=repr)
def test_a_value_that_json_has_not_is_not_written_and_is_not_what_was_written(odd):
    for value in ([odd], {"a": {"b": odd}}, [None, [odd, 1.2e308]]):
        with pytest.raises(NotJson):
            write_json(value)
        assert not is_written(value, b"[]")


def test_code_of_a_key_is_not_called():
    class Odd:
        def __len__(self):
            raise RuntimeError

    with pytest.raises(NotJson):
        write_json([{"a": {Odd(): 1}}])


@given(json_values)
def test_a_value_is_written_wherever_it_fits(value):
    assume(not holds_odd(value))
    text = write_json(value)
    assert write_json(value, len(text)) == text


def many_times_over(value, levels):
    for _ in range(levels):
        value = [value] * 10
    return value


@pytest.mark.parametrize(
    "value",
    [
        many_times_over("lol", 5),
        many_times_over({"a": 1, "b": True}, 5),
        ["x" * 10_000] * 100,
        [{"x" * 10_000: 1}] * 100,
        [[], ["x" * 10_000] * 99, "x"],
    ],
    ids=["a text", "a map", "a long text", "a long key", "beside others"],
)
def test_what_stands_in_many_places_counts_at_each_of_them(value):
    with pytest.raises(NotJson, match="it is too long"):
        write_json(value, 65_536)
    assert len(write_json(value)) > 65_536
    with pytest.raises(NotJson, match="it is too long"):
        write_json(many_times_over(value, 30), 65_536)
