"""What operators have paused: whose calls wait, since when, until when. Pure.

Pauses stand in one hash of the namespace (key `pauses`), a field each, and a mark of the last change.
Operators write them, every orchestrator reads them. Times are milliseconds since the epoch by the server's
clock: the reader is told the server's time with them, and no two machines' clocks are compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError, ConfigError
from toolgate_bus.protocol.agents import MAX_NAMES, LiveAgent, Stop, stop_of
from toolgate_bus.protocol.packing import MAX_STRING, pack, unpack

MARK: Final = "mark"
"""The field that tells when the pauses were last changed; all others are ids of pauses."""
MAX_PAUSES: Final = 64
"""That stand at a time."""
MAX_PAUSE: Final = 64 * 1024
"""Bytes of one."""
MAX_LABELS: Final = 16
"""Labels that one pause names."""
MAX_MS: Final = 1 << 53
_TEXT: Final = 256


@dataclass(frozen=True, slots=True)
class Pause:
    """Whose calls wait; with several labels, those that bear all of them."""

    id: str
    sessions: tuple[str, ...] = ()
    """With all that work for them."""
    roots: tuple[str, ...] = ()
    """All sessions of these trees."""
    everyone: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    by: str = ""
    """Who said it."""
    since_ms: int = 0
    until_ms: int | None = None
    """None: until it is resumed."""

    def means(self, session: str, root: str, above: Iterable[str], labels: Mapping[str, str]) -> bool:
        """Whether the calls of a session wait; `above` are the sessions for which it works."""
        if self.labels:
            return all(labels.get(name) == value for name, value in self.labels)
        return Stop(self.sessions, self.roots, self.everyone).means(session, root, above)

    @property
    def target(self) -> str:
        """Whom it means, in words."""
        if self.labels:
            return " ".join(f"{name}={value}" for name, value in self.labels)
        return "everyone" if self.everyone else " ".join((*self.roots, *self.sessions)) or "nobody"

    def seconds_left(self, now_ms: int) -> float | None:
        """Until it ends by itself; None where it does not."""
        return None if self.until_ms is None else max(0.0, (self.until_ms - now_ms) / 1000)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            **asdict(self),
            "sessions": list(self.sessions),
            "roots": list(self.roots),
            "labels": dict(self.labels),
        }


class StandingPauses(NamedTuple):
    """All that stand, at one moment of the server."""

    mark: int = 0
    """When they were last changed; 0 where nobody has ever paused anything here."""
    now_ms: int = 0
    pauses: tuple[Pause, ...] = ()
    unreadable: int = 0
    """Fields that are no pauses."""


def encode_pause(pause: Pause) -> bytes:
    """The value of a field; raises ConfigError for a pause that would not be read as it is meant."""
    raw = pack({name: value for name, value in pause.as_json().items() if name != "id"})
    if _pause(pause.id, raw) != pause:
        raise ConfigError(
            f"a pause can name {MAX_NAMES} sessions and {MAX_LABELS} labels, in {MAX_PAUSE // 1024} KiB: "
            "make several, or name a label that all of them bear"
        )
    return raw


def decode_pauses(fields: Mapping[str, bytes], now_ms: int) -> StandingPauses:
    """The hash; what is over is left out, and what is no pause is counted."""
    mark = fields.get(MARK, b"0")
    rest = [(id_, raw) for id_, raw in sorted(fields.items()) if id_ != MARK]
    read = [_pause(id_, raw) for id_, raw in rest[:MAX_PAUSES]]
    standing = (one for one in read if one is not None and (one.until_ms is None or one.until_ms > now_ms))
    return StandingPauses(
        min(int(mark), MAX_MS) if mark.isdigit() and len(mark) < 20 else 0,
        now_ms,
        tuple(sorted(standing, key=lambda one: (one.since_ms, one.id))),
        len(rest) - len(read) + sum(one is None for one in read),
    )


def encode_notice(order: str, mark: int) -> bytes:
    """What orchestrators are told when pauses were changed: look again, and say so under this order's id.

    Who knows of no pauses takes it for an order to stop nobody.
    """
    return pack({"pauses": mark, "order": order})


def decode_notice(raw: bytes) -> tuple[str, int] | None:
    """The order's id and the mark that is to be read; None for anything else."""
    try:
        found = unpack(raw, MAX_PAUSE)
    except CodecError:
        return None
    mark, order = (found.get("pauses"), found.get("order")) if isinstance(found, dict) else (None, None)
    if type(mark) is not int or not 0 <= mark <= MAX_MS or not isinstance(order, str):
        return None
    return order[:_TEXT], mark


def pause_of(
    living: Sequence[LiveAgent],
    ids: Iterable[str],
    labels: Mapping[str, str],
    *,
    exact: bool = False,
    id: str,  # noqa: A002 - the field's name
    by: str,
) -> Pause:
    """The pause of the sessions that ids mean, or of who bears the labels; neither is everyone.

    `exact` takes ids as they are: of sessions that nobody sees, or that are still to come. Raises ConfigError
    for an id that means no session, or several.
    """
    if len(labels) > MAX_LABELS:
        raise ConfigError(f"a pause can name {MAX_LABELS} labels")
    ids = tuple(ids)
    if labels:
        return Pause(id, labels=tuple(sorted(labels.items())), by=by)
    if exact and ids:
        return Pause(id, ids, ids, by=by)
    meant = stop_of(living, ids, now=False, by=by)
    return Pause(id, meant.sessions, meant.roots, meant.everyone, by=by)


def find_named(standing: Iterable[Pause], id_: str) -> list[Pause]:
    """The pauses that an id means: of one itself, or of a session that they name; or its first letters."""
    names = {
        name: one for one in standing for name in (one.id, *one.sessions, *one.roots) if name.startswith(id_)
    }
    exact = [one for one in standing if id_ in (one.id, *one.sessions, *one.roots)]
    if exact or not id_:
        return exact
    found = {one.id: one for one in names.values()}
    if len(set(names)) > 1 and len(found) > 1:
        raise ConfigError(f"{id_!r} means several pauses: {', '.join(sorted(found))}; name one of them")
    return list(found.values())


def list_paused(standing: Sequence[Pause], living: Sequence[LiveAgent]) -> list[LiveAgent]:
    """Those of the living that say that one of these pauses means them."""
    ids = {one.id for one in standing}
    return [one for one in living if one.paused in ids]


def _pause(id_: str, raw: bytes) -> Pause | None:
    try:
        found = unpack(raw, MAX_PAUSE)
    except CodecError:
        return None
    if not isinstance(found, dict) or not 0 < len(id_) <= _TEXT or not id_.isascii():
        return None
    by, since, until = found.get("by"), found.get("since_ms"), found.get("until_ms")
    labels = found.get("labels")
    if not isinstance(labels, dict) or len(labels) > MAX_LABELS or not _are_texts(*labels, *labels.values()):
        return None  # a pause of which a label is left out would mean more than it says
    if not isinstance(since, int) or not _is_time(since) or not (until is None or _is_time(until)):
        return None
    return Pause(
        id_,
        _texts(found.get("sessions")),
        _texts(found.get("roots")),
        found.get("everyone") is True,
        tuple(sorted(labels.items())),
        by[:_TEXT] if isinstance(by, str) else "",
        since,
        until,
    )


def _is_time(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_MS


def _are_texts(*values: Any) -> bool:
    return all(isinstance(one, str) and len(one) <= MAX_STRING for one in values)


def _texts(value: Any) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else ()
    return tuple(one for one in texts[:MAX_NAMES] if _are_texts(one))
