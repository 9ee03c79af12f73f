"""Amounts of money between what people and tools write and the whole micro-units that are counted. Pure."""

from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

from toolgate_bus.ledger import MAX_AMOUNT, UNIT

__all__ = ["micro", "shown"]

_LONGEST: Final = 64


def micro(told: Any) -> int | None:
    """A number or decimal text in micro-units, rounded up: nothing may cost less than it does.

    None for what is no amount: another type, negative, not finite, above `MAX_AMOUNT`.
    """
    if isinstance(told, bool) or not isinstance(told, int | float | str | Decimal):
        return None
    if isinstance(told, str) and len(told) > _LONGEST:
        return None
    try:
        value = Decimal(str(told))
        if not 0 <= value <= MAX_AMOUNT:
            return None
        amount = int((value * UNIT).to_integral_value(ROUND_CEILING))
    except (ArithmeticError, ValueError):
        return None
    return amount if amount <= MAX_AMOUNT else None


def shown(amount: int, currency: str = "") -> str:
    """Micro-units as people read them, exactly: `0.40 USD`, `0.000001`."""
    whole, part = divmod(abs(amount), UNIT)
    decimals = f"{part:06d}".rstrip("0").ljust(2, "0")
    sign = "-" if amount < 0 else ""
    return f"{sign}{whole}.{decimals} {currency}".rstrip()
