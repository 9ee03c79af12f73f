"""The answers of a replica on their way to the server: those that wait, and those not confirmed.

A verdict that the server refused, or may not have, is written again while the question may still be
waited for. An entry is acknowledged once all verdicts given with it were taken, or are of no use any
longer: who dies before leaves it to a peer. Acknowledgements travel with the next answers, where they
cost nothing. Connections are the bus's affair.
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

IDLE_VERDICTS_MS: Final = 60_000
KEPT_S: Final = 10.0
"""No question but a held one is waited for longer, and the last answers to those go another way."""
MAX_ENTRIES: Final = 1024
MAX_STORED_BYTES: Final = 8 * 1024 * 1024
"""So many frames, and so many bytes of them, are kept at a time."""
FIRST_AGAIN_S: Final = 0.02
LAST_AGAIN_S: Final = 0.25
_log = get_logger("toolgate.bus")

Write = Callable[[bytes, Sequence[Any]], bool]
"""Sends packed commands with their tags; False where there is no connection."""


class _Batch:
    """The verdicts of one turn of the event loop, and the entries to be acknowledged after them."""

    __slots__ = ("closed", "entries", "waits")

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.waits = 0
        """Its frames that the server has not taken."""
        self.closed = False


class Verdicts:
    """One frame of verdicts: the tag of its command."""

    __slots__ = ("batch", "buffer", "items", "packed", "refused_at")

    def __init__(self, buffer: "AnswersOut", packed: bytes, items: int, batch: _Batch) -> None:
        self.buffer, self.packed, self.items, self.batch = buffer, packed, items, batch
        self.refused_at: float | None = None
        """When the server first did not take it (`time.monotonic`)."""


class Acknowledgement:
    """The tag of an acknowledgement."""

    __slots__ = ("buffer", "entries")

    def __init__(self, buffer: "AnswersOut", entries: list[str]) -> None:
        self.buffer, self.entries = buffer, entries


class AnswersOut:
    """The answers of one scheduler; `write` is that of its process, which has the connections."""

    def __init__(
        self,
        keys: Keys,
        scheduler: str,
        group: str,
        write: Write,
        acknowledged: Callable[[Iterable[str]], None],
    ) -> None:
        """`acknowledged` is told of entries that need not be renewed any longer."""
        self._keys, self._scheduler, self._inbox = keys, scheduler, keys.inbox(scheduler)
        self._group = group
        self._write, self._acknowledged = write, acknowledged
        self.waiting: dict[str, list[bytes]] = {}
        """Verdicts that are to be written, by orchestrator."""
        self.batch = _Batch()
        """What is answered and acknowledged now: an entry is acknowledged once its answers were taken."""
        self._acks: list[str] = []
        self._kept: deque[Verdicts] = deque()
        self._kept_bytes = 0
        self._troubled = False
        self._pause = FIRST_AGAIN_S
        self._timer: asyncio.TimerHandle | None = None
        self._talked: set[str] = set()
        """Orchestrators that were answered since `take_recipients` was last called."""
        self._heads: dict[str, tuple[str, ...]] = {}
        """How the command that answers an orchestrator begins: of those whose streams are told to expire."""

    @property
    def has_recipients(self) -> bool:
        """Whether anybody was answered since `take_recipients` was last called."""
        return bool(self._talked)

    def take_recipients(self) -> set[str]:
        """The orchestrators that were answered since this was last called."""
        talked, self._talked = self._talked, set()
        return talked

    def add_recipient(self, orchestrator: str) -> None:
        """This one is answered, in another way."""
        self._talked.add(orchestrator)

    # ------------------------------------------------------------------ writing

    def answers(self, tags: list[Any]) -> list[bytes]:
        """The commands that write all answers that wait; their tags are added to `tags`."""
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
            if known is None:  # who is killed lets no new stream expire later
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
        """What is answered from now on has nothing to do with the entries named so far."""
        batch = self.batch
        if batch.entries:
            self.batch = _Batch()
            batch.closed = True
            if not batch.waits:
                self._acknowledge_batch(batch)

    def acks(self, tags: list[Any]) -> list[bytes]:
        """The command that acknowledges what may be by now, if there is anything."""
        if not self._acks:
            return []
        acks, self._acks = self._acks, []
        tags.append(Acknowledgement(self, acks))
        return [pack_command(("XACK", self._inbox, self._group, *acks))]

    def write_acks(self) -> None:
        """Acknowledge now: nothing came for a while that they could have gone with."""
        tags: list[Any] = []
        if (out := self.acks(tags)) and not self._write(out[0], tags):
            self._acks += tags[0].entries

    def _acknowledge_batch(self, batch: _Batch) -> None:
        self._acks += batch.entries
        self._acknowledged(batch.entries)

    # ------------------------------------------------------------------ what came of it

    def take_reply(self, tag: Any, reply: Any) -> bool:
        """Take a reply; False if it is to nothing of ours."""
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
        """A connection is gone: what it owes may not have been done. Verdicts that come twice do no harm."""
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
            _log.error("verdicts were not taken: tried again", scheduler=self._scheduler, error=error)
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
        """Write again what is kept; without a connection it waits for one, which is to call this."""
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
        """Nobody waits for it any longer: its entry is acknowledged as that of any question too old is."""
        self._kept_bytes -= len(verdict.packed)
        for _ in range(verdict.items):
            metrics.count(metrics.SCHEDULER_ERRORS, self._scheduler, "refused")
        batch = verdict.batch
        batch.waits -= 1
        if batch.closed and not batch.waits:
            self._acknowledge_batch(batch)
