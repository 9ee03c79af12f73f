"""Check a configuration against its pydantic model. Report each wrong field by file, line and path. Pure.

The allowed values of a field are read from the model's JSON schema: types, bounds, choices, keys. A
field's `description`, if it has one, is shown instead. No line shows a value, which may be a secret, except
in a validator's own message.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from toolgate_bus.config import odd_number
from toolgate_bus.errors import ConfigError

if TYPE_CHECKING:
    from toolgate_bus.config.document import Document

SAY_WHAT_IS_ALLOWED: Final = ("value_error", "literal_error", odd_number.KIND)
"""Kinds of errors whose messages already say what is allowed: those of our validators, and of choices."""
YAML_WORDS: Final = {
    "tuple_type": "Input should be a list",
    "list_type": "Input should be a list",
    "dict_type": "Input should be a mapping",
    "model_type": "Input should be a mapping",
}
"""Messages for the kinds of errors that pydantic describes in Python's terms."""
RANGE: Final = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}

Model = TypeVar("Model", bound=BaseModel)
Schema = Mapping[str, Any]
Loc = tuple[Any, ...]


class StrictModel(BaseModel):
    """Part of a configuration: frozen, unknown keys refused, values never echoed in errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False, hide_input_in_errors=True)


def check(model: type[Model], value: Any, where: "str | Document", *at: Loc) -> Model:
    """Return the value as the model reads it. Raise ConfigError with a line for each wrong field.

    Each line begins with `where`: a name, or the document with the value at the places `at`. A value may
    come from several places; a fault that is in none of them is reported at the first. Unknown keys at the
    top level are refused even if the model does not forbid them. Values that a rule compares with must be
    written as JSON writes them.
    """
    if faults := _find_unknown_keys(model, value):
        raise _error(faults, where, at)
    try:
        checked = model.model_validate(value)
    except ValidationError as error:
        raise _error(explain(error, model), where, at) from None
    _refuse_odd_numbers(model, value, where, at)
    return checked


def check_part(model: type[BaseModel], value: Any, where: "str | Document", *at: Loc) -> None:
    """Check a value that is laid over another value of the model, like `check`, but require no field."""
    try:
        model.model_validate(value)
    except ValidationError as error:
        if faults := [*_find_unknown_keys(model, value), *explain(error, model, part=True)]:
            raise _error(faults, where, at) from None
    _refuse_odd_numbers(model, value, where, at)


def _refuse_odd_numbers(
    model: type[BaseModel], value: Any, where: "str | Document", at: Sequence[Loc]
) -> None:
    if isinstance(where, str) or not where.has_odd:
        return
    try:
        model.model_validate(where.mark_odd(value, at or ((),)))
    except ValidationError as error:
        faults = [
            (fault["loc"], fault["msg"]) for fault in error.errors() if fault["type"] == odd_number.KIND
        ]
        if faults:
            raise _error(faults, where, at) from None


def _find_unknown_keys(model: type[BaseModel], value: Any) -> list[tuple[Loc, str]]:
    if model.model_config.get("extra") is not None or not isinstance(value, dict):
        return []
    keys = list(_schema(model).get("properties", ()))
    return [((key,), unknown_key(key, keys)) for key in value if key not in keys]


def _error(faults: Iterable[tuple[Loc, str]], where: "str | Document", at: Sequence[Loc]) -> ConfigError:
    lines: dict[str, None] = {}
    for loc, words in faults:
        places = [(*place, *loc) for place in at or ((),)]
        place = places[0] if isinstance(where, str) else where.nearest(places)
        begin = where if isinstance(where, str) else where.where(place)
        lines[f"{begin}: {'.'.join(map(str, place)) or 'top level'}: {words}"] = None
    return ConfigError("\n".join(lines))


def explain(
    error: ValidationError, model: type[BaseModel], *, part: bool = False
) -> Iterator[tuple[Loc, str]]:
    """Give the place of each wrong field, and what is wrong there, with what is allowed.

    For a part of a value, missing fields and faults of the whole do not count.
    """
    schema = _schema(model)
    faults = error.errors(include_url=False, include_input=False)
    for fault in faults:
        loc = fault["loc"]
        inside = [one for other in faults if (one := other["loc"]) != loc and one[: len(loc)] == loc]
        if fault["type"] == "too_short" and inside:
            continue  # pydantic leaves faulty items out, and then counts: the list itself is long enough
        if part and (not loc or fault["type"] == "missing"):
            continue
        if fault["type"] == "extra_forbidden":
            nodes = _nodes_at(schema, schema, loc[:-1])
            yield loc, unknown_key(loc[-1], {key for node in nodes for key in node.get("properties", ())})
        else:
            said = YAML_WORDS.get(fault["type"], fault["msg"].removeprefix("Value error, "))
            said = f"List{said[5:]}" if said.startswith("Tuple ") else said
            known = fault["type"] in SAY_WHAT_IS_ALLOWED
            words = [] if known else [_words(node) for node in _nodes_at(schema, schema, loc)]
            may = " or ".join(dict.fromkeys(word for word in words if word))
            yield loc, said + (f"; allowed: {may}" if may else "")


def unknown_key(key: Any, allowed: Sequence[str] | set[str]) -> str:
    """Return the message about an unknown key."""
    close = difflib.get_close_matches(str(key), allowed, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"unknown key; allowed: {', '.join(sorted(allowed)) or 'none'}{hint}"


class _Lenient(GenerateJsonSchema):
    """Generator of a schema in which types that JSON cannot describe allow anything."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - the base's own way

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        return {}


