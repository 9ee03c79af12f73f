"""Labels of sessions on the server: a hash for each session, with a field for each count of a label.

Agents' processes write what verdicts gave, operators what they took away. Both only add fields, and need no
script: agents may run none. Fields of a session's hash also name the sessions above it. A text at a key of
its own tells whether the server has forgotten everything.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Arg, Commands, LabelReading, LabelStore, override
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_bus.transport.redis.roster.roster_sets import OLD
from toolgate_bus.transport.redis.storage.agent_directory import ORDERS_KEPT_MS
from toolgate_bus.transport.redis.storage.reads import ask_all, find_keys, flat, literal, read_time
from toolgate_bus.transport.session_labels import (
    ABOVE,
    REQUIRED,
    LabelMark,
    LabelMarks,
    LabelNotice,
    decode_above,
    decode_marks,
    encode_label_notice,
    name_stored,
)

REMEMBERED_MS: Final = 30 * 86_400_000
"""Milliseconds that labels are kept after they were last written. Living processes write them again."""
ABOVE_REMEMBERED_MS: Final = 86_400_000
"""Milliseconds that the names of sessions above one without labels are kept after they were last written."""
AT_ONCE: Final = 256
"""Maximum number of sessions in one round trip."""
_TRIES: Final = 3
"""Number of times that labels are taken away, if verdicts give them again meanwhile."""


class RedisLabelStore(LabelStore):
    """`LabelStore` on a server, as agents' processes use it."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands, self._keys = commands, Keys(namespace)

    @override
    async def read(self, sessions: Sequence[str]) -> LabelReading:
        life = self._keys.session_labels("")
        marks: dict[str, LabelMarks] = {}
        above: dict[str, tuple[str, ...]] = {}
        token, now_ms = b"", 0
        for at in range(0, len(sessions) or 1, AT_ONCE):
            some = sessions[at : at + AT_ONCE]
            asks: list[tuple[Arg, ...]] = [("HGETALL", self._keys.session_labels(one)) for one in some]
            found, (seconds, micros), *hashes = await ask_all(
                self._commands, [("GET", life), ("TIME",), *asks]
            )
            if not at:
                token, now_ms = found or b"", int(seconds) * 1000 + int(micros) // 1000
            for one, reply in zip(some, hashes, strict=True):
                marks[one] = _read_hash(reply)
                if names := decode_above(flat(reply)):
                    above[one] = names
        if not token:
            token = await self._begin(life)
        return LabelReading(token, now_ms, marks, above)

    async def _begin(self, life: str) -> bytes:
        """Mark a store that is new, or was emptied."""
        own = secrets.token_hex(8)
        _, token = await ask_all(
            self._commands, [("SET", life, own, "NX", "PX", REMEMBERED_MS), ("GET", life)]
        )
        return token or own.encode()

    @override
    async def keep(self, marks: Mapping[str, LabelMarks]) -> None:
        asks: list[tuple[Arg, ...]] = [("PEXPIRE", self._keys.session_labels(""), REMEMBERED_MS)]
        for session, fields in marks.items():
            asks += _add(self._keys.session_labels(session), fields)
        for at in range(0, len(asks), AT_ONCE):
            await ask_all(self._commands, asks[at : at + AT_ONCE])

    @override
    async def note(self, above: Mapping[str, Sequence[str]]) -> None:
        asks: list[tuple[Arg, ...]] = []
        for session, names in above.items():
            key = self._keys.session_labels(session)
            asks += [("HSETNX", key, f"{ABOVE}{one}", str(place)) for place, one in enumerate(names)]
            # Never sooner than the labels there expire.
            asks += [("PEXPIRE", key, ABOVE_REMEMBERED_MS, when) for when in ("NX", "GT")]
        for at in range(0, len(asks), AT_ONCE):
            await ask_all(self._commands, asks[at : at + AT_ONCE])

    @override
    async def claim(self, session: str, field: str, count: int) -> bool:
        key = self._keys.session_labels(session)
        return bool(await self._commands.execute("HSETNX", key, f"!{name_stored(field, count)}", "1"))


class LabelBoard:
    """Labels of the sessions of one namespace, as operators see and change them."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands, self._keys = commands, Keys(namespace)
        self._roster = Roster(commands, namespace, ("orchestrators", OLD))

    async def list_sessions(self) -> list[str]:
        """Return all sessions that have, or had, labels, sorted. This searches the whole database."""
        start = self._keys.session_labels("")
        pages = [page async for page in find_keys(self._commands, literal(start) + "?*")]
        names = sorted({key.decode("utf-8", "replace")[len(start) :] for page in pages for key in page})
        found = await self.read(names)
        return [one for one in names if found[one]]

    async def read(self, sessions: Sequence[str]) -> dict[str, LabelMarks]:
        """Return the marks of these sessions. Raises TransportError."""
        found: dict[str, LabelMarks] = {}
        for at in range(0, len(sessions), AT_ONCE):
            some = sessions[at : at + AT_ONCE]
            asks = [("HGETALL", self._keys.session_labels(one)) for one in some]
            found |= dict(zip(some, map(_read_hash, await ask_all(self._commands, asks)), strict=True))
        return found

    async def take(self, sessions: Sequence[str], meant: str, by: str) -> dict[str, list[str]]:
        """Take labels from these sessions: a field, `NAME=` for all values of a label, or all (empty).

        It does not matter who gave them. Return the fields that each session bore. Raises TransportError.
        """
        taken: dict[str, set[str]] = {}
        for _ in range(_TRIES):
            # The time first: what is given again after it must stay.
            now_ms = int(await read_time(self._commands) * 1000)
            asks: list[tuple[Arg, ...]] = []
            for session, marks in (await self.read(sessions)).items():
                gone = {
                    field: LabelMark(mark.times + 1, now_ms, by)
                    for field, mark in marks.items()
                    if mark.is_borne and _is_meant(field.removesuffix(REQUIRED), meant)
                }
                if gone:
                    taken.setdefault(session, set()).update(gone)
                    asks += _add(self._keys.session_labels(session), gone)
            if not asks:
                break
            for at in range(0, len(asks), AT_ONCE):
                await ask_all(self._commands, asks[at : at + AT_ONCE])
        return {
            session: sorted({field.removesuffix(REQUIRED) for field in fields})
            for session, fields in taken.items()
        }

    async def tell(self, notice: LabelNotice) -> frozenset[str]:
        """Tell every living orchestrator to look at these sessions. Return those told.

        Raises TransportError.
        """
        orchestrators = sorted((await self._roster.read()).orchestrators)
        frame = encode_label_notice(notice)
        commands: list[Sequence[Arg]] = []
        for one in orchestrators:
            key = self._keys.control(one)
            commands += [
                ("XADD", key, "*", "event", "labels", "frame", frame),
                ("PEXPIRE", key, ORDERS_KEPT_MS),
            ]
        await ask_all(self._commands, commands)
        return frozenset(orchestrators)


def _is_meant(field: str, meant: str) -> bool:
    return field == meant or (meant[-1:] in ("", "=") and field.startswith(meant))


def _add(key: str, marks: LabelMarks) -> list[tuple[Arg, ...]]:
    """Return the commands that add these marks to a session's: what is there already stays."""
    added: list[tuple[Arg, ...]] = [
        ("HSETNX", key, name_stored(field, mark.times), mark.encode()) for field, mark in marks.items()
    ]
    return [*added, ("PEXPIRE", key, REMEMBERED_MS)]


def _read_hash(reply: Any) -> LabelMarks:
    return decode_marks({name: bytes(value) for name, value in flat(reply).items()})
