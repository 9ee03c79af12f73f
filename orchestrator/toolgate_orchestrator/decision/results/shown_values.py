"""A result as JSON, with all that may be shown of it.

An LLM may get what a value holds, what it is dumped as, or its text: that is for the framework to choose.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from pydantic import BaseModel, PlainSerializer, WrapSerializer
from toolgate_bus.protocol.json_values import same_json

from toolgate_orchestrator.decision.question.plain_values import PlainReading

_PLAINLY_WRITTEN: Final = frozenset(
    {
        *("builtins", "collections", "datetime", "decimal", "enum", "ipaddress", "pathlib", "uuid"),
        *("pydantic", "pydantic_core"),
    }
)
"""Packages whose classes write no more in their text than they hold."""
_TEXT: Final = "its text"
"""Name under which the text of a value stands beside what it holds."""
_DUMP: Final = "its dump"
"""Name of what a model is dumped as, if that is no map."""


def to_shown(value: Any) -> Any:
    """Return the plain form of a result with all that may be shown of it: computed fields, its own text.

    What reads otherwise where it is shown than where it is held becomes a list of both. Nothing is consumed:
    an iterator stays as it is.
    """
    return _ShownReading().read(value, 0)


class _ShownReading(PlainReading):
    """Reading of a value that is shown."""

    def read_odd(self, value: Any, kind: type, depth: int) -> Any:
        """See PlainReading."""
        plain = super().read_odd(value, kind, depth)
        if plain is value:
            return value
        if type(plain) is dict and hasattr(kind, "__pydantic_decorators__"):
            plain = self._add_shown_fields(dict(plain), value, kind, depth)
        text = _own_text(value, kind)
        if not text or text == plain:
            return plain
        return {**plain, _free_name(plain, _TEXT): text} if type(plain) is dict else [plain, text]

    def read_items(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        """See PlainReading. Each key is a text here, and of two that read alike both stay."""
        found: dict[str, Any] = {}
        for key, child in items:
            name = self.read(key, depth + 1)
            name = _free_name(found, name if type(name) is str else str(key))
            found[name] = self.read(child, depth + 1)
        return found

    def _add_shown_fields(self, found: dict[str, Any], value: Any, kind: Any, depth: int) -> dict[str, Any]:
        """Add the fields that a model computes, and what others are dumped as."""
        for name in kind.__pydantic_decorators__.computed_fields:
            with suppress(Exception):  # its own code may raise anything; then nobody is shown it
                found[_free_name(found, name)] = self.read(getattr(value, name), depth + 1)
        names = _dumped_otherwise(kind) if issubclass(kind, BaseModel) else ()
        forms = {name: [found[name]] if name in found else [] for name in names}
        for mode in ("json", "python") if names else ():
            with suppress(Exception):  # as above: what cannot be dumped is shown to nobody in that form
                made = value.model_dump(mode=mode, include=names)
                for name, one in (made if type(made) is dict else {_DUMP: made}).items():
                    dumped, known = self.read(one, depth + 1), forms.setdefault(name, [])
                    if not any(same_json(dumped, other) for other in known):
                        known.append(dumped)
        return found | {
            name: known[0] if len(known) == 1 else known for name, known in forms.items() if known
        }


def _dumped_otherwise(kind: type[BaseModel]) -> set[str]:
    """Return the fields of a model that have a serializer of their own; all, if it has one as a whole."""
    decorators = kind.__pydantic_decorators__
    names = {name for one in decorators.field_serializers.values() for name in one.info.fields}
    for name, field in kind.model_fields.items():
        if any(isinstance(one, PlainSerializer | WrapSerializer) for one in field.metadata):
            names.add(name)
    return set(kind.model_fields) if decorators.model_serializers or "*" in names else names


def _own_text(value: Any, kind: Any) -> str:
    """Return how a class itself writes its values; empty if that says no more than its fields."""
    is_own = [_package_of(one) not in _PLAINLY_WRITTEN for one in (kind.__str__, kind.__repr__)]
    if hasattr(kind, "__repr_args__") and _package_of(kind.__repr_args__) not in _PLAINLY_WRITTEN:
        is_own = [True, True]  # pydantic writes both of these
    texts = {*([str(value)] if is_own[0] else []), *([repr(value)] if is_own[1] else [])}
    return "\n".join(sorted(text for text in texts if _says_more(text, value, kind)))


def _says_more(text: str, value: Any, kind: Any) -> bool:
    """Return whether a text has words besides fields as `name=value`."""
    for name, one in getattr(value, "__dict__", {}).items():
        for form in (repr(one), f"'{one}'"):
            text = text.replace(f"{name}={form}", "")
    return any(one.isalnum() for one in text.removeprefix(kind.__qualname__))


def _package_of(function: Any) -> str:
    module: str = getattr(function, "__module__", None) or "builtins"
    return module.partition(".")[0]


def _free_name(found: dict[str, Any], name: str) -> str:
    """Return this name, or one like it that the map does not have."""
    free = name
    while free in found:
        free = f"{name} {len(found)}"
    return free
