"""Keep calls that belong together at one alternative, for example the requests of a session. Pure.

The router's weights need only the key: a hash chooses the same target for it. The score remembers where the
last call of a value went, from the facts that every replica reads.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.protocol.names import MAX_NAME

DECISION: Final = "decision"
"""The default: each call is chosen for by itself."""
MAX_PLACES: Final = 10_000
"""Number of places that are remembered, those that were used last."""
_FIELDS: Final = {"session": "session", "tree": "root_session", "agent": "agent"}
_NAMES: Final = ("labels", *_FIELDS.values())
_LABEL: Final = "label:"
_ALLOWED: Final = f"{', '.join((DECISION, *_FIELDS))} or label:NAME"


def _check_sticky(sticky: str) -> str:
    if sticky not in (DECISION, *_FIELDS) and not (sticky.startswith(_LABEL) and sticky != _LABEL):
        raise ValueError(f"must be {_ALLOWED}")
    return sticky


Sticky = Annotated[str, Field(max_length=300, description=_ALLOWED), AfterValidator(_check_sticky)]
"""Property of a call: calls with the same value go to the same target."""


def value_of(sticky: str, of: ToolSelecting | Mapping[str, Any]) -> str:
    """Return the value of the property of a call, or of a fact, which may hold anything; empty if none."""
    told = of if isinstance(of, Mapping) else {name: getattr(of, name) for name in _NAMES}
    if sticky.startswith(_LABEL):
        labels = told.get("labels")
        value = labels.get(sticky.removeprefix(_LABEL)) if isinstance(labels, Mapping) else None
    else:
        value = told.get(_FIELDS.get(sticky, ""))
    return value if isinstance(value, str) else ""


def key_of(sticky: str, call: ToolSelecting) -> str:
    """Return the key that the choice depends on; a call without the named property is chosen for by
    itself."""
    own = value_of(sticky, call)
    return f"{sticky}={own}" if own else f"{DECISION}={call.id}"


class StickyPlaces:
    """Alternatives to which the last calls went, by group and value of the property."""

    def __init__(self, sticky: str) -> None:
        self._sticky = sticky
        self._kept: dict[tuple[int, str], str] = {}

    def find(self, group: int, call: ToolSelecting) -> str | None:
        """Return the alternative to which the last call like this one went."""
        return self._kept.get((group, value_of(self._sticky, call)))

    def record(self, group: int, fact: Mapping[str, Any], key: str) -> None:
        """Record from the fact of a decision that its call goes to the alternative `key`."""
        value = value_of(self._sticky, fact)
        if not 0 < len(value) <= MAX_NAME:
            return
        self._kept.pop((group, value), None)  # the least recent one comes first
        self._kept[group, value] = key
        if len(self._kept) > MAX_PLACES:
            del self._kept[next(iter(self._kept))]
