"""Read amounts of money as people write them in a config: `0.40`, kept in whole micro-units, rounded up."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from toolgate_bus.protocol.money import MAX_AMOUNT, format_amount, micro


def _money(written: Any) -> int:
    amount = micro(written)
    if amount is None:
        raise ValueError(f"must be an amount of money from 0 to {format_amount(MAX_AMOUNT)}, such as 0.40")
    return amount


Money = Annotated[
    int,
    BeforeValidator(_money, json_schema_input_type=float | str),
    Field(description="an amount of money, such as 0.40"),
]
"""Amount of money: written in units of the currency, kept in micro-units."""
