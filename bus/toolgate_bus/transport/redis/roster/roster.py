"""The roster: heartbeats that expire, on the server's clock.

Every orchestrator and facts reader sets its own key every half second, and every replica every 0.6 s, as they
are most; the key expires after 1.5 s. Sets list the possible names (`roster_sets`), so that reading needs no
scan. Members that were seen are looked up even without that (`attendance`). Others write the roster: what is
read is bounded like any message.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.keys import Keys, shard_of
from toolgate_bus.protocol.names import FACT_KINDS, RESERVED_NAMES
from toolgate_bus.protocol.packing import VERSION, pack, unpack
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.attendance import GONE_SECONDS, Attendance
from toolgate_bus.transport.heartbeats import MAX_MEMBER, decode_member, read_versions
from toolgate_bus.transport.ports import Commands, Member
from toolgate_bus.transport.redis.client.refusals import refusal_of
from toolgate_bus.transport.redis.clock import ServerClock
from toolgate_bus.transport.redis.roster.roster_sets import (
    MAX_COUNT,
    OLD,
    TIME,
    Command,
    RosterMembership,
    RosterNames,
    RosterQuery,
)

BEAT_SECONDS: Final = 0.5
REPLICA_BEAT_SECONDS: Final = 0.6
"""Seconds between two heartbeats of a replica: two more are due before one expires."""
EXPIRY_SECONDS: Final = 1.5
WAKE_MS: Final = 60_000
FRESH_SECONDS: Final = 10.0
"""Age in seconds, by the server's clock, from which a signed heartbeat no longer counts as signed."""
ReaderRole = Literal["follower", "exporter", "archiver", "console"]
"""Purpose of a facts reader."""
READER_ROLES: Final[tuple[ReaderRole, ...]] = get_args(ReaderRole)
EVERYONE: Final = ("schedulers", "orchestrators", "readers", OLD)
"""The kinds that people ask for: hooks only look for each other."""
PART: Final = 256
"""Number of heartbeats read at a time."""
_LATEST_MS: Final = 2**53
_log = get_logger("toolgate.bus")


@dataclass(frozen=True, slots=True)
class RosterView:
    """The roster at one moment."""

    members: tuple[Member, ...] = ()
    orchestrators: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Living orchestrators, each with the schedulers whose verdicts it reads: those it asks."""
    readers: int = 0
    """Number of living facts readers."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Living facts readers, each with its role: one of `READER_ROLES`, or `other`."""
    gone: tuple[Member, ...] = ()
    """Replicas that vanished without leaving, and are remembered."""
    wires: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Versions of the wire that each living orchestrator speaks."""
    required: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Schedulers that each orchestrator's sessions require; orchestrators that do not tell are missing."""
    tables: Mapping[str, Mapping[str, str] | None] = field(default_factory=dict)
    """Beginning of the digest that each living orchestrator has seen of each scheduler's local table.

    None for an orchestrator that uses no tables."""
    reader_kinds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Forms of facts that each living facts reader says it reads."""
    read_ms: int = 0
    """Server time in milliseconds up to which the slowest living facts reader has read; 0 if none tells."""
    hooks: frozenset[str] = frozenset()
    """Living owners of ledgers that hooks keep."""

    def all_read(self, kind: str) -> bool:
        """Return whether everybody here who may read facts reads this form of them (`FACT_KINDS`)."""
        every = (*self.reader_kinds.values(), *(one.kinds for one in (*self.members, *self.gone)))
        return all(kind in kinds for kinds in every)

    def readers_by_role(self) -> dict[str, int]:
        """Return the number of living facts readers in each role of `READER_ROLES`, and in `other` if any."""
        return {**dict.fromkeys(READER_ROLES, 0), **Counter(self.roles.values())}


def encode_reading(
    schedulers: Iterable[str],
    wire: Sequence[int] = (),
    required: Iterable[str] | None = None,
    tables: Mapping[str, str] | None = None,
) -> bytes:
    """Return an orchestrator's heartbeat: the schedulers whose verdicts it reads, its versions of the wire,
    the schedulers that it requires, unless that is None, and the local tables in force at it.
    """
    told: dict[str, Any] = {"reading": sorted(schedulers), **({"wire": list(wire)} if wire else {})}
    beat = pack(told)
    parts: list[dict[str, Any]] = [] if required is None else [{"required": sorted(required)}]
    parts += [] if tables is None else [{"tables": {}}, {"tables": dict(tables)}]
    for more in parts:
        longer = pack({**told, **more})
        if len(longer) <= MAX_MEMBER:
            told, beat = {**told, **more}, longer
    return beat


def decode_wire(raw: bytes) -> tuple[int, ...]:
    """Return the versions in an orchestrator's heartbeat; the first if it names none."""
    told = _field(raw, "wire")
    return tuple(read_versions(told)) if isinstance(told, list) else (VERSION,)


