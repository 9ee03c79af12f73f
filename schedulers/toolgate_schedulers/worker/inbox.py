"""What comes out of a scheduler's inbox: questions and withdrawals, read and believed, or counted.

Not here: Redis, and what is done with a question (`worker`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.ports import Delivery, SchedulerBus

from toolgate_schedulers.worker.holds import ReplyTo

WITHDRAWN: Final = "tool:withdrawn"


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

    def settle(self, bus: SchedulerBus) -> None:
        """Answered, held or expired: the entry is acknowledged with the last of its questions."""
        entry, self.entry = self.entry, None
        if entry is not None:
            entry.open -= 1
            if not entry.open:
                bus.acknowledge(entry.id)


class DeliveryReader:
    """Opens deliveries for one scheduler."""

    __slots__ = ("_name", "_read", "_ring")

    def __init__(
        self,
        name: str,
        ring: Keyring | None,
        read: Callable[[bytes], Sequence[packing.Item | CodecError]],
    ) -> None:
        """`read` opens a frame; with a ring an item counts only under its sender's key."""
        self._name, self._ring, self._read = name, ring, read

    def items(self, delivery: Delivery) -> list[packing.Item]:
        """What can be read and is genuine; the rest is counted."""
        found: Sequence[packing.Item | CodecError]
        try:
            found = self._read(delivery.frame)
        except CodecError as error:
            found = [error]
        items, ring = [], self._ring
        for one in found:
            if isinstance(one, CodecError):
                metrics.count(metrics.BAD_MESSAGES, "orchestrator", one.reason)
            elif ring is None or self._is_genuine(ring, delivery, one):
                items.append(one)
            else:
                metrics.count(metrics.BAD_MESSAGES, "orchestrator", "forged")
        return items

    def _is_genuine(self, ring: Keyring, delivery: Delivery, item: packing.Item) -> bool:
        check = ring.is_withdrawn if delivery.event == WITHDRAWN else ring.is_question
        return check(delivery.orchestrator, self._name, item.signature_input, item.mac, item.version)
