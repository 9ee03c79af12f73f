"""List the installed schedulers for `toolgate scheduler search`: package, version, wire, config.

A scheduler's attribute `wire` lists the versions of the wire that it speaks. Without it, it speaks those of
this worker. A scheduler whose module cannot be imported is listed with the reason.
"""

import inspect
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.table import Table
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol import packing

from toolgate_schedulers.worker.loading import GROUP, authors_words

MAX_LINE = 200


class _EditorSchemas(GenerateJsonSchema):
    """JSON Schemas for editors: a value that custom code reads, without a stated type, may be anything."""

    def function_before_schema(self, schema: Any) -> dict[str, Any]:
        written = schema.get("json_schema_input_schema")
        return {} if written is None else self.generate_inner(written)

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        return {}


class InstalledScheduler(NamedTuple):
    """Scheduler that an entry point offers."""

    name: str
    package: str
    version: str
    value: str
    """Module and attribute."""
    wire: tuple[int, ...] = ()
    """Versions of the wire that it speaks."""
    doc: str = ""
    """First line of its documentation."""
    model: type[BaseModel] | None = None
    """Model of its configuration; None if it takes none."""
    problem: str = ""
    """Reason that it cannot be loaded."""


def find_installed(points: Iterable[EntryPoint] | None = None) -> list[InstalledScheduler]:
    """Return the installed schedulers, by name."""
    found = entry_points(group=GROUP) if points is None else points
    return sorted({_describe(point) for point in found}, key=lambda one: (one.name, one.package, one.value))


def matches(one: InstalledScheduler, words: Sequence[str]) -> bool:
    """Return whether all words stand in its name, package or documentation, in any case."""
    told = f"{one.name} {one.package} {one.doc}".casefold()
    return all(word.casefold() in told for word in words)


def _describe(point: EntryPoint) -> InstalledScheduler:
    package, version = (point.dist.name, point.dist.version) if point.dist else ("?", "?")
    known = InstalledScheduler(point.name, package, version, point.value)
    try:
        written = point.load()
    except Exception as error:  # noqa: BLE001 - another package's module may raise anything
        return known._replace(problem=f"it cannot be loaded: {authors_words(error)}"[:MAX_LINE])
    model = getattr(written, "config_model", None)
    lines = (inspect.getdoc(inspect.getmodule(written)) or inspect.getdoc(written) or "").splitlines()
    return known._replace(
        wire=_wire_of(written),
        doc=(lines[0] if lines else "")[:MAX_LINE],
        model=model if inspect.isclass(model) and issubclass(model, BaseModel) else None,
    )


def _wire_of(written: Any) -> tuple[int, ...]:
    told = getattr(written, "wire", None)
    said = told if isinstance(told, tuple | list) else ()
    return tuple(sorted(one for one in said if type(one) is int)) or packing.VERSIONS


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a scheduler's configuration; raise ConfigError if there is none."""
    found = [one for one in find_installed() if one.name == name]
    if not found:
        names = ", ".join(one.name for one in find_installed())
        raise ConfigError(f"no scheduler {name!r} is installed. Installed: {names or 'none'}")
    if found[0].problem:
        raise ConfigError(f"{name}: {found[0].problem}")
    model = found[0].model
    if model is None:
        raise ConfigError(f"{name} takes no configuration")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **model.model_json_schema(schema_generator=_EditorSchemas),
    }


def table_of(found: Sequence[InstalledScheduler]) -> Any:
    """Return the table for people."""
    table = Table(
        ("scheduler", "package", "wire", "what it is"),
        cut={"package"},
        wrap={"what it is"},
        spare=("wire", "package"),
    )
    for one in found:
        wire = " ".join(map(str, one.wire))
        table.add_row(
            escape(one.name), escape(f"{one.package} {one.version}"), wire, escape(one.problem or one.doc)
        )
    return table


def as_json(one: InstalledScheduler) -> dict[str, Any]:
    """Return the object for scripts."""
    return {
        "name": one.name,
        "package": one.package,
        "version": one.version,
        "spec": one.value,
        "wire": list(one.wire),
        "configurable": one.model is not None,
        "documentation": one.doc,
        "problem": one.problem or None,
    }
