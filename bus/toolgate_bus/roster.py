"""Who is alive: heartbeats that expire, on the server's clock (DESIGN §3, §5).

Every replica, orchestrator and facts reader sets its own key every half second; the key expires
after 1.5 s. A set names who may be there, so that reading needs no scan. What stands there was
written by others and is decoded with the wire's bounds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from toolgate_bus.codec import pack, unpack
from toolgate_bus.errors import CodecError
from toolgate_bus.heartbeats import MAX_MEMBER, decode_member, encode_member
from toolgate_bus.keys import Keys
from toolgate_bus.ports import Commands, Member

__all__ = [
    "BEAT_SECONDS",
    "EXPIRY_SECONDS",
    "READER_ROLES",
    "ReaderRole",
    "Roster",
    "RosterView",
    "decode_member",
    "decode_reading",
    "decode_role",
    "encode_member",
    "encode_reading",
    "encode_role",
]

BEAT_SECONDS: Final = 0.5
EXPIRY_SECONDS: Final = 1.5
ReaderRole = Literal["follower", "exporter", "archiver", "console"]
"""What a facts reader reads for."""
READER_ROLES: Final[tuple[ReaderRole, ...]] = get_args(ReaderRole)


@dataclass(frozen=True, slots=True)
class RosterView:
    """The roster at one moment."""

    members: tuple[Member, ...] = ()
    orchestrators: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The living orchestrators, each with the schedulers whose verdicts it reads: those it asks."""
    readers: int = 0
    """How many facts readers are alive."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """The living facts readers, each with its role: one of `READER_ROLES`, or `other`."""

    def readers_by_role(self) -> dict[str, int]:
        """How many facts readers are alive in each role; every role of `READER_ROLES` is there."""
        return {**dict.fromkeys(READER_ROLES, 0), **Counter(self.roles.values())}


def encode_reading(schedulers: Iterable[str]) -> bytes:
    """An orchestrator's heartbeat: the schedulers whose verdicts it reads."""
    return pack({"reading": sorted(schedulers)})


def decode_reading(raw: bytes) -> frozenset[str]:
    """The schedulers in an orchestrator's heartbeat; none in anything that is not one."""
    try:
        fields = unpack(raw, MAX_MEMBER)
    except CodecError:
        return frozenset()
    reading = fields.get("reading") if isinstance(fields, dict) else None
    return (
        frozenset(one for one in reading if isinstance(one, str))
        if isinstance(reading, list)
        else frozenset()
    )


def encode_role(role: ReaderRole) -> bytes:
    """A facts reader's heartbeat."""
    return pack({"role": role})


def decode_role(raw: bytes) -> str:
    """The role in a facts reader's heartbeat: `follower` where it names none, `other` for what is unknown."""
    try:
        fields = unpack(raw, MAX_MEMBER)
    except CodecError:
        return "other"
    role = fields.get("role", "follower") if isinstance(fields, dict) else None
    return role if isinstance(role, str) and role in READER_ROLES else "other"


class Roster:
    """Reads and writes the roster of one namespace."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands = commands
        self._keys = Keys(namespace)

    async def next_start(self) -> int:
        """The next number in the namespace's order of starts."""
        return int(await self._commands.execute("INCR", self._keys.starts))

    def beat(self, member: str, value: bytes) -> list[Sequence[str | bytes | int]]:
        """The commands of one heartbeat of `kind:…`, for a pipeline."""
        return [
            ("SADD", self._keys.roster, member),
            ("SET", self._keys.member(member), value, "PX", int(EXPIRY_SECONDS * 1000)),
        ]

    async def leave(self, member: str) -> None:
        """Take oneself off the roster."""
        await self._commands.pipeline(
            [("SREM", self._keys.roster, member), ("DEL", self._keys.member(member))]
        )

    async def wake_orchestrators(self) -> None:
        """Have every living orchestrator look at the roster at once."""
        view = await self.read()
        wakes = [("XADD", self._keys.wake(one), "*", "event", "roster") for one in view.orchestrators]
        if wakes:
            await self._commands.pipeline(wakes)

    async def read(self, *, ages: bool = False) -> RosterView:
        """Who is alive; with `ages`, also how long ago each replica was heard of."""
        named = await self._commands.execute("SMEMBERS", self._keys.roster)
        return await self.resolve(named, ages=ages)

    async def resolve(self, named: Sequence[bytes], *, ages: bool = False) -> RosterView:
        """Read the heartbeats of these roster members and drop the dead from the set."""
        names = sorted(raw.decode("utf-8", "replace") for raw in named)
        if not names:
            return RosterView()
        beats = await self._commands.execute("MGET", *(self._keys.member(name) for name in names))
        dead = [name for name, beat in zip(names, beats, strict=True) if beat is None]
        if dead:
            await self._commands.execute("SREM", self._keys.roster, *dead)
        alive = [(name, beat) for name, beat in zip(names, beats, strict=True) if beat is not None]
        members = tuple(member for name, beat in alive if (member := _scheduler(name, beat)) is not None)
        roles = {name[2:]: decode_role(beat) for name, beat in alive if name.startswith("r:")}
        return RosterView(
            members=await self._with_ages(members) if ages else members,
            orchestrators={name[2:]: decode_reading(beat) for name, beat in alive if name.startswith("o:")},
            readers=len(roles),
            roles=roles,
        )

    async def _with_ages(self, members: tuple[Member, ...]) -> tuple[Member, ...]:
        if not members:
            return ()
        left = await self._commands.pipeline(
            [("PTTL", self._keys.member(f"s:{member.name}:{member.replica}")) for member in members]
        )
        return tuple(
            replace(member, age=max(0.0, EXPIRY_SECONDS - ms / 1000))
            for member, ms in zip(members, left, strict=True)
            if isinstance(ms, int) and ms > 0
        )


def _scheduler(name: str, beat: bytes) -> Member | None:
    kind, _, rest = name.partition(":")
    scheduler, _, replica = rest.partition(":")
    return decode_member(scheduler, replica, beat) if kind == "s" else None
