"""Make notifications of incidents: choose receivers, gather incidents, give ids. Pure.

Incidents of one cause and stage wait a moment for others, receiver by receiver, and leave together.
A receiver that does not take its queue gets no more of them meanwhile: further incidents wait, and leave
together. A notification's id is made of its incidents' keys: the same incidents have the same id.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.commands.notify.config import NotifyConfig, NotifyRoute, label_values
from toolgate_bus.commands.notify.incident import Incident, to_field
from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing
from toolgate_bus.ruling.conditions.patterns import compile_pattern, glob

MAX_QUEUED: Final = 50
"""Maximum number of notifications of one receiver in the outbox."""
MAX_WAITING: Final = 1000
"""Maximum number of incidents that wait for one notification. Of further ones only the number is told."""
MAX_LISTED: Final = 20
"""Maximum number of incidents that one notification lists."""
REDACTED: Final = "[redacted]"
WELL_KNOWN: Final = (
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r"\bwhsec_[A-Za-z0-9+/=]{16,}",
    r"://[^/\s:@]+:[^/\s@]+@",
)
"""Patterns of well-known tokens. Their matches are taken out of every text."""


class Notification(NamedTuple):
    """Notification of one receiver, about one or more incidents."""

    id: str
    receiver: str
    incidents: tuple[Incident, ...]
    """Incidents that are listed, at least one."""
    left_off: int
    """Number of further incidents."""
    at: float
    """Time at which it was made, in seconds since the epoch by the server's clock."""

    def to_bytes(self) -> bytes:
        """Return the notification as bytes for the outbox."""
        told = [one.to_value() for one in self.incidents]
        return packing.pack([self.id, self.receiver, told, self.left_off, self.at])

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Notification":
        """Return a notification from what `to_bytes` gave. Raise ValueError for anything else."""
        try:
            value = packing.unpack(raw)
        except CodecError as error:
            raise ValueError(str(error)) from None
        match value:
            case [str(id_), str(receiver), [_, *_] as told, int(left_off), int() | float() as at]:
                return cls(id_, receiver, tuple(map(Incident.from_value, told)), left_off, float(at))
        raise ValueError("this is no notification")


Redactor = Callable[[str], str]


def make_redactor(config: NotifyConfig) -> Redactor:
    """Return a function that takes out of a text all tokens, and all matches of the config's patterns."""
    patterns = [compile_pattern(written) for written in (*WELL_KNOWN, *config.redact)]

    def redact(text: str) -> str:
        for pattern in patterns:
            text = pattern.substitute(text, REDACTED)
        return text

    return redact


def receivers_of(incident: Incident, config: NotifyConfig) -> tuple[str, ...]:
    """Return the receivers that are told of an incident, each once."""
    if not config.routes:
        return tuple(config.receivers)
    named = (name for route in config.routes if _fits(route, incident) for name in route.receivers)
    return tuple(dict.fromkeys(named))


def _fits(route: NotifyRoute, incident: Incident) -> bool:
    if route.causes is not None and incident.cause not in route.causes:
        return False
    if route.severities is not None and incident.severity not in route.severities:
        return False
    labels = incident.labels
    return all(name in labels and glob(value).search(labels[name]) for name, value in route.labels.items())


def put(
    waiting: dict[str, list[Any]], incident: Incident, config: NotifyConfig, redact: Redactor, now: float
) -> None:
    """Put an incident into the group of its kind that waits, for each receiver that is told of it.

    A group is `[since when, how many more there are, incidents…]`.
    """
    safe = cleanse(incident, config, redact)
    for receiver in receivers_of(incident, config):
        group = waiting.setdefault(f"{receiver}:{incident.cause}:{incident.stage}", [now, 0])
        if incident.stage == "repeat":  # one reminder of a call in a message is enough
            group[2:] = [value for value in group[2:] if value[5].get("call") != safe.fields.get("call")]
        if len(group) - 2 < MAX_WAITING:
            group.append(safe.to_value())
        else:
            group[1] += 1


def cleanse(incident: Incident, config: NotifyConfig, redact: Redactor) -> Incident:
    """Return an incident as it may leave: without tokens, and without labels that the config does not name.

    Its key holds names as they are, so a digest of it leaves instead.
    """
    fields = {
        name: redact(value) if isinstance(value, str) else value for name, value in incident.fields.items()
    }
    labels = label_values(incident.labels, config.labels)
    safe = {name: redact(to_field(value)) for name, value in labels.items()}
    key = hashlib.sha256(incident.key.encode("utf-8", "replace")).hexdigest()[:32]
    return incident._replace(key=key, fields=fields, labels=safe)


def take_due(
    waiting: dict[str, list[Any]], queued: Mapping[str, int], config: NotifyConfig, space: str, now: float
) -> Iterator[Notification]:
    """Give the notifications that are due and whose receivers have room. `space` is the namespace."""
    taken: dict[str, int] = {}
    for place in sorted(waiting, key=lambda place: waiting[place][0]):
        since, more, *values = waiting[place]
        receiver = place.partition(":")[0]
        if receiver not in config.receivers:
            del waiting[place]
            continue
        room = queued.get(receiver, 0) + taken.get(receiver, 0) < MAX_QUEUED
        if not room or now - since < config.group_s:
            continue
        del waiting[place]
        taken[receiver] = taken.get(receiver, 0) + 1
        incidents = [Incident.from_value(value) for value in values]
        id_ = make_id(space, receiver, (one.key for one in incidents))
        listed = tuple(incidents[:MAX_LISTED])
        yield Notification(id_, receiver, listed, more + len(incidents) - len(listed), now)


def make_id(space: str, receiver: str, keys: Iterable[str]) -> str:
    """Return the id of a receiver's notification about these incidents. It is the same each time."""
    words = "\0".join([space, receiver, *sorted(keys)])
    return f"msg_{hashlib.sha256(words.encode('utf-8', 'replace')).hexdigest()[:32]}"
