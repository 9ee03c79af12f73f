"""Keep the state that exporters of a namespace share: the lease, and counts with positions of their facts.

Counts and positions are one value, written in one step and only by the leader. So an exporter that goes on
from it counts no fact twice and leaves none out. The lease is on the server. A leader whose lease ran out may
still write its counts, unless another has led since.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from toolgate_bus.commands.exporter.fleet import FleetCounts
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.client.scripts import Script
from toolgate_bus.transport.redis.storage.store import RedisStore

LEASE_MS: Final = 3000
MAX_BYTES: Final = 64 * 1024 * 1024
_log = get_logger("toolgate.exporter")

LEAD: Final = Script(__package__, "take_lease.lua")
KEEP: Final = Script(__package__, "keep_counts.lua")
LEAVE: Final = Script(__package__, "leave_lease.lua")


class ExporterCheckpoint(NamedTuple):
    """Counts (`FleetCounts.text`), and the positions up to which each writer's facts were read for them."""

    text: str
    positions: Mapping[str, str]

    def to_bytes(self) -> bytes:
        """Return the checkpoint as bytes for the store."""
        fields = {"counts": self.text, "positions": dict(self.positions)}
        return zlib.compress(json.dumps(fields).encode(), level=1)

    @classmethod
    def from_bytes(cls, raw: bytes) -> "ExporterCheckpoint":
        """Return a checkpoint from what `to_bytes` gave. Raise ValueError for anything else."""
        try:
            reader = zlib.decompressobj()
            fields = json.loads(reader.decompress(raw, MAX_BYTES))
            positions = {str(name): str(last) for name, last in fields["positions"].items()}
            FleetCounts.read(fields["counts"])
            return cls(fields["counts"], positions)
        except (zlib.error, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is not a checkpoint of an exporter: {error!r}") from None


class CheckpointStore:
    """Checkpoints of one namespace on a server, and the lease of its exporters."""

    def __init__(self, commands: Commands, namespace: str, me: str) -> None:
        self._commands, self._me = commands, me
        self._prefix = Keys(namespace).store_key("exporter")
        self._store = RedisStore(commands, namespace)

    async def lead(self) -> bool:
        """Take the lease. Return False while another exporter holds it."""
        return bool(await LEAD.run(self._commands, self._prefix, words=(self._me, LEASE_MS)))

    async def read(self) -> ExporterCheckpoint | None:
        """Return the last checkpoint; None if there is none, or none that can be read."""
        raw = await self._store.get("exporter:state")
        try:
            return None if raw is None else ExporterCheckpoint.from_bytes(raw)
        except ValueError as error:
            _log.error("the stored counts cannot be read; counting begins anew", error=str(error))
            return None

    async def keep(self, kept: ExporterCheckpoint | None = None) -> bool:
        """Renew the lease, and store a checkpoint if given, in one step. Return False if another led."""
        words = () if kept is None else (kept.to_bytes(),)
        return bool(await KEEP.run(self._commands, self._prefix, words=(self._me, LEASE_MS, *words)))

    async def leave(self) -> None:
        """Give up the lease, so that another can lead at once."""
        await LEAVE.run(self._commands, self._prefix, words=(self._me,))
