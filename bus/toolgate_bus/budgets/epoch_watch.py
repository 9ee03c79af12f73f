"""Watches a ledger for one replica: whether it is the one that is remembered, and has all that was confirmed.

What that means is in `epoch`; here it is done: writes that a failover forgot are written again, a ledger that
was lost is marked, for all replicas, until a person decides. A file keeps the memory for the next process:
how many changes were confirmed at once, so that kill -9 takes none of it along, and the rest now and then.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

import anyio

from toolgate_bus.budgets.epoch import EpochMemory, KeptNumber, LedgerEpoch, LedgerLoss, Why
from toolgate_bus.telemetry.loggers import get_logger

WRITE_S: Final = 10.0
"""Seconds between two writes of the file, unless the ledger is another."""
_log = get_logger("toolgate.ledger")


class EpochPort(Protocol):
    """What a ledger does for its watch; each may be repeated."""

    async def read_epoch(self) -> LedgerEpoch:
        """What it says of itself."""

    async def lose(self, epoch: str, why: Why, fresh: str, replaced: Sequence[str], by: str) -> None:
        """Mark it as lost, for all; `epoch` is what is remembered, `fresh` names one that has no name."""

    async def find(self, by: str) -> None:
        """What `by` had missed is there again."""

    async def write_again(self, steps: Sequence[Any], by: str, number: int, epoch: str) -> int:
        """Take steps that were forgotten, whatever the limits say, all on one server.

        `by` has made so many changes then, at least, and one more: how many. 0 where the ledger is another by
        now, which takes nothing, or where the server changed meanwhile: then all are to be taken once more.
        Raises TransportError, and then, too, it is as if nothing had been taken.
        """


class EpochStore(Protocol):
    """What outlasts a process; what cannot be kept is logged, and raises nothing."""

    async def read(self) -> tuple[Any, list[KeptNumber]]:
        """What an earlier process wrote, None where none did, and the numbers of each."""

    async def write(self, kept: Any) -> None:
        """Keep this in the place of what was there."""

    def count(self, writer: str, epoch: str, decided: int, number: int) -> None:
        """Keep how many changes of this process were confirmed; kill -9 right after this loses nothing."""

    def close(self) -> None:
        """The process ends."""


class EpochWatch:
    """One replica's."""

    def __init__(self, port: EpochPort, file: EpochStore | None = None) -> None:
        self._port, self._file = port, file
        self.memory = EpochMemory(secrets.token_hex(6), secrets.token_hex(8))
        self.waits = False
        """Whether others have yet to write again what is missing of them."""
        self._turn = asyncio.Lock()
        self._written: Any = None
        self._written_at = 0.0

    async def begin(self) -> None:
        """Recall what an earlier process knew, and look."""
        if self._file is not None:
            self.memory.recall(*await self._file.read(), time.monotonic())
        await self.look()

    async def end(self) -> None:
        """Keep what is known for the next process."""
        with anyio.CancelScope(shield=True):
            await self._write(at_once=True)
        if self._file is not None:
            self._file.close()

    def keep(self, number: int, known: int, step: Any) -> None:
        """An own change was confirmed under this number; `known` were when it was sent."""
        memory = self.memory
        memory.keep(number, known, step, time.monotonic())
        if self._file is not None and memory.id:
            self._file.count(memory.writer, memory.id, memory.decided, memory.confirmed)

    async def look(self) -> LedgerLoss | None:
        """Compare, and do what that asks for; why the ledger is lost, None where it is not."""
        async with self._turn:
            loss = await self._look()
            await self._write(at_once=False)
            return loss

    async def _look(self) -> LedgerLoss | None:
        memory, known, id_ = self.memory, self.memory.confirmed, self.memory.id
        seen, now = await self._port.read_epoch(), time.monotonic()
        if memory.id != id_:  # given meanwhile, over another connection: what was read may be older
            return await self._look()
        judgement = memory.judge(seen, now, known)
        self.waits = judgement == "wait"
        if judgement in ("missing", "another", "behind"):
            why: Why = judgement
            if seen.loss is None:
                _log.error("the ledger was lost: toolgate budget rebuild, or accept-loss", why=why)
            await self._port.lose(memory.id, why, secrets.token_hex(8), memory.replaced, memory.writer)
            return LedgerLoss(why, time.time())
        if judgement == "wait":
            return LedgerLoss("behind", time.time())
        if judgement == "adopt":
            memory.adopt(seen, now)
        elif judgement == "rewrite":
            await self._write_again()
            return await self._look()
        elif judgement == "find":
            await self._port.find(memory.writer)
            return None
        return seen.loss

    async def _write_again(self) -> None:
        """Write what the ledger forgot, or may have; one that fails begins anew, which changes nothing."""
        memory = self.memory
        forgotten = memory.list_forgotten()
        memory.is_doubtful, number = False, 0
        try:
            number = await self._port.write_again(
                [one.step for one in forgotten], memory.writer, memory.confirmed, memory.id
            )
        finally:
            memory.is_doubtful = memory.is_doubtful or not number
        if number:
            memory.remember_written(forgotten, number, time.monotonic())

    async def _write(self, *, at_once: bool) -> None:
        if self._file is None or not self.memory.id:
            return
        kept, now = self.memory.as_json(), time.monotonic()
        is_new = self._written is None or any(kept[name] != self._written[name] for name in ("id", "decided"))
        if kept != self._written and (at_once or is_new or now - self._written_at >= WRITE_S):
            await self._file.write(kept)
            self._written, self._written_at = kept, now
