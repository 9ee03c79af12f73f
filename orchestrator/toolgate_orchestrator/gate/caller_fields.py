"""Who makes a call, as it can be told: texts are texts, numbers are whole, and all of it can be read.

Sessions, labels and ids come from an app, and often from its users. A question that no scheduler could
read is asked in vain: optional schedulers would be passed over for it, by this call and by those after it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolgate_bus.protocol import packing
from toolgate_bus.protocol.names import MAX_LINEAGE

TOO_DEEP: Final = f"it is made more than {MAX_LINEAGE} agents deep, and not all of them can be told"
_TEXTS: Final = frozenset((str,))
_MAX_INTEGER: Final = 2**63 - 1
_MAX_SHOWN: Final = 256
"""Characters of a text, and entries of a collection, that the record keeps of what nobody could read."""


class UnreadableQuestion(Exception):  # noqa: N818 - it says what was found
    """No scheduler could read the question about a call; the message says why."""


def are_texts(values: Iterable[Any]) -> bool:
    """Whether each is a text that a question can hold as it is."""
    return _TEXTS.issuperset(map(type, values))


def make_texts(values: Iterable[Any]) -> list[str]:
    """The same as texts."""
    return [_text(value) for value in values]


def make_plain(who: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields, each of its type: what should be a text and is none is told as its text."""
    plain: dict[str, Any] = {name: _text(value) for name, value in who.items()}
    plain["labels"] = {_text(name): _text(value) for name, value in who["labels"].items()}
    for name in ("parent", "agent_target"):
        plain[name] = None if who[name] is None else _text(who[name])
    iteration = who["iteration"]
    within = type(iteration) is int and abs(iteration) <= _MAX_INTEGER
    plain["iteration"] = iteration if within else 0
    if "lineage" in who:
        plain["lineage"] = [_text(name) for name in who["lineage"]]
    return plain


def check_fields(fields: Mapping[str, Any]) -> None:
    """Nothing, if who reads a question can read these fields of it; raises UnreadableQuestion."""
    for name, value in fields.items():
        if name == "tool_input":
            continue
        if isinstance(value, dict | list) and len(value) > packing.MAX_ENTRIES:
            raise UnreadableQuestion(f"{name} has more than {packing.MAX_ENTRIES} entries")
        if any(_is_long(text) for text in _texts(value)):
            raise UnreadableQuestion(f"a text in {name} is longer than {packing.MAX_STRING} bytes")


def clip_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields, so short that the record can hold them."""
    return {name: value if name == "tool_input" else _clip(value) for name, value in fields.items()}


def _clip(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}…"
    if isinstance(value, dict):
        return {_clip(name): _clip(one) for name, one in [*value.items()][:_MAX_SHOWN]}
    return [_clip(one) for one in value[:_MAX_SHOWN]] if isinstance(value, list) else value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    return "" if value is None else str(value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for text in pair)
    elif isinstance(value, list):
        yield from value


def _is_long(text: str) -> bool:
    return len(text) * 4 > packing.MAX_STRING and len(text.encode("utf-8", "replace")) > packing.MAX_STRING
