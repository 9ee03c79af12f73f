"""The record of changes of configurations: author, scheduler, new revision, and reason.

It is a topic (`notifications`). Operators' commands and replicas write it; webhooks, marks on dashboards and
the console follow it. A change is written once it is in force in the store. Its notice is small, bounded,
and holds nothing of the configuration itself. Others write the topic: malformed notices are skipped.
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
"""Maximum number of characters of a field; `why` may have twice as many."""


class ConfigChange(NamedTuple):
    """One change of a scheduler's configuration."""

    event: ChangeEvent
    scheduler: str
    revision: str = ""
    """Revision that is now in force, or that the rollout is of: `label@digest`, or `file`."""
    was: str = ""
    """Revision before the change."""
    label: str = ""
    author: str = ""
    why: str = ""
    """Condition that was met, for an undone rollout; stage, for an advance; otherwise the author's words."""
    at: float = 0.0
    """Time in seconds since the epoch, by the server's clock."""


class PlacedChange(NamedTuple):
    """A change and its place in the topic."""

    id: str
    change: ConfigChange


def encode_change(change: ConfigChange) -> bytes:
    """Return a change as a notice. Texts that are too long are cut."""
    fields: dict[str, Any] = {
        name: value[: MAX_WORD * (2 if name == "why" else 1)] if isinstance(value, str) else value
        for name, value in change._asdict().items()
    }
    fields["from"] = fields.pop("was")
    packed = pack(fields)
    return packed if len(packed) <= MAX_NOTICE else pack(fields | {"why": "", "author": ""})


def decode_change(body: bytes) -> ConfigChange | None:
    """Read a change from a notice; None if it is malformed."""
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
    """Write a change to the topic. Raises TransportError."""
    await notices.publish(TOPIC, encode_change(change))


async def read_changes(notices: Notices, after: str = FIRST, wait_s: float = 1.0) -> Sequence[PlacedChange]:
    """Return at most a page of the changes after a place (default: all kept ones); wait if there are none.

    Go on after the last id that was returned. A page may hold only malformed notices: then the next is read.
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
