"""Where a replacement's arguments come from: what `arguments:` means in the shipped schedulers. Pure.

Target argument to source: `$.path` in the call's own arguments, `$` for all of them, or `{value: …}`.
A source that the call does not have leaves its target argument out.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from toolgate_bus.config.check import StrictModel
from toolgate_bus.ruling.conditions.readings import MISSING, find

__all__ = ["Arguments", "Literally", "Name", "map_arguments"]

Name = Annotated[str, Field(min_length=1, max_length=256)]


class Literally(StrictModel):
    """An argument given as it is: `{value: 10}`."""

    value: Any


def _sources(arguments: Any) -> Any:
    for name, source in arguments.items() if isinstance(arguments, Mapping) else ():
        literal = isinstance(source, Literally) or (isinstance(source, Mapping) and set(source) == {"value"})
        if not literal and not (isinstance(source, str) and _is_path(source)):
            raise ValueError(
                f"{name}: must be $ (all arguments), $.path (one of them), or {{value: …}} for a literal"
            )
    return arguments


Arguments = Annotated[dict[Name, str | Literally], Field(max_length=256), BeforeValidator(_sources)]


def map_arguments(sources: Mapping[str, str | Literally], arguments: dict[str, Any]) -> dict[str, Any]:
    """The target's arguments; a source that is not there leaves its argument out."""
    found = {name: _source(source, arguments) for name, source in sources.items()}
    return {name: value for name, value in found.items() if value is not MISSING}


def _is_path(source: str) -> bool:
    return source == "$" or (source.startswith("$.") and len(source) > len("$."))


def _source(source: str | Literally, arguments: dict[str, Any]) -> Any:
    if isinstance(source, Literally):
        return source.value
    return arguments if source == "$" else find(source.removeprefix("$."), arguments)