def decode_reading(raw: bytes) -> frozenset[str]:
    """Return the schedulers in an orchestrator's heartbeat; none if it is malformed."""
    told = _field(raw, "reading")
    return frozenset(one for one in (told if isinstance(told, list) else ()) if isinstance(one, str))


def decode_required(raw: bytes) -> frozenset[str] | None:
    """Return the schedulers that an orchestrator's heartbeat names as required; None if it does not tell."""
    told = _field(raw, "required")
    return frozenset(one for one in told if isinstance(one, str)) if isinstance(told, list) else None


def decode_tables(raw: bytes) -> dict[str, str] | None:
    """Return the beginning of the digest that an orchestrator has seen of each scheduler's local table.

    None: it does not tell, so it uses no tables.
    """
    told = _field(raw, "tables")
    if not isinstance(told, dict):
        return None
    return {name: one for name, one in told.items() if isinstance(name, str) and isinstance(one, str)}


def encode_role(role: ReaderRole, read_ms: int = 0) -> bytes:
    """Return a facts reader's heartbeat. `read_ms` is the server time up to which it has read; 0: unknown."""
    told = {"role": role, "kinds": list(FACT_KINDS)}
    return pack({**told, "read_ms": read_ms} if read_ms else told)


def decode_read_ms(raw: bytes) -> int:
    """Return the time up to which a facts reader has read; 0 if it does not tell."""
    told = _field(raw, "read_ms")
    return told if type(told) is int and 0 < told < _LATEST_MS else 0


def decode_role(raw: bytes) -> str:
    """Return the role in a facts reader's heartbeat: `follower` by default, `other` if unknown."""
    role = _field(raw, "role", "follower")
    return role if isinstance(role, str) and role in READER_ROLES else "other"


def _kinds_of(raw: bytes) -> Sequence[str]:
    """Return the forms of facts that a facts reader's heartbeat says it reads."""
    kinds = _field(raw, "kinds")
    return kinds if isinstance(kinds, list) else ()


def _field(raw: bytes, name: str, default: str | None = None) -> Any:
    """Return a field of a heartbeat, or the default; None if the heartbeat is malformed."""
    try:
        fields = unpack(raw, MAX_MEMBER)
    except CodecError:
        return None
    return fields.get(name, default) if isinstance(fields, dict) else None


def tells_loss(beat: Command, reply: Any) -> bool:
    """Return whether a heartbeat's reply says that the one before is gone too early.

    Then the server was emptied, and has lost the names as well: nobody new would find the member.
    """
    return reply is None and beat[-1] == "XX"


