"""Holds a replica's answers on their way to the server: those that wait, and those not confirmed.

A verdict that the server refused, or may not have, is written again while somebody may wait for it. An entry
is acknowledged once the server took all verdicts given with it, or nobody needs them any longer: if a replica
dies before that, a peer takes its entries. Acknowledgements travel with the next answers, where they cost
nothing. The bus makes the connections.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.client.link import ServerError, pack_command

# How long a verdict stream stays after the last answer, in milliseconds.
IDLE_VERDICTS_MS: Final = 60_000
KEPT_S: Final = 10.0
"""Seconds that a verdict is written again: nobody waits longer, and the last answers to a held question go
another way."""
MAX_ENTRIES: Final = 1024
MAX_STORED_BYTES: Final = 8 * 1024 * 1024
"""Maximum number of refused frames, and of their bytes, that are kept."""
FIRST_AGAIN_S: Final = 0.02
LAST_AGAIN_S: Final = 0.25
_log = get_logger("toolgate.bus")

Write = Callable[[bytes, Sequence[Any]], bool]
"""Sends packed commands with their tags; returns False if there is no connection."""


class _Batch:
    """Verdicts of one turn of the event loop, and the entries to acknowledge after them."""

    __slots__ = ("closed", "entries", "waits")

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.waits = 0
        """Number of its frames that the server has not taken."""
        self.closed = False


class Verdicts:
    """One frame of verdicts: the tag of its command."""

    __slots__ = ("batch", "buffer", "items", "packed", "refused_at")

    def __init__(self, buffer: "AnswerBuffer", packed: bytes, items: int, batch: _Batch) -> None:
        self.buffer, self.packed, self.items, self.batch = buffer, packed, items, batch
        self.refused_at: float | None = None
        """Time at which the server first did not take the frame (`time.monotonic`)."""


class Acknowledgement:
    """The tag of an acknowledgement."""

    __slots__ = ("buffer", "entries")

    def __init__(self, buffer: "AnswerBuffer", entries: list[str]) -> None:
        self.buffer, self.entries = buffer, entries


class AnswerBuffer:
    """Answers of one scheduler; `write` belongs to its process, which has the connections."""

    def __init__(
        self,
        keys: Keys,
        scheduler: str,
        group: str,
        write: Write,
        acknowledged: Callable[[Iterable[str]], None],
    ) -> None:
        """`acknowledged` is called with entries that need not be renewed any longer."""
        self._keys, self._scheduler, self._inbox = keys, scheduler, keys.inbox(scheduler)
        self._group = group
        self._write, self._acknowledged = write, acknowledged
        self.waiting: dict[str, list[bytes]] = {}
        """Verdicts to write, by orchestrator."""
        self.batch = _Batch()
        """The current batch: its entries are acknowledged once the server took its answers."""
        self._acks: list[str] = []
        self._kept: deque[Verdicts] = deque()
        self._kept_bytes = 0
        self._troubled = False
        self._pause = FIRST_AGAIN_S
        self._timer: asyncio.TimerHandle | None = None
        self._talked: set[str] = set()
        """Orchestrators that got an answer since the last call of `take_recipients`."""
        self._heads: dict[str, tuple[str, ...]] = {}
        """Beginning of the command that answers an orchestrator; kept once its stream was set to expire."""

    @property
    def has_recipients(self) -> bool:
        """True if an orchestrator got an answer since the last call of `take_recipients`."""
        return bool(self._talked)

    def take_recipients(self) -> set[str]:
        """Return the orchestrators that got an answer since the last call."""
        talked, self._talked = self._talked, set()
        return talked

    def add_recipient(self, orchestrator: str) -> None:
        """Note an orchestrator that gets an answer in another way."""
        self._talked.add(orchestrator)

    # ------------------------------------------------------------------ writing

    def answers(self, tags: list[Any]) -> list[bytes]:
        """Return the commands that write all waiting answers; add their tags to `tags`."""
        out: list[bytes] = []
        if not self.waiting:
            return out
        batch = self.batch
        for orchestrator, items in self.waiting.items():
            self._talked.add(orchestrator)
            known = self._heads.get(orchestrator)
            head = known or self._make_head(orchestrator)
            for part in packing.frames(items) if len(items) > 1 else (items,):
                packed = pack_command((*head, packing.frame(part)))
                out.append(packed)
                tags.append(Verdicts(self, packed, len(part), batch))
                batch.waits += 1
            if known is None:  # a replica that is killed later leaves no new stream without an expiry
                out.append(pack_command(("PEXPIRE", head[1], IDLE_VERDICTS_MS)))
                tags.append(None)
        self.waiting.clear()
        return out

    def _make_head(self, orchestrator: str) -> tuple[str, ...]:
        if len(self._heads) >= MAX_ENTRIES:
            self._heads.clear()
        stream = self._keys.verdicts(orchestrator, self._scheduler)
        head = self._heads[orchestrator] = ("XADD", stream, "*", "event", "verdict", "frame")
        return head

    def close_batch(self) -> None:
        """Begin a new batch: later answers have nothing to do with the entries named so far."""
        batch = self.batch
        if batch.entries:
            self.batch = _Batch()
            batch.closed = True
            if not batch.waits:
                self._acknowledge_batch(batch)

    def acks(self, tags: list[Any]) -> list[bytes]:
        """Return the command that acknowledges every entry that is ready, if there is one."""
        if not self._acks:
            return []
        acks, self._acks = self._acks, []
        tags.append(Acknowledgement(self, acks))
        return [pack_command(("XACK", self._inbox, self._group, *acks))]

    def write_acks(self) -> None:
        """Acknowledge now: for a while no answer came with which the acknowledgements could travel."""
        tags: list[Any] = []
        if (out := self.acks(tags)) and not self._write(out[0], tags):
            self._acks += tags[0].entries

    def _acknowledge_batch(self, batch: _Batch) -> None:
        self._acks += batch.entries
        self._acknowledged(batch.entries)

    # ------------------------------------------------------------------ replies

    def take_reply(self, tag: Any, reply: Any) -> bool:
        """Take a reply. Return False if an acknowledgement was refused, or the tag belongs to others."""
        if type(tag) is Verdicts:
            if type(reply) is ServerError:
                self._keep([tag], str(reply))
                return True
            batch = tag.batch
            batch.waits -= 1
            if batch.closed and not batch.waits:
                self._acknowledge_batch(batch)
            if tag.refused_at is not None:
                self._troubled, self._pause = False, FIRST_AGAIN_S
            return True
        return type(tag) is Acknowledgement and type(reply) is not ServerError

    def recover(self, owed: Iterable[Any]) -> None:
        """Write again what a lost connection may not have delivered. Verdicts that come twice do no harm."""
        verdicts = []
        for tag in owed:
            if type(tag) is Verdicts and tag.buffer is self:
                verdicts.append(tag)
            elif type(tag) is Acknowledgement and tag.buffer is self:
                self._acks += tag.entries
        if verdicts:
            self._keep(verdicts, "the connection was lost")

    def _keep(self, verdicts: Sequence[Verdicts], error: str) -> None:
        if not self._troubled:
            self._troubled = True
            _log.error(
                "the server did not take verdicts; they are tried again",
                scheduler=self._scheduler,
                error=error,
            )
        now = time.monotonic()
        for verdict in verdicts:
            metrics.count(metrics.REFUSED_WRITES, "verdicts")
            if verdict.refused_at is None:
                verdict.refused_at = now
            self._kept.append(verdict)
            self._kept_bytes += len(verdict.packed)
        while len(self._kept) > MAX_ENTRIES or self._kept_bytes > MAX_STORED_BYTES:
            self._give_up(self._kept.popleft())
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self.write_again)

    def write_again(self) -> None:
        """Write again the verdicts that are kept; without a connection they wait for the next call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._kept:
            return
        now, again = time.monotonic(), []
        for verdict in self._kept:
            if verdict.refused_at is not None and now - verdict.refused_at > KEPT_S:
                self._give_up(verdict)
            else:
                again.append(verdict)
        self._kept.clear()
        self._kept_bytes = 0
        self._pause = min(LAST_AGAIN_S, self._pause * 2)
        if again and not self._write(b"".join(one.packed for one in again), again):
            self._kept.extend(again)
            self._kept_bytes = sum(len(one.packed) for one in again)

    def _give_up(self, verdict: Verdicts) -> None:
        """Drop a verdict for which nobody waits; its entry is acknowledged, like that of an old question."""
        self._kept_bytes -= len(verdict.packed)
        for _ in range(verdict.items):
            metrics.count(metrics.SCHEDULER_ERRORS, self._scheduler, "refused")
        batch = verdict.batch
        batch.waits -= 1
        if batch.closed and not batch.waits:
            self._acknowledge_batch(batch)
