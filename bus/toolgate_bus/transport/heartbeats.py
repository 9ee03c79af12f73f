"""The heartbeats of schedulers' replicas on the roster, as bytes and back. Pure.

A heartbeat is a map. Readers of the wire's first version know its plain fields. Others read only `v2`, a
packed map of everything, which is signed (`mac`) if there are keys. Others write the roster: what is read is
bounded, and a malformed field counts as missing.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import MAX_SHARDS
from toolgate_bus.protocol.names import NAME_PATTERN, RESERVED_NAMES
from toolgate_bus.protocol.revision import Revision
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.transport.ports import Member

MAX_MEMBER: Final = 16 * 1024
MAX_VERSIONS: Final = 16
MAX_WORDS: Final = 64
MAX_WORD: Final = 64
_NAME: Final = re.compile(NAME_PATTERN)
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_WHOLE: Final = 2**31 - 1
_LATEST: Final = 2**53 - 1


def encode_member(member: Member, keyring: Keyring | None = None) -> bytes:
    """Return a replica's heartbeat, signed if there is a key for its scheduler."""
    plain = {
        "priority": member.priority,
        "tools": list(member.tools),
        "shadow": member.shadow,
        "started": member.started,
        "pid": member.pid,
        "host": member.host,
        "answered": member.answered,
        "late": member.late,
    }
    if max(member.wire, default=1) < 2:
        return packing.pack(plain)
    label, digest = member.revision
    told = packing.pack(
        {
            **plain,
            "wire": list(member.wire),
            "phases": list(member.phases),
            "kinds": list(member.kinds),
            "build": member.build,
            "revision": {"label": label, "digest": digest},
            "beat": member.beat,
            **({"reads": list(member.reads)} if member.reads else {}),
            **({"server_replicas": member.server_replicas} if member.server_replicas else {}),
            **({"shards": list(member.shards)} if member.shards != (0,) else {}),
            **({"table": member.table} if member.table else {}),
            **_when(member),
        }
    )
    fields: dict[str, Any] = {**plain, "v2": told}
    if keyring is not None and keyring.knows(member.name):
        fields["mac"] = keyring.sign_heartbeat(member.name, member.replica, told)
    whole = packing.pack(fields)
    # Very many names of tools do not fit twice: then only the fields of the first version are written.
    return whole if len(whole) <= MAX_MEMBER else packing.pack(plain)


def encode_leave(member: Member, keyring: Keyring | None = None) -> bytes:
    """Return the last heartbeat of a replica that leaves in good order. For version 1 it is no member."""
    told = packing.pack(
        {
            "tools": [],
            "started": member.started,
            "beat": member.beat,
            "wire": list(member.wire),
            "left": True,
            **_when(member),
        }
    )
    if keyring is None or not keyring.knows(member.name):
        return packing.pack({"v2": told})
    return packing.pack({"v2": told, "mac": keyring.sign_heartbeat(member.name, member.replica, told)})


def decode_member(name: str, replica: str, raw: bytes, keyring: Keyring | None = None) -> Member | None:
    """Read a Member from a heartbeat; None if it is malformed.

    With a keyring, `signed` is true if the replica has its scheduler's key.
    """
    fields = _map(raw)
    if fields is None:
        return None
    told, mac = fields.get("v2"), fields.get("mac")
    if not isinstance(told, bytes):
        return _member(name, replica, fields)
    inner = _map(told)
    if inner is None or (member := _member(name, replica, inner)) is None:
        return None
    return replace(
        member,
        wire=tuple(read_versions(inner.get("wire"))),
        phases=tuple(_words(inner.get("phases"))),
        kinds=tuple(_words(inner.get("kinds"))),
        reads=tuple(_words(inner.get("reads"))),
        build=_text(inner.get("build"), MAX_WORD),
        revision=Revision.read(inner.get("revision")),
        server_replicas=max(0, _number(inner.get("server_replicas"))),
        shards=_read_shards(inner.get("shards")),
        table=_read_digest(inner.get("table")),
        beat=_number(inner.get("beat")),
        at=_number(inner.get("at"), _LATEST),
        left=inner.get("left") is True,
        signed=keyring is not None
        and isinstance(mac, bytes)
        and keyring.is_heartbeat(name, replica, told, mac),
        proof=(told, mac) if isinstance(mac, bytes) else None,
    )


def is_signed(member: Member, keyring: Keyring) -> bool:
    """Return whether the replica of this heartbeat has its scheduler's key."""
    return member.proof is not None and keyring.is_heartbeat(member.name, member.replica, *member.proof)


def _member(name: str, replica: str, fields: dict[str, Any]) -> Member | None:
    tools = fields.get("tools")
    if not _NAME.fullmatch(name) or not _NAME.fullmatch(replica) or name in RESERVED_NAMES:
        return None
    if not isinstance(tools, list) or not all(isinstance(glob, str) for glob in tools):
        return None
    return Member(
        name=name,
        replica=replica,
        priority=_number(fields.get("priority")),
        tools=tuple(tools),
        shadow=fields.get("shadow") is True,
        started=_number(fields.get("started")),
        pid=_number(fields.get("pid")),
        host=_text(fields.get("host"), 255),
        answered=_number(fields.get("answered")),
        late=_number(fields.get("late")),
    )


def _map(raw: bytes) -> dict[str, Any] | None:
    try:
        fields = packing.unpack(raw, MAX_MEMBER)
    except CodecError:
        return None
    return fields if isinstance(fields, dict) else None


def _when(member: Member) -> dict[str, int]:
    return {"at": member.at} if member.at else {}


def _number(value: Any, most: int = _WHOLE) -> int:
    return value if type(value) is int and abs(value) <= most else 0


def _text(value: Any, most: int) -> str:
    return value[:most] if isinstance(value, str) else ""


def read_versions(value: Any) -> Iterator[int]:
    """Yield the versions of the wire that a peer reports. Malformed ones are skipped."""
    for one in value[:MAX_VERSIONS] if isinstance(value, list) else ():
        if type(one) is int and 0 < one <= 127:
            yield one


def _read_shards(value: Any) -> tuple[int, ...]:
    """Return the shards that a replica reads; the first one if it does not say."""
    if not isinstance(value, list):
        return (0,)
    return tuple(one for one in value[:MAX_SHARDS] if type(one) is int and 0 <= one < MAX_SHARDS)


def _read_digest(value: Any) -> str:
    """Return the digest of a local table; empty if there is none."""
    return value if isinstance(value, str) and _DIGEST.fullmatch(value) else ""


def _words(value: Any) -> Iterator[str]:
    for one in value[:MAX_WORDS] if isinstance(value, list) else ():
        if isinstance(one, str) and 0 < len(one) <= MAX_WORD:
            yield one