class Roster:
    """Reads and writes the roster of one namespace, and remembers the members that it has seen."""

    def __init__(self, commands: Commands, namespace: str, turns: Sequence[str] = EVERYONE) -> None:
        """`turns` are the kinds to read: without hurry one at a time, in this order."""
        self._commands = commands
        self._keys = Keys(namespace)
        self._clock = ServerClock()
        self._names = RosterNames(self._keys, turns)
        self._places: dict[str, RosterMembership] = {}
        self._attendance = Attendance()
        self._met: dict[str, float] = {}
        """Members other than schedulers that were alive lately, each with the time."""
        self._flooded = False
        self.keyring: Keyring | None = None
        """Keys of schedulers: once one has signed its heartbeats, it must go on to."""

    async def next_start(self) -> int:
        """Return the next number in the namespace's order of starts."""
        return int(await self._commands.execute("INCR", self._keys.starts))

    # ------------------------------------------------------------------ being on it

    @property
    def seconds(self) -> int:
        """The server's time in seconds since the epoch; 0 while it is unknown."""
        return self._clock.seconds(time.monotonic())

    def is_recent(self, member: Member) -> bool:
        """Return whether a heartbeat was written just now, by the time that it names."""
        return abs(self.seconds - member.at) <= FRESH_SECONDS

    async def learn_minute(self) -> None:
        """Ask the server for its time, unless that is known: sets are named by it."""
        if not self._clock.is_synced:
            self.set_time(await self._commands.execute("TIME"))

    def set_time(self, time_reply: Any) -> None:
        """Take the server's reply to TIME, which came just now."""
        self._clock.set_time(time_reply, time.monotonic())

    def beat(self, member: str, value: bytes, *, timed: bool = False) -> list[Command]:
        """Return the commands of one heartbeat of `kind:…`, for a pipeline; the first sets its key.

        If its reply `tells_loss`, call `name_again` and beat again. `timed`: the pipeline asks for the
        server's time itself.
        """
        now = time.monotonic()
        place = self._places.setdefault(member, RosterMembership(self._keys, member))
        beat: Command = ("SET", self._keys.member(member), value, "PX", int(EXPIRY_SECONDS * 1000))
        if place.is_kept(now):
            beat = (*beat, "XX")
        rest = place.commands(self._clock, now)
        return [beat, *(one for one in rest if not (timed and one == TIME))]

    def name_again(self) -> None:
        """Name all members again with the next heartbeats: the server may have lost what was written."""
        for place in self._places.values():
            place.name_again()

    async def write(self, member: str, value: bytes) -> None:
        """Write one heartbeat. Raises TransportError if the server did not take it."""
        await self.learn_minute()
        commands = self.beat(member, value)
        replies = await self._commands.pipeline(commands)
        if commands[-1] == TIME:
            self.set_time(replies[-1])
        if isinstance(replies[0], Exception):
            raise refusal_of(commands[0], replies[0])
        if tells_loss(commands[0], replies[0]):
            self.name_again()
            await self.write(member, value)

    async def leave(self, member: str, mark: bytes | None = None) -> None:
        """Remove a member from the roster; `mark` is a last heartbeat that says so to its observers."""
        key = self._keys.member(member)
        end: Command = ("DEL", key) if mark is None else ("SET", key, mark, "PX", int(GONE_SECONDS * 1000))
        await self._commands.pipeline([end, ("SREM", self._keys.roster, member)])

    async def wake_orchestrators(self) -> None:
        """Make every living orchestrator look at the roster at once."""
        found = await self._beats(
            [name for name in await self._fetch_names(everything=True) if name[0] == "o"]
        )
        wakes: dict[int, list[Command]] = {}
        for name in found:
            wake = self._keys.wake(name[2:])
            # An orchestrator that is told may be dead, so its stream must expire.
            told: list[Command] = [("XADD", wake, "*", "event", "roster"), ("PEXPIRE", wake, WAKE_MS)]
            wakes.setdefault(shard_of(name[2:]), []).extend(told)
        done = await asyncio.gather(*map(self._commands.pipeline, wakes.values()), return_exceptions=True)
        errors = [one for one in done if isinstance(one, BaseException)]
        if errors and len(errors) == len(done):  # otherwise others were told: only one shard's server is away
            raise errors[0]

    # ------------------------------------------------------------------ looking

    async def read(self, *, ages: bool = False, everything: bool = True) -> RosterView:
        """Return the living members; with `ages`, also the seconds since each replica was heard of.

        Without `everything`, only one kind is read again; the others are as they were found before.
        """
        return await self.resolve(await self._fetch_names(everything=everything), ages=ages)

    def asks(self, *, everything: bool) -> RosterQuery:
        """Return one look at the names; its commands are for a pipeline."""
        return self._names.asks(self._clock, time.monotonic(), everything=everything)

    def take_names(self, look: RosterQuery, replies: Sequence[Any]) -> set[str]:
        """Return the names by the replies to a look of `asks`; names beyond the bound are counted."""
        surplus = self._names.take(look, replies)
        for kind, many in surplus.items():
            metrics.ROSTER_STRANGERS.add((kind,), many)
        if surplus and not self._flooded:
            _log.warning("too many names on the roster; the rest is skipped", surplus=surplus)
        self._flooded = bool(surplus)
        return self._names.all

    async def _fetch_names(self, *, everything: bool) -> set[str]:
        await self.learn_minute()
        look = self.asks(everything=everything)  # tasks may look side by side
        return self.take_names(look, await self._commands.pipeline(look.commands))

    async def resolve(self, named: Iterable[str], *, ages: bool = False) -> RosterView:
        """Read the heartbeats of these roster members, and of those that were seen before."""
        found = await self._beats(sorted({*named, *self._attendance.names, *self._met}))
        now = time.monotonic()
        self._met = {name: at for name, at in self._met.items() if now - at < GONE_SECONDS}
        for name in found:
            if name[0] != "s" and (name in self._met or len(self._met) < MAX_COUNT):
                self._met[name] = now
        if dead := self._names.dead(found.keys(), time.monotonic()):
            await self._commands.execute("SREM", self._keys.roster, *dead)
        schedulers = dict.fromkeys(self._attendance.names, None) | {
            name: self._scheduler(name, beat) for name, beat in found.items() if name[0] == "s"
        }
        members, gone = self._attendance.take(schedulers, time.monotonic())
        roles = {name[2:]: decode_role(beat) for name, beat in found.items() if name[0] == "r"}
        return RosterView(
            members=await self._with_ages(members) if ages else members,
            orchestrators={name[2:]: decode_reading(beat) for name, beat in found.items() if name[0] == "o"},
            wires={name[2:]: decode_wire(beat) for name, beat in found.items() if name[0] == "o"},
            required={
                name[2:]: required
                for name, beat in found.items()
                if name[0] == "o" and (required := decode_required(beat)) is not None
            },
            tables={name[2:]: decode_tables(beat) for name, beat in found.items() if name[0] == "o"},
            readers=len(roles),
            read_ms=min(filter(None, (decode_read_ms(found[f"r:{name}"]) for name in roles)), default=0),
            reader_kinds={name: _kinds_of(found[f"r:{name}"]) for name in roles},
            roles=roles,
            gone=gone,
            hooks=frozenset(name[2:] for name in found if name[0] == "h"),
        )

    async def _beats(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the heartbeats of these names that exist, read in parts so that nobody waits long."""
        found: dict[str, bytes] = {}
        for at in range(0, len(names), PART):
            part = names[at : at + PART]
            beats = await self._commands.execute("MGET", *(self._keys.member(name) for name in part))
            found.update((name, beat) for name, beat in zip(part, beats, strict=True) if beat is not None)
        return found

    def _scheduler(self, name: str, beat: bytes) -> Member | None:
        scheduler, _, replica = name[2:].partition(":")
        if scheduler in RESERVED_NAMES:
            metrics.count(metrics.BAD_MESSAGES, scheduler, "reserved")
        member = decode_member(scheduler, replica, beat, self.keyring)
        signs = self.keyring is not None and self.keyring.knows(scheduler)
        if member is not None and member.left and not member.signed and signs:
            return replace(member, left=False)  # a scheduler with a key must sign that it leaves
        if member is not None and member.signed and not member.left and not self.is_recent(member):
            return replace(member, signed=False, proof=None)  # it may be an old heartbeat, replayed
        return member

    async def _with_ages(self, members: tuple[Member, ...]) -> tuple[Member, ...]:
        if not members:
            return ()
        asked: list[Command] = [
            ("PTTL", self._keys.member(f"s:{member.name}:{member.replica}")) for member in members
        ]
        left = await self._commands.pipeline(asked)
        for command, reply in zip(asked, left, strict=True):
            if isinstance(reply, Exception):  # a member whose age is refused is not dead
                raise refusal_of(command, reply)
        return tuple(
            replace(member, age=max(0.0, EXPIRY_SECONDS - ms / 1000))
            for member, ms in zip(members, left, strict=True)
            if isinstance(ms, int) and ms > 0
        )
