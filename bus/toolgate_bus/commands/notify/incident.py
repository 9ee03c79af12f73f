"""Incident that people are told of, and its words. Pure.

An incident's key is made of its cause, so that another process that finds the same cause has the same key.
Its fields are names, numbers and times, never arguments, prompts or reasons, so that none of these can leak.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

from toolgate_bus.telemetry.printable import format_duration, shorten, visible

Cause = Literal["held", "budget", "gone", "failing_open", "change", "revisions"]
CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)
Severity = Literal["info", "warning", "critical"]
Stage = Literal["open", "repeat", "closed"]
MAX_TEXT: Final = 128
"""Maximum length of one field, in characters."""
MAX_FIELDS: Final = 16

FieldValue = str | int | float | bool


class Incident(NamedTuple):
    """Something that happened (`open`), still waits (`repeat`), or is over (`closed`)."""

    key: str
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


def to_field(text: Any) -> str:
    """Return a name of others as a field: one line of bounded length."""
    return shorten(visible(str(text)[: 4 * MAX_TEXT]), MAX_TEXT)


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


def _gone(told: Mapping[str, FieldValue], stage: Stage) -> str:
    name = told.get("scheduler")
    if stage != "closed":
        return f"required scheduler {name} is not alive: the calls that need it are denied"
    return f"scheduler {name} is back" if told.get("back") else f"no agent requires {name} any longer"


def _failing_open(told: Mapping[str, FieldValue], stage: Stage) -> str:
    name = told.get("scheduler")
    if stage == "closed":
        return f"scheduler {name} fails open no longer"
    how = f"{told.get('calls')} calls within {told.get('within_s')} s"
    return f"scheduler {name} fails open: {how} went on without its verdict"


def _change(told: Mapping[str, FieldValue], stage: Stage) -> str:
    event = str(told.get("event", "")).replace(":", " ")
    more = [f"{word} {told[name]}" for name, word in _CHANGE.items() if told.get(name)]
    return " ".join([f"{event}: {told.get('scheduler')}", *more])


_CHANGE: Final = {"was": "from", "revision": "to", "label": "label", "author": "by"}


def _revisions(told: Mapping[str, FieldValue], stage: Stage) -> str:
    name = told.get("scheduler")
    if stage == "closed":
        return f"the replicas of {name} rule by one revision again"
    return f"the replicas of {name} rule by {told.get('count')} different revisions"


_WORDS: Final[Mapping[Cause, Callable[[Mapping[str, FieldValue], Stage], str]]] = {
    "held": _held,
    "budget": _budget,
    "gone": _gone,
    "failing_open": _failing_open,
    "change": _change,
    "revisions": _revisions,
}
