"""The tools of a process's agents and their arguments, as the process reports them to operators. Pure.

A process announces the digest of this set with its sessions (`agents:ORCH`). The set itself lies once at
`tools:DIGEST`, even if several processes have it. It holds names and schemas, never a call's arguments. A
schema keeps only the parts that limit its values (`narrow`): types, choices, bounds, names. A set may come
from a hostile process: it is read within bounds, and narrowed once more.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.llm import LLM
from toolgate_bus.protocol.packing import make_readable, pack, unpack

MAX_TOOLS: Final = 512
"""Maximum number of tools that one set names."""
MAX_SET: Final = 128 * 1024
"""Maximum size of one set, in bytes."""
MAX_NAME: Final = 256
MAX_VARIANTS: Final = 4
"""Maximum number of schemas of tools with the same name. With more, none counts as known."""
MAX_DEPTH: Final = 6
MAX_PARTS: Final = 400
"""Maximum number of parts of one schema. Parts beyond it may be anything."""
MAX_PROPERTIES: Final = 128
MAX_CHOICES: Final = 64
MAX_BRANCHES: Final = 8
_DIGEST: Final = 32
_ROOM: Final = 1024
"""Bytes of a set that are kept free for its frame."""
TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_MORE_PROPERTIES: Final = frozenset({"patternProperties", "if", "dependentSchemas", "$dynamicRef"})
"""Keywords that allow an object to have properties that `properties` does not name."""
BOUNDS: Final = ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum")

Schema = Mapping[str, Any]
"""A JSON Schema as `narrow` leaves it. An empty one accepts anything."""
ANYTHING: Final[Schema] = {}


@dataclass(frozen=True, slots=True)
class ToolSet:
    """Tools by name, each with the schemas of its arguments; no schemas if nothing is known of them."""

    tools: Mapping[str, tuple[Schema, ...]] = field(default_factory=dict)
    whole: bool = True
    """False if the agents may have tools that are not named here."""


@dataclass(frozen=True, slots=True)
class LivingTools(ToolSet):
    """The tools of all living agents."""

    processes: int = 0
    """Number of processes that reported their tools."""
    silent: int = 0
    """Number of processes with agents that reported no tools, or whose tools could not be read."""


def encode_tools(found: ToolSet) -> bytes:
    """Return the value of `tools:DIGEST`: as many names as there is room for, then the schemas that fit."""
    left = MAX_SET - _ROOM
    names: list[str] = []
    for name in sorted(found.tools)[:MAX_TOOLS]:
        left -= len(pack([name, []]))
        if left < 0:
            break
        names.append(name)
    told: list[list[Any]] = []
    for name in names:
        schemas = list(found.tools[name])
        left -= (size := len(pack(schemas)))
        told.append([name, schemas if left >= 0 else []])
        left += size if left < 0 else 0
    return pack({"tools": told, "whole": found.whole and len(names) == len(found.tools)})


def digest_tools(raw: bytes) -> str:
    """Return the digest that names a set."""
    return hashlib.sha256(raw).hexdigest()[:_DIGEST]


def is_digest(value: Any) -> bool:
    """Return whether a value may name a set."""
    return isinstance(value, str) and len(value) == _DIGEST and not set(value) - set("0123456789abcdef")


def decode_tools(digest: str, raw: bytes) -> ToolSet | None:
    """Read the set of this digest; None if the bytes are another set, or malformed."""
    try:
        found = unpack(raw, MAX_SET, MAX_SET)
    except CodecError:
        return None
    if digest_tools(raw) != digest or not isinstance(found, dict) or not isinstance(found.get("tools"), list):
        return None
    entries = found["tools"]
    tools = {name: schemas for one in entries[:MAX_TOOLS] for name, schemas in _read_entry(one)}
    whole = found.get("whole") is True and len(tools) == len(entries)
    return ToolSet(tools, whole)


def merge_tools(sets: Iterable[ToolSet], processes: int, silent: int) -> LivingTools:
    """Join the sets of `processes` processes. `silent` others reported none."""
    tools: dict[str, tuple[Schema, ...]] = {}
    whole = not silent
    for one in sets:
        whole = whole and one.whole
        for name, schemas in one.tools.items():
            tools[name] = merge_schemas(tools[name], schemas) if name in tools else schemas
    return LivingTools(tools, whole, processes, silent)


def merge_schemas(one: tuple[Schema, ...], other: tuple[Schema, ...]) -> tuple[Schema, ...]:
    """Return the schemas of a tool's name in two places; none if those in one place are unknown."""
    if not one or not other:
        return ()
    both = [*one, *(schema for schema in other if schema not in one)]
    return tuple(both) if len(both) <= MAX_VARIANTS else ()


def is_tool_name(name: Any) -> bool:
    """Return whether a value may name a tool here. Names of requests to an LLM may not."""
    return _is_text(name) and name != "" and not name.startswith(LLM)


