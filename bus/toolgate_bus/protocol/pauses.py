"""Pauses and stops by operators: their targets, their authors, their times. Pure.

Both stand in one hash of the namespace (key `pauses`), a field each, and a mark of the last change.
Operators write them, every orchestrator reads them. Times are milliseconds since the epoch by the server's
clock: the reader gets the server's time with them, and no two machines' clocks are compared.

A stop is a pause with `stop` set: a reader of an older version, which knows no stops, makes the calls wait.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError, ConfigError
from toolgate_bus.protocol.agents import MAX_NAMES, LiveAgent, Stop, name_session, stop_of
from toolgate_bus.protocol.packing import MAX_STRING, pack, unpack

MARK: Final = "mark"
"""Field with the time of the last change. All other fields are ids of pauses and stops."""
MAX_PAUSES: Final = 64
"""Maximum number of standing pauses."""
MAX_STOPS: Final = 256
"""Maximum number of standing stops. It is separate, so that pauses cannot keep anybody from stopping."""
MAX_PAUSE: Final = 64 * 1024
"""Maximum size of one pause or stop, in bytes."""
MAX_LABELS: Final = 16
"""Maximum number of labels that one pause names."""
MAX_MS: Final = 1 << 53
_TEXT: Final = 256


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause: calls of its targets wait; or a stop: they are denied. Several labels must all match."""

    id: str
    sessions: tuple[str, ...] = ()
    """Sessions that are meant, with all that work for them."""
    roots: tuple[str, ...] = ()
    """Roots of trees, all of whose sessions are meant."""
    everyone: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    by: str = ""
    """Name of the person who ordered it."""
    since_ms: int = 0
    until_ms: int | None = None
    """End of the pause in milliseconds since the epoch; None means until it is resumed."""
    stop: bool = False
    """True if calls are denied instead of waiting. A stop names no labels."""
    now: bool = False
    """True if a stop ends running turns at once, instead of after the running tools."""

    def means(self, session: str, root: str, above: Iterable[str], labels: Mapping[str, str]) -> bool:
        """Return whether it means the calls of a session. `above` are the sessions that it works for."""
        if self.labels:
            return all(labels.get(name) == value for name, value in self.labels)
        return Stop(self.sessions, self.roots, self.everyone).means(session, root, above)

    @property
    def target(self) -> str:
        """Its targets, in words."""
        if self.labels:
            return " ".join(f"{name}={value}" for name, value in self.labels)
        names = dict.fromkeys((*self.roots, *self.sessions))
        return "everyone" if self.everyone else " ".join(names) or "nobody"

    def seconds_left(self, now_ms: int) -> float | None:
        """Return the seconds until it ends by itself; None if it does not."""
        return None if self.until_ms is None else max(0.0, (self.until_ms - now_ms) / 1000)

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {
            **asdict(self),
            "sessions": list(self.sessions),
            "roots": list(self.roots),
            "labels": dict(self.labels),
        }


class StandingPauses(NamedTuple):
    """All pauses and stops that stand, at one moment of the server."""

    mark: int = 0
    """Time of the last change in milliseconds since the epoch; 0 if nobody has ever paused anything here."""
    now_ms: int = 0
    pauses: tuple[Pause, ...] = ()
    unreadable: int = 0
    """Number of fields that are malformed."""


class StandingStops:
    """Standing stops by the names in them: looking up a call takes the same time however many there are."""

    def __init__(self, standing: Iterable[Pause] = ()) -> None:
        self._everyone: Pause | None = None
        self._by_name: dict[str, Pause] = {}
        stops = [one for one in standing if one.stop]
        for one in stops:
            if one.everyone and self._everyone is None:
                self._everyone = one
            for name in (*one.sessions, *one.roots):
                if name:  # calls without a session belong to no session
                    self._by_name.setdefault(name, one)
        self.ids = frozenset(one.id for one in stops)

    def find_stop(self, session: str, root: str, above: Iterable[str] = ()) -> Pause | None:
        """Return the stop that means the calls of a session: by itself, its root, or a session above it.

        Ids are compared exactly: no part of an id, and no pattern, matches another id.
        """
        if self._by_name:
            for one in (session, root, *above):
                if (found := self._by_name.get(name_session(one))) is not None:
                    return found
        return self._everyone


