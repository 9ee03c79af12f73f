"""One answer to whether two JSON values are the same."""

import math

import pytest
from toolgate_bus.protocol.json_values import same_json

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
