"""Incidents, and the notifications that tell people of them: to whom, what together, in which words.

Incidents of one cause and stage wait a moment for others, receiver by receiver, and leave together. Whoever
does not take its queue gets no more of them meanwhile: further incidents wait, and leave together.
A notification's id is made of its incidents' keys: the same incidents have the same id. Pure.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

from toolgate_bus.commands.notify.config import Cause, NotifyConfig, NotifyRoute, Severity
from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing
from toolgate_bus.ruling.conditions.patterns import compile_pattern, glob
from toolgate_bus.telemetry.printable import format_duration, shorten, visible

CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)
Stage = Literal["open", "repeat", "closed"]
FieldValue = str | int | float | bool
Redactor = Callable[[str], str]
MAX_TEXT: Final = 128
"""Maximum length of one field, in characters."""
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
_JOINT: Final = re.compile(r":(?=//)|@(?=\w)|(?<=\w)[.\u3002\uff0e\uff61](?=[^\W\d_])")
"""Characters that join a link or a mention."""
_ANGLES: Final = str.maketrans("<>", "\u2039\u203a")
"""Marks that look like angle brackets, and begin no mention, link or tag in any service."""
_MARKS: Final[dict[Stage, str]] = {"open": "", "repeat": "again: ", "closed": "over: "}


class Incident(NamedTuple):
    """Something that happened (`open`), still waits (`repeat`), or is over (`closed`).

    Its fields are names, numbers and times, never arguments, prompts or reasons: none of these can leak.
    """

    key: str
    """Key made of the cause, so that another process that finds the same cause has the same key."""
    cause: Cause
    severity: Severity
    stage: Stage
    at: float
    """Time in seconds since the epoch, by the server's clock."""
    fields: Mapping[str, FieldValue]
    labels: Mapping[str, str] = {}
    """Labels that routes look at. Only those that the config names leave."""

    def to_value(self) -> list[Any]:
        """Return the incident as plain values, to be kept."""
        return [*self[:5], dict(self.fields), dict(self.labels)]

    @classmethod
    def from_value(cls, value: Any) -> "Incident":
        """Return an incident from what `to_value` gave. Raise ValueError for anything else."""
        match value:
            case [str(key), str(cause), severity, stage, int() | float() as at, dict(), dict()] if (
                cause in CAUSES and severity in get_args(Severity) and stage in get_args(Stage)
            ):
                return cls(key, cause, severity, stage, float(at), value[5], value[6])
        raise ValueError("this is no incident")


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


# ---------------------------------------------------------------------- who is told, and what leaves


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


def to_field(text: Any) -> str:
    """Return a name of others as a field: one line of bounded length."""
    return shorten(visible(str(text)[: 4 * MAX_TEXT]), MAX_TEXT)


def cleanse(incident: Incident, config: NotifyConfig, redact: Redactor) -> Incident:
    """Return an incident as it may leave: without tokens, and without labels that the config does not name.

    Its key holds names as they are, so a digest of it leaves instead.
    """
    fields = {
        name: redact(value) if isinstance(value, str) else value for name, value in incident.fields.items()
    }
    told = {name: incident.labels[name] for name in config.labels if name in incident.labels}
    safe = {name: redact(to_field(value)) for name, value in told.items()}
    key = hashlib.sha256(incident.key.encode("utf-8", "replace")).hexdigest()[:32]
    return incident._replace(key=key, fields=fields, labels=safe)


# ---------------------------------------------------------------------- what goes out together


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


def make_sample(receiver: str, at: float, mark: str) -> Notification:
    """Return a sample that tests a receiver. `mark` makes its id unique."""
    fields: dict[str, FieldValue] = {
        "scheduler": "approval",
        "tool": "sample",
        "agent": "nobody",
        "seconds_left": 900,
    }
    sample = Incident(f"sample:{mark}", "held", "info", "open", at, fields)
    return Notification(f"msg_sample_{mark}", receiver, (sample,), 0, at)


# ---------------------------------------------------------------------- words for people


def make_text(one: Notification, console_url: str | None) -> str:
    """Return the notification for people: plain text, one line an incident, and the link at its end."""
    mark = _MARKS[one.incidents[0].stage]
    lines = [f"{mark}{unlink(describe(each))}" for each in one.incidents]
    if one.left_off:
        lines.append(f"and {one.left_off} more")
    link = find_link(one, console_url)
    return "\n".join([*lines, *([link] if link else [])])


def unlink(text: str) -> str:
    """Return a text in which no chat or mail program sees a link, a mention or a tag.

    Joints of links are in brackets, and angle brackets are other marks. Names come from agents, and a
    receiver unfolds a bare link in them by fetching it.
    """
    return _JOINT.sub(r"[\g<0>]", text).translate(_ANGLES)


def find_link(one: Notification, console_url: str | None) -> str | None:
    """Return the page on which a person can act on it; None without a console."""
    page = {"held": "#approvals", "budget": "#budgets"}.get(one.incidents[0].cause, "")
    return None if console_url is None else f"{console_url}{page}"


def describe(incident: Incident) -> str:
    """Return one line for people."""
    words = _WORDS[incident.cause](incident.fields, incident.stage)
    return shorten(words, 600)


def _held(told: Mapping[str, FieldValue], stage: Stage) -> str:
    call = f"{told.get('tool')} of {told.get('agent') or 'an agent'} ({told.get('scheduler')})"
    if stage == "closed":
        return f"{call}: {told.get('end', 'nobody waits any longer')}"
    left = format_duration(float(told.get("seconds_left", 0)))
    return f"{call} {'still waits' if stage == 'repeat' else 'waits'} for a person, {left} left"


def _budget(told: Mapping[str, FieldValue], stage: Stage) -> str:
    whose = f" of {told['whose']}" if told.get("whose") else ""
    return (
        f"budget {told.get('budget')}{whose} passed {told.get('threshold')} % "
        f"({told.get('spent')} of {told.get('limit')} spent, window: {told.get('window')})"
    )


def _change(told: Mapping[str, FieldValue], stage: Stage) -> str:
    event = str(told.get("event", "")).replace(":", " ")
    more = [f"{word} {told[name]}" for name, word in _CHANGE.items() if told.get(name)]
    return " ".join([f"{event}: {told.get('scheduler')}", *more])


_CHANGE: Final = {"was": "from", "revision": "to", "label": "label", "author": "by"}
_WORDS: Final[Mapping[Cause, Callable[[Mapping[str, FieldValue], Stage], str]]] = {
    "held": _held,
    "budget": _budget,
    "change": _change,
}
