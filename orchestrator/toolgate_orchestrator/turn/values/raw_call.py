"""Normalises a raw tool call of a provider before any other code reads it.

Whatever an LLM sent, or a provider made of it, becomes a dict of `id`, `name` and `arguments`. Its texts can
be written in every encoding, and its JSON is plain and of limited size. Otherwise a `problem` says why the
call cannot run. So a call can break neither hooks nor the wire nor the conversation, which goes to the
provider again with each request. The meaning of the call is not checked here.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolgate_bus.protocol.json_values import UnreadableJson, read_json
from toolgate_bus.protocol.names import MAX_NAME

from toolgate_orchestrator.turn.values.foreign_code import name_of, theirs
from toolgate_orchestrator.turn.values.jsonable import MAX_CHARS, jsonable, readable

EXECUTION_MODE: Final = "_amplifier_execution_mode"
"""Key by which a provider marks a call that builds on earlier ones: `sequential`."""
MAX_ID: Final = 16 * 1024
"""Maximum number of characters of an id; some providers keep state of their own in ids."""
MAX_DEPTH: Final = 96
"""Maximum depth of arguments. Hooks get a call within a payload, and the kernel's JSON reader takes 125
levels."""
MAX_NODES: Final = 100_000
MAX_SHOWN: Final = 4_000
_BITS: Final = 14_000
"""Maximum number of bits of an integer; Python writes no more than 4,300 digits."""


def refuse_call(call: Mapping[str, Any], why: str, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
    """Return a normalised call that cannot run. Only the fields that a ruling left as they were are kept."""
    after = after if isinstance(after, Mapping) else {}
    kept = {name: call[name] if after.get(name) == before.get(name) else "" for name in ("id", "name")}
    arguments = after.get("arguments")
    return _Plain(
        id=kept["id"],
        name=kept["name"] or "withheld",
        arguments=arguments if isinstance(arguments, dict) else {},
        problem=why,
        raw="",
        sequential=call["sequential"],
    )


class _Plain(dict[str, Any]):
    """A normalised call, which is not normalised twice."""


def plain_call(raw: Any) -> dict[str, Any]:
    """Return the normalised call.

    It has `id` (may be empty), `name`, `arguments`, `problem` (None for a sound call), `raw` (the text of
    unsound arguments), and `sequential`: True if it runs after the calls before it.
    """
    if type(raw) is _Plain:
        return raw
    try:
        read = reader_of(raw)
        given = read("input") if read("arguments") is None else read("arguments")
        id_, name = read("id"), read("name") or read("tool")
        arguments, problem = _arguments(given)
        named, unnamed = _parse_name(name)
        problem, shown = unnamed or problem, ""
        if problem:  # the beginning of unsound arguments, for the LLM that sent them
            shown = given if isinstance(given, str) else json.dumps(jsonable(given), ensure_ascii=False)
            shown = readable(shown[:MAX_SHOWN])
        in_order = read(EXECUTION_MODE) == "sequential"
        return _Plain(
            id=_id(id_), name=named, arguments=arguments, problem=problem, raw=shown, sequential=in_order
        )
    except BaseException as error:
        if not theirs(error):
            raise
        problem = f"the call cannot be read: {name_of(error)}"
        return _Plain(id="", name="unnamed", arguments={}, problem=problem, raw="…", sequential=False)


def reader_of(item: Any) -> Callable[[str], Any]:
    """Return a function that reads a field of a dict or an object; it returns None for a missing field."""
    if isinstance(item, Mapping):
        return item.get
    return lambda key: getattr(item, key, None)


def excess(value: Any, depth: int = MAX_DEPTH, nodes: int = MAX_NODES, chars: int = MAX_CHARS) -> str | None:
    """Return the limit that a plain value exceeds, in words; None if it exceeds none.

    It goes level by level, so that no depth can exhaust the stack.
    """
    level, seen, said = [value], 0, 0
    for _ in range(depth):
        deeper: list[Any] = []
        seen += len(level)
        for item in level:
            kind = type(item)
            if kind is str:
                said += len(item)
            elif kind is dict:
                said += sum(len(key) for key in item if type(key) is str)
                deeper.extend(item.values())
            elif kind is list:
                deeper.extend(item)
            elif kind is int and item.bit_length() > _BITS:
                return "hold an integer of too many digits"
            elif kind is float and not math.isfinite(item):
                return "hold a number that is infinite, or none at all"
            if len(deeper) > nodes:
                break
        if seen + len(deeper) > nodes or said > chars:
            return f"are too large: at most {nodes} values and {chars} characters"
        if not deeper:
            return None
        level = deeper
    return f"are nested more than {depth} levels deep"


def size_of(value: Any) -> tuple[int, int]:
    """Return the number of values and of characters in a plain value."""
    values, chars, left = 0, 0, [value]
    while left:
        item = left.pop()
        values += 1
        if isinstance(item, str):
            chars += len(item)
        elif isinstance(item, dict):
            chars += sum(map(len, item))
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
    return values, chars


def _id(value: Any) -> str:
    if value is None or value == "":
        return ""
    found = readable(value if isinstance(value, str) else str(value))
    return found if len(found) <= MAX_ID else ""


def _parse_name(value: Any) -> tuple[str, str | None]:
    if not isinstance(value, str) or not value:
        shown = str(value) if isinstance(value, int | float | bool) else "unnamed"
        return readable(shown)[:MAX_NAME], "the call names no tool"
    name = readable(value)
    if len(name) > MAX_NAME:
        return name[:MAX_NAME], f"the name of the tool is longer than {MAX_NAME} characters"
    return name, None


def _arguments(raw: Any) -> tuple[dict[str, Any], str | None]:
    if raw is None or raw == "":
        return {}, None
    if isinstance(raw, str):
        try:
            raw = read_json(readable(raw))
        except UnreadableJson as error:
            return {}, f"the arguments are not valid JSON: {error}"
    if not isinstance(raw, Mapping):
        return {}, f"the arguments must be a JSON object, not {name_of(raw)}"
    if problem := excess(raw if type(raw) is dict else dict(raw)):
        return {}, f"the arguments {problem}"
    # A copy in which every text can be encoded, and values that are no JSON become texts.
    if type(raw) is dict and _is_plain(raw):
        return dict(raw), None
    return jsonable(dict(raw)), None


def _is_plain(value: Any) -> bool:
    """Return whether a value consists of JSON's own types, and its texts can be encoded. It must not be too
    deep."""
    kind = type(value)
    if kind is str:
        # No encoding can write lone surrogates.
        return bool(value.isascii() or value.encode("utf-8", "ignore").decode() == value)
    if kind is dict:
        return all(type(key) is str and _is_plain(key) and _is_plain(item) for key, item in value.items())
    if kind is list:
        return all(map(_is_plain, value))
    return value is None or kind in (bool, int, float)
