"""Which JSON values count as the same, and what is told of a value that is too long to be written."""

from collections import deque

import pytest
from toolgate_orchestrator.turn.values.foreign_code import words_of
from toolgate_orchestrator.turn.values.jsonable import almost_same_json, is_huge, jsonable

pytestmark = pytest.mark.pure


def test_whole_numbers_are_the_same_if_each_digit_is():
    card = 4111111111111112
    assert almost_same_json({"card": [card]}, {"card": [card]})
    assert not almost_same_json({"card": [card]}, {"card": [card - 1]})
    assert not almost_same_json({"card": [card]}, {"card": [float(card - 1)]})
    assert almost_same_json(7, 7.0)


def test_a_number_with_a_point_may_lose_its_last_digit():
    assert almost_same_json([0.1 + 0.2], [0.3])
    assert not almost_same_json([0.3], [0.3001])


def make_huge():
    one: list = [1]
    for _ in range(40):
        one = [one, one]
    return one


def test_of_a_value_whose_text_nobody_writes_only_that_is_told():
    huge = make_huge()
    left_out = "… (more was left out)"
    assert jsonable({"rows": deque([huge]), "kept": 1}) == {"rows": left_out, "kept": 1}
    assert jsonable({1: [ValueError(huge), {"a": huge}.items()]}) == {"1": [left_out] * 2}
    assert words_of(ValueError(huge)) == "ValueError"
    assert is_huge({"a": huge}.values())


def test_a_value_that_holds_itself_is_not_huge():
    ring: list = []
    ring.append(ring)
    assert not is_huge(ring)
    assert words_of(ValueError(ring)) == "[[...]]"
