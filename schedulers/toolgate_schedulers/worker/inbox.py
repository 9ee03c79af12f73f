"""What comes out of a scheduler's inbox: questions and withdrawals, believed, or counted.

Not here: Redis, and what is done with a question (`worker`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.signing import OTHER_SCHEME, Keyring, names_other_scheme
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Delivery

from toolgate_schedulers.worker.holds import ReplyTo

WITHDRAWN: Final = "tool:withdrawn"
_log = get_logger("toolgate.worker")


@dataclass(slots=True, eq=False)
class InboxEntry:
    """One delivered entry and how many of its questions are still open."""

    id: str
    open: int


@dataclass(slots=True, eq=False)
class Job:
    """One question on its way through a lane."""

    entry: InboxEntry | None
    orchestrator: str
    item: packing.Item
    written: float
    """When the question was written, on this process's monotonic clock."""

    @property
    def asked(self) -> ReplyTo:
        """Where it came from."""
        return ReplyTo(self.orchestrator, self.item)

    def settle(self) -> str | None:
        """Answered, held or expired: the entry to acknowledge, where that was the last of its questions."""
        entry, self.entry = self.entry, None
        if entry is not None:
            entry.open -= 1
            if not entry.open:
                return entry.id
        return None


class InboxFilter:
    """What one scheduler believes of what it was delivered."""

    __slots__ = ("_is_told", "_name", "_ring")

    def __init__(self, name: str, ring: Keyring | None) -> None:
        """With a ring an item counts only under its sender's key."""
        self._name, self._ring, self._is_told = name, ring, False

    def believe(self, delivery: Delivery, found: Sequence[packing.Item | CodecError]) -> list[packing.Item]:
        """What could be read and is genuine; the rest is counted."""
        items, ring = [], self._ring
        for one in found:
            if isinstance(one, CodecError):
                metrics.count(metrics.BAD_MESSAGES, "orchestrator", one.reason)
            elif ring is None or self._is_genuine(ring, delivery, one):
                items.append(one)
            else:
                metrics.count(metrics.BAD_MESSAGES, "orchestrator", "forged")
                self._tell_scheme(one)
        return items

    def _tell_scheme(self, item: packing.Item) -> None:
        """Say once that agents of another release ask: nothing else tells whoever runs the fleet."""
        if not self._is_told and names_other_scheme(item.mac):
            self._is_told = True
            _log.error(
                f"an agent's questions are not answered: they are {OTHER_SCHEME}", scheduler=self._name
            )

    def _is_genuine(self, ring: Keyring, delivery: Delivery, item: packing.Item) -> bool:
        check = ring.is_withdrawn if delivery.event == WITHDRAWN else ring.is_question
        return check(delivery.orchestrator, self._name, item.signature_input, item.mac, item.version)
