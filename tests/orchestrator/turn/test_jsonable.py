"""Which JSON values count as the same."""

import pytest
from toolgate_orchestrator.turn.values.jsonable import almost_same_json

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
