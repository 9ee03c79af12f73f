"""Amounts of money: what people and tools write is counted exactly, or not at all."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.money import MAX_AMOUNT, MAX_DOLLARS, dollars, format_amount, is_amount, micro

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("told", "amount"),
    [(0.4, 400_000), ("0.10", 100_000), (3, 3_000_000), (0, 0), (Decimal("1.5"), 1_500_000), (1e-9, 1)],
)
def test_an_amount_is_counted_in_millionths_and_rounded_up(told, amount):
    assert micro(told) == amount


@pytest.mark.parametrize(
    "told",
    [
        *(True, None, "much", "", "9" * 65, -0.1, float("nan"), float("inf"), [1], 1e300),
        *("1e999980", "-1e999980", "NaN", 10**400, Decimal("1e999999"), MAX_DOLLARS + 1),
    ],
)
def test_what_is_no_amount_is_none(told):
    assert micro(told) is None
    assert dollars(told) is None


@pytest.mark.parametrize("told", [1.0, True, "1", -1, MAX_AMOUNT + 1, 10**400, None])
def test_what_is_no_number_of_millionths_is_none(told):
    assert not is_amount(told)
    assert is_amount(MAX_AMOUNT)


@given(st.integers(0, MAX_AMOUNT))
def test_what_is_shown_is_read_back_exactly(amount):
    assert micro(format_amount(amount)) == amount


@pytest.mark.parametrize(
    ("amount", "text"),
    [(400_000, "0.40 USD"), (1, "0.000001 USD"), (12_345_678, "12.345678 USD"), (-50_000, "-0.05 USD")],
)
def test_an_amount_is_shown_with_its_currency(amount, text):
    assert format_amount(amount, "USD") == text