@cache
def _schema(model: type[BaseModel]) -> Schema:
    return model.model_json_schema(schema_generator=_Lenient)


def _nodes_at(schema: Schema, at: Schema, loc: Loc) -> Iterator[Schema]:
    """Give the parts of a schema that may stand at the end of a path."""
    node = dict(at)
    while "$ref" in node:  # the description of a class is not one of the field's
        target = schema.get("$defs", {}).get(node.pop("$ref").rpartition("/")[2], {})
        node = {key: value for key, value in target.items() if key != "description"} | node
    if "properties" in node and at is schema:
        node.pop("description", None)
    choices = node.get("anyOf") or node.get("oneOf")
    if choices and "description" not in node:
        for one in choices:
            yield from _nodes_at(schema, one, loc)
    elif not loc or "description" in node:
        yield node
    else:
        step, *rest = loc
        inner = node.get("properties", {}).get(step)
        if inner is None and isinstance(step, int):
            inner = node.get("items")
        if inner is None and node.get("type") == "object" and "properties" not in node:
            of = next(iter(node.get("patternProperties", {}).values()), node.get("additionalProperties"))
            inner = node.get("propertyNames", {}) if rest == ["[key]"] else of
        # Any other step names the alternative that was tried; the file has no such step.
        yield from _nodes_at(schema, inner if isinstance(inner, Mapping) else at, tuple(rest))


def _words(node: Schema) -> str:
    if "description" in node:
        return str(node["description"])
    if "enum" in node or "const" in node:
        return ", ".join(map(repr, node.get("enum", [node.get("const")])))
    if "properties" in node:
        return f"a mapping of {', '.join(node['properties'])}"
    kind = node.get("type")
    plain = {"boolean": "true or false", "object": "a mapping"}
    plain |= {"string": f"a text{_count(node, 'Length', 'characters')}"}
    plain |= {"array": f"a list{_count(node, 'Items', 'items')}"}
    bounds = "".join(f" {word} {node[name]:g}" for name, word in RANGE.items() if name in node)
    plain |= {"integer": f"a whole number{bounds}", "number": f"a number{bounds}"}
    return plain.get(kind, "") if isinstance(kind, str) else ""


def _count(node: Schema, what: str, of: str) -> str:
    least, most = node.get(f"min{what}"), node.get(f"max{what}")
    if most is not None:
        return f" of {least or 0} to {most} {of}"
    return "" if not least else f" of at least {least} {of if least > 1 else of[:-1]}"
