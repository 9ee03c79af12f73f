"""State that `toolgate notify` needs after a restart: positions, incidents that were told, groups that wait.

It is one value. Notifications for the outbox are written with it in one step, so that each cause is either
not seen yet, or seen and in the outbox.
"""

import json
import zlib
from dataclasses import dataclass, field
from typing import Any, Final

MAX_BYTES: Final = 32 * 1024 * 1024
VERSION: Final = 1
_PARTS: Final = ("positions", "numbers", "held", "budgets", "gone", "revisions", "failing", "waiting")


@dataclass(slots=True)
class NotifyMemory:
    """Memory of plain values. Each judge has a part of its own."""

    positions: dict[str, str] = field(default_factory=dict)
    """Position up to which each orchestrator's facts were read."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Number of each orchestrator's last fact."""
    changes: str = ""
    """Position up to which the record of changes was read."""
    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Calls that wait, by id."""
    budgets: dict[str, int] = field(default_factory=dict)
    """Highest threshold that was told, by account and window."""
    gone: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Required schedulers that are not alive."""
    revisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Schedulers whose replicas differ."""
    failing: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Schedulers without whose verdicts calls went on."""
    waiting: dict[str, list[Any]] = field(default_factory=dict)
    """Incidents that will go out together, by receiver, cause and stage."""

    def to_bytes(self) -> bytes:
        """Return the memory as bytes for the server."""
        value = {"version": VERSION, "changes": self.changes} | {name: getattr(self, name) for name in _PARTS}
        return zlib.compress(json.dumps(value).encode(), level=1)

    @classmethod
    def from_bytes(cls, raw: bytes) -> "NotifyMemory":
        """Return a memory from what `to_bytes` gave. Raise ValueError for anything else."""
        try:
            value = json.loads(zlib.decompressobj().decompress(raw, MAX_BYTES))
            if value["version"] != VERSION:
                raise ValueError(f"version {value['version']} of what notify keeps is unknown")
            parts = {name: dict(value[name]) for name in _PARTS}
            return cls(changes=str(value["changes"]), **parts)
        except (zlib.error, KeyError, TypeError) as error:
            raise ValueError(f"this is nothing that notify kept: {error!r}") from None
