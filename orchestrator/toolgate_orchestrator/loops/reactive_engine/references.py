"""Read references to data inside arguments (`†state.a.b`, `†input.x`), and output paths. Pure.

    "†state.user.id"   a reference: the whole string, never a part of one
    "††anything"       the text `†anything`
    "† what ever"      a string that begins with † and is neither: an error, never a guess

`resolve` replaces each reference by its value once. Values are not resolved again: the output of a
tool may hold a `†`, and must not be able to read the state. `state` holds the data, and `readiness`
decides when a reference can be resolved.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, cast

from toolgate_bus.telemetry.printable import shorten

OUTPUT_PATH = "_outputPath"
"""Reserved argument that names the place for the result of a call."""

OUTPUT_PATH_PATTERN = r"^†state(\.[A-Za-z0-9_-]+)+$"

MAX_LENGTH = 512
MAX_SEGMENTS = 32

_MARK = "†"
_REFERENCE = re.compile(r"†([A-Za-z_]+)((?:\.[^\s.|&†]+)+)")
_OUTPUT_PATH = re.compile(OUTPUT_PATH_PATTERN.removesuffix("$"))

Kind = Literal["state", "input"]
Path = tuple[str, ...]


class BadReference(ValueError):  # noqa: N818 - it names the faulty string
    """A string begins with † and is no reference; the message says how one is written."""


class BadOutputPath(ValueError):  # noqa: N818 - as above
    """An `_outputPath` that names no place in the state."""


class Reference(NamedTuple):
    """Place in the data that an argument refers to."""

    kind: Kind
    path: Path

    def __str__(self) -> str:
        return f"†{self.kind}.{'.'.join(self.path)}"


def parse(text: str) -> Reference | None:
    """Return the reference in a string; None for any other string; raise BadReference for a malformed one."""
    if not text.startswith(_MARK) or text.startswith(_MARK * 2):
        return None
    shown = _clip(text)
    match = _REFERENCE.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if match is None:
        raise BadReference(
            f"{shown} is no reference: write †state.path or †input.path as the whole string, "
            "or †† for a text that begins with †"
        )
    kind, path = match[1], tuple(match[2][1:].split("."))
    if kind not in ("state", "input"):
        raise BadReference(f"{shown} refers to {kind!r}; only †state and †input can be referred to")
    if len(path) > MAX_SEGMENTS:
        raise BadReference(f"{shown} has more than {MAX_SEGMENTS} parts")
    return Reference(cast(Kind, kind), path)


def output_path(value: Any) -> Path:
    """Return the place in the state that an `_outputPath` names; raise BadOutputPath."""
    if not isinstance(value, str) or len(value) > MAX_LENGTH or not _OUTPUT_PATH.fullmatch(value):
        raise BadOutputPath(
            f"{OUTPUT_PATH}: {_clip(value)} is no output path: write †state. and a name of letters, "
            "digits, _ and -, dots between several"
        )
    path = tuple(value.split(".")[1:])
    if len(path) > MAX_SEGMENTS:
        raise BadOutputPath(f"{OUTPUT_PATH}: {_clip(value)} has more than {MAX_SEGMENTS} parts")
    return path


def overlap(one: Path, other: Path) -> bool:
    """Return whether writing one changes the value of the other: one path begins with the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def references_in(value: Any) -> tuple[Reference, ...]:
    """Return every reference in a value, each once, in order; raise BadReference."""
    found = (parse(text) for text in _strings(value))
    return tuple(dict.fromkeys(reference for reference in found if reference is not None))


def has_marks(value: Any) -> bool:
    """Return whether a value holds any string that begins with †."""
    return any(text.startswith(_MARK) for text in _strings(value))


def resolve(value: Any, read: Callable[[Reference], Any]) -> Any:
    """Return a copy with each reference replaced by the result of `read`, and each †† by †; raise
    BadReference."""
    if isinstance(value, str):
        reference = parse(value)
        if reference is not None:
            return read(reference)
        return value[1:] if value.startswith(_MARK) else value
    if isinstance(value, dict):
        return {key: resolve(item, read) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item, read) for item in value]
    return value


def _strings(value: Any) -> Iterator[str]:
    """Yield the strings of a value in order, without keys; not recursive, so never too deep."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            todo.extend(reversed(item.values()))
        elif isinstance(item, list):
            todo.extend(reversed(item))


def _clip(value: Any) -> str:
    shown = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
    return shorten(shown, 80)
