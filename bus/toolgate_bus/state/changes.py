"""The record of changes of configurations: who changed which scheduler's, to what, and why.

A topic (`notifications`) that operators' commands and replicas write, and that whoever tells people of it
follows: webhooks, marks on dashboards, the console. A change is told once it is in force in the store; the
notice is small, bounded, and holds nothing of a configuration itself. What stands in the topic was written by
others: what is no change is passed over.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.packing import pack, unpack
from toolgate_bus.state.notifications import FIRST, MAX_NOTICE, Notices

TOPIC: Final = "changes"
ChangeEvent = Literal[
    "config:pushed", "config:undone", "rollout:started", "rollout:advanced", "rollout:done", "rollout:undone"
]
EVENTS: Final[frozenset[str]] = frozenset(get_args(ChangeEvent))
MAX_WORD: Final = 128
"""Characters of a field; of `why` twice as many."""


class ConfigChange(NamedTuple):
    """One change of the configuration by which a scheduler rules."""

    event: ChangeEvent
    scheduler: str
    revision: str = ""
    """The one that is in force by it, or that the rollout is of: `label@digest`, or `file`."""
    was: str = ""
    """The one before."""
    label: str = ""
    author: str = ""
    why: str = ""
    """Of an undoing: the condition that was met; of an advance: the stage; else what its author said."""
    at: float = 0.0
    """Seconds since the epoch, by the server's clock."""


class PlacedChange(NamedTuple):
    """A change, and its place in the topic."""

    id: str
    change: ConfigChange


def encode_change(change: ConfigChange) -> bytes:
    """A change as a notice; what is too long is cut."""
    fields: dict[str, Any] = {
        name: value[: MAX_WORD * (2 if name == "why" else 1)] if isinstance(value, str) else value
        for name, value in change._asdict().items()
    }
    fields["from"] = fields.pop("was")
    packed = pack(fields)
    return packed if len(packed) <= MAX_NOTICE else pack(fields | {"why": "", "author": ""})


def decode_change(body: bytes) -> ConfigChange | None:
    """A notice as a change; None for what is none."""
    try:
        told = unpack(body, MAX_NOTICE)
    except CodecError:
        return None
    if not isinstance(told, dict) or not isinstance(told.get("event"), str) or told["event"] not in EVENTS:
        return None
    words = {
        name: told.get("from" if name == "was" else name, "")
        for name in ("event", "scheduler", "revision", "was", "label", "author", "why")
    }
    at = told.get("at", 0.0)
    if type(at) not in (int, float) or not all(isinstance(word, str) for word in words.values()):
        return None
    return ConfigChange(**words, at=float(at)) if words["scheduler"] else None


async def tell_change(notices: Notices, change: ConfigChange) -> None:
    """Write a change down; raises TransportError."""
    await notices.publish(TOPIC, encode_change(change))


async def read_changes(notices: Notices, after: str = FIRST, wait_s: float = 1.0) -> Sequence[PlacedChange]:
    """The changes after a place (default: all that are kept), at most a page; waits if there are none.

    Go on after the last id that was given; where a page held nothing but what is no change, that is none.
    Raises TransportError.
    """
    place, found = after, list[PlacedChange]()
    while not found:
        page = await notices.read(TOPIC, place, wait_s)
        if not page:
            break
        place = page[-1].id
        found = [PlacedChange(one.id, told) for one in page if (told := decode_change(one.body)) is not None]
    return found
