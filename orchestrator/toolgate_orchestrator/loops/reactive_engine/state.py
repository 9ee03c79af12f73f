"""The data that calls share: `input`, which is given, and `state`, which results are written to.

Reading takes dict keys, and digits as list positions. Writing makes the dicts on its way and
replaces whatever else stands there; the last write wins. What is kept is exact JSON and a copy, and
what is read is a copy: no tool can change the state but by its result.
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
    """One write to the state, for the record."""

    path: str
    call: str
    """Id of the call whose result it was."""
    date: str
    """ISO 8601, UTC."""


class Data:
    """The input and the state of one session."""

    def __init__(
        self, state: Mapping[str, Any] | None = None, given: Mapping[str, Any] | None = None
    ) -> None:
        self.state: dict[str, Any] = jsonable(dict(state or {}))
        self.input: dict[str, Any] = jsonable(dict(given or {}))
        self.writes: deque[Write] = deque(maxlen=_KEPT_WRITES)
        """The latest thousand writes, oldest first."""

    def has(self, reference: Reference) -> bool:
        """Whether there is a value at this place; null is one."""
        return self.find(reference) is not _ABSENT

    def read(self, reference: Reference) -> Any:
        """A copy of the value; raises KeyError where there is none."""
        value = self.find(reference)
        if value is _ABSENT:
            raise KeyError(str(reference))
        return deepcopy(value)

    def write(self, path: Path, value: Any, call: str = "") -> None:
        """Keep a value at this place of the state."""
        place = self.state
        for name in path[:-1]:
            inner = place.get(name)
            if not isinstance(inner, dict):
                inner = place[name] = {}
            place = inner
        place[path[-1]] = jsonable(value)
        self.writes.append(Write(str(Reference("state", path)), call, datetime.now(UTC).isoformat()))

    def find(self, reference: Reference) -> Any:
        """The value itself, which is not to be changed; `_ABSENT` where there is none."""
        value: Any = self.state if reference.kind == "state" else self.input
        for name in reference.path:
            value = _inner(value, name)
        return value


class TooMuch(ValueError):  # noqa: N818 - it says what was found
    """What references bring together is more than a call can take."""


@dataclass(slots=True)
class Reader:
    """Reads for one call, and adds up: what holds a value many times and is kept again grows for ever."""

    _data: Data
    _values: int = MAX_VALUES
    _chars: int = MAX_CHARS

    def __call__(self, reference: Reference) -> Any:
        """A copy of the value; raises KeyError, TooMuch."""
        values, chars = size_of(self._data.find(reference))
        self._values, self._chars = self._values - values, self._chars - chars
        if self._values < 0 or self._chars < 0:
            raise TooMuch(
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
