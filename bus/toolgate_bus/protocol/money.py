"""Converts amounts between the notation of people and tools and whole numbers of the smallest part. Pure.

The smallest part of money, of seconds and of a user's own unit is a millionth: a micro-unit. Calls, requests
and tokens are whole numbers.
"""

from decimal import ROUND_CEILING, Decimal
from typing import Any, Final, TypeGuard

UNIT: Final = 1_000_000
"""Micro-units in 1.00 of the currency."""
MAX_AMOUNT: Final = 2**52
"""Largest amount in micro-units. Sums of two are still exact for a server that computes in doubles."""
MAX_DOLLARS: Final = Decimal(MAX_AMOUNT) / UNIT
"""Largest amount that anybody may report, in units of the currency."""
CALLS, SECONDS, TOKENS, REQUESTS = "calls", "seconds", "tokens", "requests"
WHOLE_UNITS: Final = frozenset({CALLS, TOKENS, REQUESTS})
"""Units that have no smaller part."""
_MAX_LENGTH: Final = 64


def micro(told: Any) -> int | None:
    """Return a number or decimal text in micro-units, rounded up: nothing may cost less than it does.

    None if it is no amount (`dollars`).
    """
    value = dollars(told)
    return None if value is None else int((value * UNIT).to_integral_value(ROUND_CEILING))


def dollars(told: Any) -> Decimal | None:
    """Return a number or decimal text in units of the currency, exactly.

    None if it is no amount: another type, negative, not finite, above `MAX_DOLLARS`. Bounds are checked
    before anything is computed: `1e999980` is short, and takes a minute to multiply.
    """
    if isinstance(told, bool) or not isinstance(told, int | float | str | Decimal):
        return None
    if isinstance(told, str) and len(told) > _MAX_LENGTH:
        return None
    try:
        value = Decimal(str(told))
        return value if 0 <= value <= MAX_DOLLARS else None
    except (ArithmeticError, ValueError):
        return None


def read_amount(told: Any, unit: str) -> int | None:
    """Return a number or decimal text in the smallest part of a unit, rounded up; None if it is no amount.

    A fraction of a call or token is no amount.
    """
    amount = micro(told)
    if amount is None or unit not in WHOLE_UNITS:
        return amount
    whole, part = divmod(amount, UNIT)
    return None if part else whole


def is_amount(told: Any) -> TypeGuard[int]:
    """Return whether a value is a whole number of micro-units that a ledger can count."""
    return type(told) is int and 0 <= told <= MAX_AMOUNT


def format_amount(amount: int, currency: str = "") -> str:
    """Return an amount as people read it, exactly: `0.40 USD`, `0.000001`, `1,200 tokens`, `2.5 seconds`."""
    if currency in WHOLE_UNITS:
        return f"{amount:,} {currency[:-1] if amount == 1 else currency}"
    whole, part = divmod(abs(amount), UNIT)
    decimals, sign = f"{part:06d}".rstrip("0"), "-" if amount < 0 else ""
    if currency == SECONDS:
        return f"{sign}{whole:,}{'.' if decimals else ''}{decimals} {currency}"
    decimals = decimals.ljust(2, "0")
    return f"{sign}{whole}.{decimals} {currency}".rstrip()
