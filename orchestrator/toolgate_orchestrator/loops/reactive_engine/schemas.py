"""Offer the tools to the LLM with widened schemas, so that any value may be a reference.

Each property and item may also be a string that begins with †, and a call may carry `_outputPath`.
The tools' own schemas are not changed: the values must fit them when a call starts. A tool with its
own parameter `_outputPath` keeps it, and its result cannot be written to the state.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_core import ToolSpec

from toolgate_orchestrator.decision.question.schema_check import REFERENCE, Checker
from toolgate_orchestrator.loops.reactive_engine.references import OUTPUT_PATH, OUTPUT_PATH_PATTERN
from toolgate_orchestrator.turn.values.messages import tool_specs

_MAX_DEPTH = 32
_UNSETTLED = frozenset(
    {"not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems"}
    | {"dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "propertyNames"}
)
"""Keywords that may refuse a reference and accept its value."""

_OUTPUT_PATH_PROPERTY = {
    "type": "string",
    "pattern": OUTPUT_PATH_PATTERN,
    "description": "Save this call's result here; other calls may use it as the string value †state.… "
    "even in the same turn.",
}


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """Tool as the LLM sees it, with the checks for its arguments."""

    spec: ToolSpec
    original: Checker
    """Check of the values when the call starts."""
    on_arrival: Checker | None
    """Check of arguments that still hold references; None if the schema cannot be widened."""
    writes: bool = True
    """True if `_outputPath` is the loop's; False if it is the tool's own parameter."""


def offer(tools: Mapping[str, Any]) -> dict[str, OfferedTool]:
    """Return the mounted tools by name."""
    return {spec.name: _build_offer(spec) for spec in tool_specs(tools)}


def _build_offer(spec: ToolSpec) -> OfferedTool:
    schema = spec.parameters
    properties = schema.get("properties")
    writes = not (isinstance(properties, Mapping) and OUTPUT_PATH in properties)
    if (spec.model_extra or {}).get("type", "function") != "function":
        # A tool of the provider's own: the provider fixes its schema.
        return OfferedTool(spec, Checker(schema), None, writes)
    movable = _movable(schema)
    shown = widen(schema) if movable else dict(schema)
    if writes:
        inner = shown.get("properties")
        shown["properties"] = {
            **(inner if isinstance(inner, Mapping) else {}),
            OUTPUT_PATH: _OUTPUT_PATH_PROPERTY,
        }
    return OfferedTool(
        ToolSpec(name=spec.name, description=spec.description, parameters=shown),
        Checker(schema),
        Checker(widen(schema, lenient=True)) if movable else None,
        writes,
    )


def final_output_spec(name: str, schema: Mapping[str, Any]) -> ToolSpec:
    """Return the reserved tool by which the LLM gives the final output; null is "not yet"."""
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    own = {key: value for key, value in schema.items() if key not in shared and key != "$schema"}
    description = "Give the final output. Its calls are finished first; then the task ends. null: not yet."
    if not _movable(schema) or _points_to_root(schema):
        description += f" `output` must fit this JSON Schema: {json.dumps(schema, ensure_ascii=False)}"
        own, shared = {}, {}
    wide = widen({**own, **shared})
    shared = {key: wide.pop(key) for key in shared}
    parameters = {
        "type": "object",
        "required": ["output"],
        "properties": {"output": {"anyOf": [wide, {"type": "null"}, REFERENCE]}},
        **shared,
    }
    return ToolSpec(name=name, description=description, parameters=parameters)


def widen(schema: Mapping[str, Any], *, lenient: bool = False, depth: int = 0) -> dict[str, Any]:
    """Return a copy of a schema in which every property and item may also be a reference.

    A lenient copy refuses nothing that could fit once the references are replaced.
    """
    wide: dict[str, Any] = {}
    for key, value in schema.items():
        choices = value if key == "enum" and isinstance(value, list) else [value] if key == "const" else []
        # Where whole objects or lists are compared, a reference may stand for a part of one.
        if lenient and (key in _UNSETTLED or any(isinstance(choice, dict | list) for choice in choices)):
            continue
        wide[key] = _keyword(key, value, lenient, depth + 1)
    if lenient and "oneOf" in wide:  # with references in place of values several may fit
        wide["allOf"] = [*wide.get("allOf", ()), {"anyOf": wide.pop("oneOf")}]
    return wide


def _keyword(key: str, value: Any, lenient: bool, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return value
    if key in ("properties", "patternProperties") and isinstance(value, Mapping):
        return {name: _or_reference(inner, lenient, depth) for name, inner in value.items()}
    if key in ("items", "additionalItems", "additionalProperties"):
        return _or_reference(value, lenient, depth)
    if key == "prefixItems" and isinstance(value, list):
        return [_or_reference(inner, lenient, depth) for inner in value]
    if key in ("$defs", "definitions") and isinstance(value, Mapping):
        return {name: _inside(inner, lenient, depth) for name, inner in value.items()}
    if key in ("anyOf", "allOf", "oneOf") and isinstance(value, list):
        return [_inside(inner, lenient, depth) for inner in value]
    return value


def _or_reference(schema: Any, lenient: bool, depth: int) -> Any:
    if isinstance(schema, list):  # items of older drafts: one schema for each position
        return [_or_reference(inner, lenient, depth) for inner in schema]
    if not isinstance(schema, Mapping) or not schema:
        return schema  # true, false and {} need no reference
    wide: dict[str, Any] = {"anyOf": [widen(schema, lenient=lenient, depth=depth), REFERENCE]}
    if isinstance(schema.get("description"), str):
        wide["description"] = schema["description"]
    return wide


def _inside(schema: Any, lenient: bool, depth: int) -> Any:
    return widen(schema, lenient=lenient, depth=depth) if isinstance(schema, Mapping) else schema


def _movable(schema: Any, depth: int = 0) -> bool:
    """Return whether `$ref` pointers inside the schema still lead to the same place once it is widened."""
    if depth > _MAX_DEPTH:
        return False
    if isinstance(schema, list):
        return all(_movable(inner, depth + 1) for inner in schema)
    if not isinstance(schema, Mapping):
        return True
    pointer = schema.get("$ref")
    if isinstance(pointer, str) and pointer != "#":
        start, _, name = pointer.rpartition("/")
        if start not in ("#/$defs", "#/definitions") or not name:
            return False
    if any(isinstance(schema.get(key), str) for key in ("$id", "$dynamicRef", "$recursiveRef")):
        return False
    return all(_movable(inner, depth + 1) for inner in schema.values())


def _points_to_root(schema: Any) -> bool:
    """Return whether a movable schema refers to itself as a whole."""
    if isinstance(schema, list):
        return any(_points_to_root(inner) for inner in schema)
    if not isinstance(schema, Mapping):
        return False
    return schema.get("$ref") == "#" or any(_points_to_root(inner) for inner in schema.values())
