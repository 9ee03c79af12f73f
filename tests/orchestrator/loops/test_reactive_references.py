"""References and output paths in arguments, and the data they lead to."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_orchestrator.loops.reactive_engine.references import (
    BadOutputPath,
    BadReference,
    Reference,
    output_path,
    overlap,
    parse,
    references_in,
    resolve,
)
from toolgate_orchestrator.loops.reactive_engine.state import Data

pytestmark = pytest.mark.pure

names = st.text("abcXYZ019_-", min_size=1, max_size=4)
paths = st.lists(names, min_size=1, max_size=4).map(tuple)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(max_size=8).filter(lambda text: "†" not in text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def state(*path: str) -> Reference:
    return Reference("state", path)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("†state.user.id", state("user", "id")),
        ("†input.userName", Reference("input", ("userName",))),
        ("†state.list.0", state("list", "0")),
        ("†state.größe.first:part", state("größe", "first:part")),
    ],
)
def test_a_whole_string_is_a_reference(text: str, reference: Reference) -> None:
    assert parse(text) == reference
    assert str(reference) == text


@pytest.mark.parametrize(
    "text", ["", "state.x", "see †state.x", " †state.x", "††state.x", "†††state.x", "a†", "$ref"]
)
def test_a_string_that_does_not_begin_with_one_mark_is_a_plain_text(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("†", "whole string"),
        ("†state", "whole string"),
        ("†state.", "whole string"),
        ("†state..x", "whole string"),
        ("†state.x.", "whole string"),
        ("†state.x and more", "whole string"),
        ("†state.x||†state.y", "whole string"),
        ("†state.x && †state.y", "whole string"),
        ("† 1990", "whole string"),
        ("†nope.k", "only †state and †input"),
        ("†state." + "x" * 600, "whole string"),
        ("†state" + ".x" * 33, "more than 32 parts"),
        ("†state.x\n", "whole string"),
    ],
)
def test_a_string_that_begins_with_the_mark_and_is_no_reference_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(BadReference, match=complaint) as refused:
        parse(text)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "value",
    [
        *["†state", "†state.", "state.x", "†input.x", "†state.a b", "†state.a||b", "†state.ä", "†state.x\n"],
        *["", None, 7, ["†state.x"], {"a": 1}, "†state." + "x" * 600, "†state" + ".x" * 33],
    ],
)
def test_an_output_path_is_a_place_in_the_state_and_nothing_else(value: Any) -> None:
    with pytest.raises(BadOutputPath, match="_outputPath"):
        output_path(value)


def test_an_output_path_is_read_into_its_parts() -> None:
    assert output_path("†state.a.b-1_x") == ("a", "b-1_x")


def test_values_are_replaced_wherever_they_stand() -> None:
    data = Data({"user": {"id": 7, "tags": ["x", "y"]}}, {"name": "Ada"})
    arguments = {"id": "†state.user.id", "deep": [{"who": "†input.name"}, "†state.user.tags.1"], "n": 3}
    assert resolve(arguments, data.read) == {"id": 7, "deep": [{"who": "Ada"}, "y"], "n": 3}


def test_two_marks_stand_for_one_in_a_plain_text() -> None:
    assert resolve({"a": "††literal", "b": ["†††"], "c": "a††b"}, Data().read) == {
        "a": "†literal",
        "b": ["††"],
        "c": "a††b",
    }


def test_a_value_that_looks_like_a_reference_is_not_looked_at_again() -> None:
    data = Data({"page": "†state.secret", "deep": {"x": ["††y"]}, "secret": "42"})
    assert resolve({"a": "†state.page", "b": "†state.deep"}, data.read) == {
        "a": "†state.secret",
        "b": {"x": ["††y"]},
    }


def test_keys_are_never_references() -> None:
    arguments = {"†state.x": 1, "† odd": {"†nope": 2}}
    assert references_in(arguments) == ()
    assert resolve(arguments, Data().read) == arguments


def test_each_reference_is_found_once_in_the_order_it_stands_in() -> None:
    found = references_in({"b": "†state.b", "a": ["†input.a", {"x": "†state.b"}], "c": "†state.a"})
    assert [str(each) for each in found] == ["†state.b", "†input.a", "†state.a"]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("a",), ("a",), True),
        (("a",), ("a", "b"), True),
        (("a", "b"), ("a",), True),
        (("a", "b"), ("a", "c"), False),
        (("a",), ("ab",), False),
    ],
)
def test_paths_overlap_if_one_begins_with_the_other(one: Any, other: Any, expected: bool) -> None:
    assert overlap(one, other) is expected
    assert overlap(other, one) is expected


@given(plain)
def test_arguments_without_references_are_left_as_they_are(value: Any) -> None:
    assert resolve(value, Data().read) == value
    assert references_in(value) == ()


@given(paths, plain)
def test_what_is_written_is_read_again(path: tuple[str, ...], value: Any) -> None:
    data = Data({"abc": {"0": [1]}})
    data.write(path, value)
    assert data.has(state(*path))
    assert data.read(state(*path)) == value
    assert resolve({"x": str(state(*path))}, data.read) == {"x": value}


@given(st.lists(st.tuples(paths, st.integers(0, 9)), min_size=1, max_size=6))
def test_the_last_write_wins(writes: list[tuple[tuple[str, ...], int]]) -> None:
    data = Data()
    for path, value in writes:
        data.write(path, value)
    path, value = writes[-1]
    assert data.read(state(*path)) == value
    json.dumps(data.state)


def test_a_write_makes_the_dicts_on_its_way_and_replaces_what_else_stands_there() -> None:
    data = Data({"a": 1, "list": [1]})
    data.write(("a", "b", "c"), 2)
    data.write(("list", "0"), 3)
    assert data.state == {"a": {"b": {"c": 2}}, "list": {"0": 3}}


@pytest.mark.parametrize(
    "path", ["list.2", "list.-1", "list.x", "list.٣", "text.0", "none.x", "other", "n.0"]
)
def test_what_is_not_there_cannot_be_read(path: str) -> None:
    data = Data({"list": [1, 2], "text": "abc", "none": None, "n": 5})
    reference = state(*path.split("."))
    assert not data.has(reference)
    with pytest.raises(KeyError):
        data.read(reference)


def test_null_is_a_value() -> None:
    data = Data({"none": None})
    assert data.has(state("none"))
    assert data.read(state("none")) is None


def test_nobody_can_change_the_state_through_what_was_read_or_written() -> None:
    data, written = Data(), {"list": [1]}
    data.write(("a",), written)
    written["list"].append(2)
    data.read(state("a"))["list"].append(3)
    assert data.state == {"a": {"list": [1]}}


def test_every_write_is_on_record() -> None:
    data = Data()
    data.write(("a", "b"), 1, "c1")
    (write,) = data.writes
    assert (write.path, write.call) == ("†state.a.b", "c1")
    assert write.date.endswith("+00:00")
    for number in range(2_000):
        data.write(("a",), number)
    assert len(data.writes) == 1_000