def encode_pause(pause: Pause) -> bytes:
    """Return the value of a field. Raises ConfigError for a pause that would not be read as it is meant."""
    raw = pack({name: value for name, value in pause.as_json().items() if name != "id"})
    if _pause(pause.id, raw) != pause:
        label = "a label that all of them bear"
        what, otherwise = ("stop", "their roots") if pause.stop else ("pause", label)
        raise ConfigError(
            f"a {what} can name {MAX_NAMES} sessions and {MAX_LABELS} labels, in {MAX_PAUSE // 1024} KiB: "
            f"make several, or name {otherwise}"
        )
    return raw


def decode_pauses(fields: Mapping[str, bytes], now_ms: int) -> StandingPauses:
    """Read the hash. Pauses and stops beyond the maximum are left out and counted, as malformed ones are."""
    mark = fields.get(MARK, b"0")
    rest = [(id_, raw) for id_, raw in sorted(fields.items()) if id_ != MARK]
    read = [one for id_, raw in rest[: MAX_PAUSES + MAX_STOPS] if (one := _pause(id_, raw)) is not None]
    stops, pauses = [one for one in read if one.stop], [one for one in read if not one.stop]
    kept = [*pauses[:MAX_PAUSES], *stops[:MAX_STOPS]]
    standing = (one for one in kept if one.until_ms is None or one.until_ms > now_ms)
    return StandingPauses(
        min(int(mark), MAX_MS) if mark.isdigit() and len(mark) < 20 else 0,
        now_ms,
        tuple(sorted(standing, key=lambda one: (one.since_ms, one.id))),
        len(rest) - len(kept),
    )


def encode_notice(order: str, mark: int) -> bytes:
    """Return the notice to orchestrators that pauses changed. They read again, and confirm with the order's
    id.

    An orchestrator that knows no pauses takes it for an order to stop nobody.
    """
    return pack({"pauses": mark, "order": order})


def decode_notice(raw: bytes) -> tuple[str, int] | None:
    """Read the order's id and the mark to read from a notice; None if it is something else."""
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
    """Return the pause of these sessions, or of all with these labels; without either, of everyone.

    `exact` takes ids as they are, even of sessions that are not known or are still to come. Raises
    ConfigError for an id that matches no session, or several.
    """
    if len(labels) > MAX_LABELS:
        raise ConfigError(f"a pause can name {MAX_LABELS} labels")
    ids = tuple(ids)
    if labels:
        return Pause(id, labels=tuple(sorted(labels.items())), by=by)
    if exact and ids:
        names = tuple(map(name_session, ids))
        return Pause(id, names, names, by=by)
    meant = stop_of(living, ids, now=False, by=by)
    return Pause(id, meant.sessions, meant.roots, meant.everyone, by=by)


def make_stop(order: Stop, standing: Iterable[Pause], id: str) -> Pause:  # noqa: A002 - the field's name
    """Return the stop that an order makes, under the id of a stop with the same targets, else under `id`."""
    whom = (order.sessions, order.roots, order.everyone)
    same = (one.id for one in standing if one.stop and (one.sessions, one.roots, one.everyone) == whom)
    return Pause(next(same, id), *whom, by=order.by, stop=True, now=order.now)


def find_named(standing: Iterable[Pause], id_: str) -> list[Pause]:
    """Return the pauses and stops that have an id, or name such a session, or the one that begins so."""
    standing = list(standing)
    if own := [one for one in standing if one.id == id_]:
        return own
    names = {name for one in standing for name in _names_of(one) if name.startswith(id_)}
    exact = [one for one in standing if id_ in _names_of(one)]
    if exact or not id_:
        return exact
    found = [one for one in standing if not names.isdisjoint(_names_of(one))]
    if len(names) > 1 and len(found) > 1:
        several = ", ".join(sorted(one.id for one in found))
        raise ConfigError(f"{id_!r} means several: {several}; name one of them")
    return found


def _names_of(one: Pause) -> tuple[str, ...]:
    return (one.id, *one.sessions, *one.roots)


def list_paused(standing: Sequence[Pause], living: Sequence[LiveAgent]) -> list[LiveAgent]:
    """Return the living agents that report that one of these pauses or stops means them."""
    ids = {one.id for one in standing}
    return [one for one in living if one.paused in ids or one.stopped in ids]


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
        return None  # a pause without one of its labels would mean more than it says
    stops = found.get("stop") is True
    if stops and labels:
        return None  # it is unknown, too, whom a stop by labels means
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
        stops,
        stops and found.get("now") is True,
    )


def _is_time(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_MS


def _are_texts(*values: Any) -> bool:
    return all(isinstance(one, str) and len(one) <= MAX_STRING for one in values)


def _texts(value: Any) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else ()
    return tuple(one for one in texts[:MAX_NAMES] if _are_texts(one))
