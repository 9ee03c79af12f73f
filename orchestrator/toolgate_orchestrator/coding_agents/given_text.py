"""A ruled result as one text, for clients whose hooks give the LLM a text in its place. Pure."""

import json
from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.ruling.results import hide_texts

from toolgate_orchestrator.calls.result_parts import read_cut
from toolgate_orchestrator.coding_agents.event import RuledResult

MASKED: Final = "Parts of this result are withheld:"
REPLACED: Final = "Another result was given in place of this one:"
EMPTY: Final = "(empty)"
_HEADS: Final[Mapping[str, str]] = {"masked": MASKED, "replaced": REPLACED}


def read_given(given: RuledResult) -> tuple[Any, str]:
    """Return a ruled result, and the mark if its end was cut off; a value of JSON as far as it was sent."""
    value = given.value
    if given.outcome == "masked" and given.is_cut and type(value) is str:
        found, mark = read_cut(value)
        if found is not None:
            return hide_texts(found, given.hidden), mark
    return value, ""


def text_of_given(given: RuledResult, *names: str, head: bool = True) -> str:
    """Return a ruled result as a text that is not empty: the text of the first of these fields that it has.

    With `head` it begins with a line that says what was done with it.
    """
    value, mark = read_given(given)
    if isinstance(value, dict):
        value = next((one for name in names if isinstance(one := value.get(name), str)), value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    begins = _HEADS.get(given.outcome, "") if head else ""
    return "\n".join(one for one in (begins, text.strip(), mark) if one) or EMPTY
