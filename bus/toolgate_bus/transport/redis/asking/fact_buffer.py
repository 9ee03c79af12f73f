"""Holds the frames of facts that the server has not confirmed, and those that it confirmed last.

A server that fails over may forget what it has confirmed. A fact's bytes are made here; a fact that cannot be
made delays no other. `publisher` queues facts, writes frames and reads the replies.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from toolgate_bus.protocol import packing
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import FactItem, FactPayload

KEPT_S: Final = 10.0
"""Seconds that a frame is kept after its confirmation: more than replicas are ever behind."""
MAX_KEPT_BYTES: Final = 4 * 1024 * 1024
_log = get_logger("toolgate.bus")


class FactBuffer:
    """The frames of one orchestrator."""

    __slots__ = ("_kept", "_kept_bytes", "_unconfirmed")

    def __init__(self) -> None:
        self._unconfirmed: deque[tuple[bytes, int]] = deque()
        """Frames, oldest first, each with the number of facts that the server never had."""
        self._kept: deque[tuple[float, bytes]] = deque()
        """Confirmed frames, with the times of their confirmations."""
        self._kept_bytes = 0

    def drop(self, make: Callable[[], FactPayload]) -> None:
        """Drop a fact, as too many wait; metrics that are counted when it is made are still counted."""
        _make_items(make)
        metrics.count(metrics.FACTS_DROPPED)

    @property
    def is_begun(self) -> bool:
        """True if a frame is on its way."""
        return bool(self._unconfirmed)

    def add(self, waiting: Iterable[Callable[[], FactPayload]]) -> list[tuple[bytes, int]]:
        """Return frames of these facts, to be written now, each with the number of its facts.

        Each is unconfirmed until `confirm_oldest`.
        """
        frames = [(packing.frame(part), facts) for part, facts in _parts(map(_make_items, waiting))]
        self._unconfirmed.extend(frames)
        return frames

    def confirm_oldest(self) -> bytes:
        """Note that the server has taken the oldest frame that was written, and return that frame."""
        frame, _ = self._unconfirmed.popleft()
        now = time.monotonic()
        self._kept.append((now, frame))
        self._kept_bytes += len(frame)
        while self._kept and (self._kept_bytes > MAX_KEPT_BYTES or self._kept[0][0] < now - KEPT_S):
            self._kept_bytes -= len(self._kept.popleft()[1])
        return frame

    def take_back(self) -> None:
        """Count the frames that are still kept as not confirmed: a failover may have forgotten them.

        This holds however late the loss is noticed: a process that was suspended confirmed nothing meanwhile.
        """
        for _, frame in reversed(self._kept):
            self._unconfirmed.appendleft((frame, 0))  # its facts were counted before: none counts as dropped
        self._kept.clear()
        self._kept_bytes = 0

    def list_unconfirmed(self) -> list[bytes]:
        """Return the frames that the server may not have, in order."""
        return [frame for frame, _ in self._unconfirmed]

    def give_up(self) -> None:
        """Count the facts that the server may not have as dropped; nothing is written any more."""
        for _ in range(sum(facts for _, facts in self._unconfirmed)):
            metrics.count(metrics.FACTS_DROPPED)


def _make_items(make: Callable[[], FactPayload]) -> list[FactItem]:
    try:
        made = make()
    except Exception:  # noqa: BLE001 - it comes from above; whatever went wrong there, the others are written
        _log.exception("a fact could not be made")
        metrics.count(metrics.FACTS_DROPPED)
        return []
    return made if isinstance(made, list) else [FactItem(made, 1)]


def _parts(made: Iterable[list[FactItem]]) -> Iterator[tuple[list[bytes], int]]:
    """Yield the items of each frame, as many as fit, and the number of their facts.

    A frame holds at most 64 facts, and at most 64 KiB unless it is a single item. Items that were made
    together stand in one frame if they fit, as their facts may interlock.
    """
    part: list[bytes] = []
    facts = size = 0
    for items in made:
        together = sum(held for _, held in items), sum(len(item) for item, _ in items)
        if part and (facts + together[0] > packing.MAX_ITEMS or size + together[1] > packing.FULL_FRAME):
            yield part, facts
            part, facts, size = [], 0, 0
        for item, held in items:
            if part and (facts + held > packing.MAX_ITEMS or size + len(item) > packing.FULL_FRAME):
                yield part, facts
                part, facts, size = [], 0, 0
            part.append(item)
            facts += held
            size += len(item)
    if part:
        yield part, facts
