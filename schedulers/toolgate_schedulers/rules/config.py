"""A scheduler's configuration: one YAML mapping, checked by the scheduler's own pydantic model.

Reading is bounded (bytes, depth, nodes after aliases) and safe (no tags that make objects). Keys
given twice are refused, since YAML would drop the first without a word, and dates stay text, as in
the JSON arguments they are compared with. Every complaint names the file, the field and what is allowed.
"""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from toolgate_bus.errors import ConfigError

from toolgate_schedulers.rules.config_errors import allowed

__all__ = ["check", "explain", "read_mapping"]

MAX_BYTES = 256 * 1024
MAX_NODES = 50_000
MAX_DEPTH = 64
_NAMES_IT = ("value_error", "literal_error")

Model = TypeVar("Model", bound=BaseModel)


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; an empty file is an empty one. Raises ConfigError naming the file."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path}: longer than {MAX_BYTES // 1024} KiB: no configuration is that long")
    return parse_mapping(raw, str(path))


def parse_mapping(raw: bytes, where: str) -> dict[str, Any]:
    """The mapping in YAML text; `where` begins every complaint. Raises ConfigError."""
    try:
        loader = _Loader(raw)
        node = loader.get_single_node()
        if node is None:
            return {}
        _examine(node, where)
        value = loader.construct_document(node)
    except RecursionError:
        raise ConfigError(f"{where}: nested more than {MAX_DEPTH} deep") from None
    except (yaml.YAMLError, ValueError, UnicodeError) as error:
        raise ConfigError(f"{where}: is not YAML: {_one_line(error)}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a mapping (key: value), not {type(value).__name__}")
    return value


def check(model: type[Model], mapping: Any, where: str) -> Model:
    """The mapping as the model reads it. Raises ConfigError with a line for each wrong field.

    Unknown keys at the top are refused even where the model forgot to forbid them.
    """
    if model.model_config.get("extra") is None and isinstance(mapping, dict):
        unknown = [key for key in mapping if key not in _keys(model)]
        if unknown:
            raise ConfigError("\n".join(f"{where}: {_unknown(key, [model])}" for key in unknown))
    try:
        return model.model_validate(mapping)
    except ValidationError as error:
        raise explain(error, model, where) from None


def explain(error: ValidationError, model: type[BaseModel], where: str) -> ConfigError:
    """A line for each wrong field: file, path, what is wrong, what is allowed; never the value."""
    lines: dict[str, None] = {}
    faults = error.errors(include_url=False, include_input=False)
    for fault in faults:
        if fault["type"] == "too_short" and any(_inside(fault["loc"], other["loc"]) for other in faults):
            continue  # pydantic leaves faulty items out, and then counts: the list itself is long enough
        *parents, last = fault["loc"] or ("",)
        path = ".".join(map(str, fault["loc"])) or "the whole"
        if fault["type"] == "extra_forbidden":
            at = "".join(f"{part}." for part in parents)
            lines[f"{where}: {at}{_unknown(last, _models_at(model, tuple(parents)))}"] = None
        else:
            said = fault["msg"].removeprefix("Value error, ")
            # Validators of ours, and choices, name what is allowed themselves.
            may = allowed(model, fault["loc"]) if fault["type"] not in _NAMES_IT else ""
            lines[f"{where}: {path}: {said}" + (f"; allowed: {may}" if may else "")] = None
    return ConfigError("\n".join(lines))


def _inside(outer: tuple[Any, ...], loc: tuple[Any, ...]) -> bool:
    return len(loc) > len(outer) and loc[: len(outer)] == outer


def _unknown(key: Any, models: list[type[BaseModel]]) -> str:
    allowed = sorted({name for model in models for name in _keys(model)})
    close = difflib.get_close_matches(str(key), allowed, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{key}: unknown key; allowed: {', '.join(allowed) or 'none'}{hint}"


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_at(model: type[BaseModel], path: tuple[Any, ...]) -> list[type[BaseModel]]:
    """The models that may stand at a path of an error: for naming the keys that are allowed there."""
    models = [model]
    for step in path:
        fields = [
            field.annotation
            for at in models
            for name, field in at.model_fields.items()
            if (field.alias or name) == step
        ]
        # A list index, a mapping's key or a union's tag is no field: the models stay the same.
        if fields:
            models = [found for annotation in fields for found in _models_in(annotation)]
    return models


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


class _Loader(yaml.SafeLoader):
    """SafeLoader that leaves dates as text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the base class's own way of saying it
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _examine(root: yaml.Node, where: str) -> None:
    """Refuse keys given twice, and what is small to write but large to read.

    An alias counts as all that it stands for. Done before `<<` mixes other mappings in.
    """
    sizes: dict[int, int] = {}

    def size(node: yaml.Node, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise ConfigError(f"{where}: nested more than {MAX_DEPTH} deep, or an alias that holds itself")
        if id(node) not in sizes:
            children = list(_children(node, where))
            sizes[id(node)] = 1 + sum(size(child, depth + 1) for child in children)
        return sizes[id(node)]

    if size(root, 0) > MAX_NODES:
        raise ConfigError(f"{where}: more than {MAX_NODES} values, aliases counted in full")


def _children(node: yaml.Node, where: str) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        seen: set[tuple[str, str]] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    line = key.start_mark.line + 1
                    raise ConfigError(f"{where}: the key {key.value!r} is given twice (line {line})")
                seen.add((key.tag, key.value))
            yield key
            yield value


def _one_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    at = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    return f"{getattr(error, 'problem', None) or str(error).splitlines()[0]}{at}"
