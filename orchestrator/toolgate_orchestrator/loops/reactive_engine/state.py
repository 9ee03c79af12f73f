"""Hold the data that calls share: the given `input`, and the `state` that results are written to.

Paths for reading have dict keys, and digits as list positions. Writing makes the dicts on the path and
replaces any other value there; the last write wins. Values are exact JSON, and are copied when they are
written and read: a tool can change the state only by its result.
"""

from collections import deque
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from toolgate_orchestrator.loops.reactive_engine.references import Path, Reference
from toolgate_orchestrator.turn.values.jsonable import MAX_CHARS, MAX_VALUES, jsonable
from toolgate_orchestrator.turn.values.raw_call import size_of

_KEPT_WRITES = 1_000
_ABSENT = object()


class Write(NamedTuple):
    """Write to the state, for the record."""

    path: str
    call: str
    """Id of the call whose result was written."""
    date: str
    """Time of the write in ISO 8601, UTC."""


class Data:
    """Input and state of one session."""

    def __init__(
        self, state: Mapping[str, Any] | None = None, given: Mapping[str, Any] | None = None
    ) -> None:
        self.state: dict[str, Any] = jsonable(dict(state or {}))
        self.input: dict[str, Any] = jsonable(dict(given or {}))
        self.writes: deque[Write] = deque(maxlen=_KEPT_WRITES)
        """Latest writes, at most a thousand, oldest first."""

    def has(self, reference: Reference) -> bool:
        """Return whether there is a value at this place; null is one."""
        return self.find(reference) is not _ABSENT

    def read(self, reference: Reference) -> Any:
        """Return a copy of the value; raise KeyError if there is none."""
        value = self.find(reference)
        if value is _ABSENT:
            raise KeyError(str(reference))
        return deepcopy(value)

    def write(self, path: Path, value: Any, call: str = "") -> None:
        """Write a value to this place of the state."""
        place = self.state
        for name in path[:-1]:
            inner = place.get(name)
            if not isinstance(inner, dict):
                inner = place[name] = {}
            place = inner
        place[path[-1]] = jsonable(value)
        self.writes.append(Write(str(Reference("state", path)), call, datetime.now(UTC).isoformat()))

    def find(self, reference: Reference) -> Any:
        """Return the value itself, which must not be changed; `_ABSENT` if there is none."""
        value: Any = self.state if reference.kind == "state" else self.input
        for name in reference.path:
            value = _inner(value, name)
        return value


class OutputTooLarge(ValueError):  # noqa: N818 - it names the fault
    """Referenced values are larger together than a call can take."""


@dataclass(slots=True)
class Reader:
    """Reader for one call that adds up sizes: a value that holds another many times and is stored again grows
    without end."""

    _data: Data
    _values: int = MAX_VALUES
    _chars: int = MAX_CHARS

    def __call__(self, reference: Reference) -> Any:
        """Return a copy of the value; raise KeyError, TooMuch."""
        values, chars = size_of(self._data.find(reference))
        self._values, self._chars = self._values - values, self._chars - chars
        if self._values < 0 or self._chars < 0:
            raise OutputTooLarge(
                f"what is referred to is too large together: at most {MAX_VALUES} values "
                f"and {MAX_CHARS} characters"
            )
        return self._data.read(reference)


def _inner(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name, _ABSENT)
    if isinstance(value, list) and name.isdecimal() and name.isascii() and len(name) < 10:
        position = int(name)
        return value[position] if position < len(value) else _ABSENT
    return _ABSENT
