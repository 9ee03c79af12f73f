"""Find numbers that a person wrote differently from JSON, such as `1.10`, `0755`, `1e3`. Pure.

As a number such a text loses something: `1.10` is 1.1, and a call that says "1.10" never equals it. In a
limit, the number is what counts. In a comparison, the text may have been meant.
"""

import json
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

KIND: Final = "odd_number"
"""Kind of the error for an odd number."""
_PLAIN: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.(0|[0-9]*[1-9]))?", re.ASCII)


class OddInt(int):
    """Whole number that keeps the text by which it was written."""

    text = ""


class OddFloat(float):
    """Number that keeps the text by which it was written."""

    text = ""


def is_odd(text: str, value: float) -> bool:
    """Return whether JSON writes this number differently from this text."""
    written = json.dumps(value)
    if text in (written, re.sub(r"e([+-])0", r"e\1", written)):  # Python writes 1e-07, JavaScript 1e-7
        return False
    # Neither writes a small number in full (0.0000001), which is as plain.
    return _PLAIN.fullmatch(text) is None or text == "-0" or Decimal(text) != Decimal(written)


def mark(text: str, value: Any) -> Any:
    """Return the same number, of a class that `refuse_odd` knows."""
    made = OddInt(value) if isinstance(value, int) else OddFloat(value)
    made.text = text
    return made


def refuse_odd(value: Any) -> Any:
    """Return the value. Raise an error that says what to write if a number in it is odd."""
    for odd in _find(value):
        plain = json.dumps(float(odd) if isinstance(odd, OddFloat) else int(odd))
        instead = f", or {plain} for the number" if plain[-1].isdigit() else ""
        raise PydanticCustomError(
            KIND,
            "{text} can be read as a text or as a number: write '{text}', in quotes, for the text{instead}",
            {"text": odd.text, "instead": instead},
        )
    return value


def _find(value: Any) -> Iterable[OddInt | OddFloat]:
    if isinstance(value, OddInt | OddFloat):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _find(item)


Exact = Annotated[Any, BeforeValidator(refuse_odd)]
"""Any value that a rule compares with: its numbers must be written as JSON writes them."""
