"""Secret fields inside a text that is JSON: a tool may take its whole input as one text. Pure.

A text counts as JSON if all of it is one object, one list, or one string that holds such a text again.
Other notations are not read (docs/secure.md, "Redaction", lists them).
"""

import json
from collections.abc import Collection, Iterator
from typing import Any, Final

__all__ = ["secrets_within"]

MOST_NESTED: Final = 4
"""Texts within texts; what is nested deeper counts as secret."""
_BEGINS: Final = ("{", "[", '"')


class _Pairs(tuple[tuple[str, Any], ...]):
    """An object as it is written: the first of two equal names counts for some readers, too."""

    __slots__ = ()


def secrets_within(text: str, fields: Collection[str], nested: int = 0) -> list[str] | None:
    """The texts under these fields (in casefolded names) of a text; None where it has no such field.

    A text that is nested too deep to be read has one: nobody can say that it has not.
    """
    text = text.strip().removeprefix("\ufeff").lstrip()
    if text[:1] not in _BEGINS:
        return None
    try:
        value = json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=_Pairs)
        found = list(_found(value, fields, nested))
    except RecursionError:
        return []
    except ValueError:
        return None
    return [one for texts in found for one in texts] if found else None


def _found(value: Any, fields: Collection[str], nested: int) -> Iterator[list[str]]:
    """The texts of each place where a secret field is."""
    if isinstance(value, _Pairs):
        for name, child in value:
            if name.casefold() in fields:
                yield [*_texts(child)]
            else:
                yield from _found(child, fields, nested)
    elif isinstance(value, list):
        for child in value:
            yield from _found(child, fields, nested)
    elif isinstance(value, str) and nested < MOST_NESTED:
        within = secrets_within(value, fields, nested + 1)
        if within is not None:
            yield within
    elif isinstance(value, str) and value.lstrip()[:1] in _BEGINS:
        yield []


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (value,) if value else ()
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _texts(child)