def narrow(schema: Any) -> Schema:
    """Return a JSON Schema's limits on its values, bounded, with its references followed.

    A part that is not understood accepts anything: no value that the schema accepts is excluded.
    """
    try:
        return _Narrowing(schema).narrow(schema, 0)
    except Exception:  # noqa: BLE001 - a stranger's schema may contain any objects; then nothing is known
        return ANYTHING


def _read_entry(entry: Any) -> Iterator[tuple[str, tuple[Schema, ...]]]:
    if isinstance(entry, list) and len(entry) == 2 and is_tool_name(entry[0]) and isinstance(entry[1], list):
        schemas = tuple(map(narrow, entry[1])) if len(entry[1]) <= MAX_VARIANTS else ()
        yield entry[0], schemas


class _Narrowing:
    """One schema, and the number of its parts that were read."""

    def __init__(self, root: Any) -> None:
        self._root, self._parts = root, 0

    def narrow(self, schema: Any, depth: int) -> Schema:
        """Return one part of the schema, narrowed."""
        self._parts += 1
        if self._parts > MAX_PARTS or depth > MAX_DEPTH or not isinstance(schema, Mapping):
            return ANYTHING
        if (whole := self._resolve(schema)) is None:
            return ANYTHING
        found: dict[str, Any] = {}
        if types := _types_of(whole):
            found["type"] = types
        if choices := _choices_of(whole):
            found["enum"] = choices
        found |= {name: whole[name] for name in BOUNDS if _is_number(whole.get(name))}
        for name in ("anyOf", "oneOf"):
            branches = whole.get(name)
            if isinstance(branches, Sequence) and 0 < len(branches) <= MAX_BRANCHES:
                found.setdefault("anyOf", [self.narrow(one, depth + 1) for one in branches])
        if isinstance(whole.get("items"), Mapping) and "prefixItems" not in whole:
            found["items"] = self.narrow(whole["items"], depth + 1)
        return found | self._narrow_properties(whole, depth)

    def _narrow_properties(self, whole: Mapping[str, Any], depth: int) -> dict[str, Any]:
        written = whole.get("properties")
        if not isinstance(written, Mapping):
            return {"additionalProperties": False} if whole.get("additionalProperties") is False else {}
        kept = [name for name in written if _is_text(name)][:MAX_PROPERTIES]
        more = whole.get("additionalProperties")
        # Most schemas forget to close themselves; a typo in a property's name shall be found all the same.
        is_open = more is True or isinstance(more, Mapping) or len(kept) < len(written)
        is_open = is_open or not _MORE_PROPERTIES.isdisjoint(whole) or (not written and more is not False)
        found: dict[str, Any] = {"properties": {name: self.narrow(written[name], depth + 1) for name in kept}}
        required = whole.get("required")
        if isinstance(required, Sequence) and (needed := [name for name in kept if name in required]):
            found["required"] = needed
        return found | {"additionalProperties": is_open}

    def _resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the part merged with all its references; None if one of them cannot be followed."""
        whole = dict(schema)
        for _ in range(MAX_DEPTH):
            parts: list[Any] = []
            if "$ref" in whole:
                parts.append(self._find(whole.pop("$ref")))
            if "allOf" in whole:
                every = whole.pop("allOf")
                parts += list(every)[:MAX_BRANCHES] if isinstance(every, Sequence) else [None]
            if not parts:
                return whole
            for part in parts:
                if not isinstance(part, Mapping):
                    return None
                whole = _lay_over(part, whole)
        return None

    def _find(self, pointer: Any) -> Any:
        if not isinstance(pointer, str) or not pointer.startswith("#") or len(pointer) > MAX_NAME:
            return None
        found = self._root
        for step in pointer[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found


def _lay_over(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two schemas that both hold, as far as one schema of this form can express it."""
    whole = {**under, **over}
    for name in ("properties", "required"):
        one, other = under.get(name), over.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            whole[name] = {**one, **other}
        elif isinstance(one, list) and isinstance(other, list):
            whole[name] = [*one, *other]
    return whole


def _types_of(schema: Mapping[str, Any]) -> list[str]:
    written = schema.get("type")
    types = [written] if isinstance(written, str) else written
    if not isinstance(types, Sequence) or not all(one in TYPES for one in types):
        return []
    return sorted({*types, *(["null"] if schema.get("nullable") is True else [])})


def _choices_of(schema: Mapping[str, Any]) -> list[Any]:
    written = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(written, Sequence) or isinstance(written, str) or len(written) > MAX_CHOICES:
        return []
    is_plain = all(one is None or type(one) is bool or _is_number(one) or _is_text(one) for one in written)
    return list(written) if is_plain else []


def _is_text(value: Any) -> bool:
    if type(value) is not str or len(value) > MAX_NAME:
        return False
    return value.isascii() or make_readable(value) == value


def _is_number(value: Any) -> bool:
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < 2**63)
