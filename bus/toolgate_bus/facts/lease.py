"""Leases on the server: of the processes that do the same work, one leads and the others stand by.

`Lease` is for work that must not be done twice. Its results are written in the step that renews it, and only
if no other process has led since. So a leader that slept through the end of its lease finds that out, and
writes nothing. `KeeperLease` is for work that may be done twice; its `Checkpoint` is written by itself.
"""

import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.packing import pack, unpack
from toolgate_bus.transport.ports import Arg, Commands, Store
from toolgate_bus.transport.redis.client.scripts import Script

TAKE: Final = Script(__package__, "take_lease.lua")
KEEP: Final = Script(__package__, "keep_lease.lua")
LEAVE: Final = Script(__package__, "leave_lease.lua")


class Lease:
    """Lease of a service in one namespace, and the values that only its leader writes."""

    def __init__(self, commands: Commands, namespace: str, name: str, seconds: float) -> None:
        """Prepare the lease of this name, which lasts `seconds`."""
        self._commands, self._ms = commands, max(1, round(seconds * 1000))
        self._prefix = Keys(namespace).store_key(name)
        self._me = f"{socket.gethostname()[:32]}-{os.getpid()}-{secrets.token_hex(3)}"
        self.renewed_at = float("-inf")
        """Time (`time.monotonic`) from which the lease lasts: the start of its last renewal."""

    async def take(self) -> bool:
        """Take the lease, or renew it. Return False while another process holds it."""
        return await self._renew(TAKE)

    async def read(self, name: str, command: str = "GET") -> Any:
        """Return the value of this name; None if there is none. Call it once the lease is taken."""
        return await self._commands.execute(command, f"{self._prefix}:{name}")

    async def keep(self, *writes: Sequence[Arg]) -> bool:
        """Renew the lease and write, in one step. Return False if another process has led since.

        A write is a command, the name of a value, and the rest of the command: `("SET", "state", b"one")`.
        It may run twice, if the first reply is lost.
        """
        words = (word for verb, name, *rest in writes for word in (verb, name, len(rest), *rest))
        return await self._renew(KEEP, *words)

    async def leave(self) -> None:
        """Give up the lease, so that another process can lead at once."""
        await LEAVE.run(self._commands, self._prefix, words=(self._me,))

    async def _renew(self, script: Script, *words: Arg) -> bool:
        begun = time.monotonic()
        if not await script.run(self._commands, self._prefix, words=(self._me, self._ms, *words)):
            return False
        self.renewed_at = begun
        return True


class KeeperLease:
    """Lease among the replicas of a scheduler, in their store. Two that lead for a moment do no harm."""

    def __init__(self, store: Store, key: str, replica: str, seconds: float) -> None:
        self._store, self._key, self._me, self._seconds = store, key, replica.encode(), seconds
        self.term = 0
        """Number of times that this replica began to lead. Another may have led between two terms."""

    async def renew(self) -> bool:
        """Take the lease, or renew it. Return False while another replica holds it."""
        if await self._store.add(self._key, self._me, self._seconds):
            self.term += 1
            return True
        if await self._store.get(self._key) != self._me:
            return False
        await self._store.put(self._key, self._me, self._seconds)
        return True


class Checkpoint(NamedTuple):
    """Position up to which a keeper has read the facts of each orchestrator. The next one goes on from there.

    An orchestrator writes its latest facts again after it lost its connection. To a ledger that was lost and
    rebuilt meanwhile, the calls in them are new: only the numbers of the facts say that they were settled.
    """

    positions: Mapping[str, str] = {}
    """Id of the last entry, for each orchestrator."""
    numbers: Mapping[str, int] = {}
    """Number of the last fact, for each orchestrator."""
    again: bytes | None = None
    """Last request to read all facts again that was followed."""

    def to_bytes(self) -> bytes:
        """Return the checkpoint as bytes for the store."""
        return pack([one for one in self if one is not None])

    @classmethod
    def from_bytes(cls, raw: bytes | None) -> "Checkpoint":
        """Read a checkpoint, or bare positions. Return an empty one for bytes that are neither."""
        try:
            noted = unpack(raw) if raw else {}
            positions, numbers, *again = noted if isinstance(noted, list) else (noted, {})
            return cls(
                {str(name): str(last) for name, last in positions.items()},
                {str(name): int(last) for name, last in numbers.items()},
                again[0] if again and isinstance(again[0], bytes) else None,
            )
        except (CodecError, AttributeError, TypeError, ValueError):
            return cls()
