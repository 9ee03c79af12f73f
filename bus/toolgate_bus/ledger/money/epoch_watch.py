"""The watch of a ledger for one replica: compares the ledger with the replica's memory, and acts on a loss.

The rules are in `epoch`, the actions here. Writes that a failover forgot are written again. A lost ledger
is marked for all replicas until a person decides. A file keeps the memory for the next process: the number
of confirmed changes at once, so that kill -9 loses none of them, and the rest now and then.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

import anyio

from toolgate_bus.ledger.money.epoch import EpochMemory, KeptNumber, LedgerEpoch, LedgerLoss, Why
from toolgate_bus.telemetry.loggers import get_logger

WRITE_S: Final = 10.0
"""Seconds between two writes of the file, unless the ledger is another one."""
_log = get_logger("toolgate.ledger")


class EpochPort(Protocol):
    """Methods that a ledger offers to its watch; each may be repeated."""

    async def read_epoch(self) -> LedgerEpoch:
        """Return the ledger's epoch and its numbers."""

    async def lose(self, epoch: str, why: Why, fresh: str, replaced: Sequence[str], by: str) -> None:
        """Mark the ledger as lost, for all. `epoch` is the remembered one, `fresh` a new one."""

    async def find(self, by: str) -> None:
        """Tell the ledger that the changes that `by` missed are there again."""

    async def write_again(self, steps: Sequence[Any], by: str, number: int, epoch: str) -> int:
        """Take steps that were forgotten, whatever the limits say, all on one server.

        Return the number of changes of `by`, then at least `number`, plus one. Return 0 if the ledger is
        another one by now, which takes nothing, or if the server changed meanwhile: then take all once more.
        Raises TransportError; after it, too, take all once more.
        """


class EpochStore(Protocol):
    """Storage that outlasts a process. A failure to keep something is logged, and raises nothing."""

    async def read(self) -> tuple[Any, list[KeptNumber]]:
        """Return the memory that an earlier process wrote (None if none did), and each process's number."""

    async def write(self, kept: Any) -> None:
        """Replace the memory that is kept."""

    def count(self, writer: str, epoch: str, decided: int, number: int) -> None:
        """Keep the number of confirmed changes of this process. A kill -9 right after this loses nothing."""

    def close(self) -> None:
        """Close the files, because the process ends."""


class EpochWatch:
    """The watch of one replica."""

    def __init__(self, port: EpochPort, file: EpochStore | None = None) -> None:
        self._port, self._file = port, file
        self.memory = EpochMemory(secrets.token_hex(6), secrets.token_hex(8))
        self.waits = False
        """True while other replicas still have to write their missing changes again."""
        self._turn = asyncio.Lock()
        self._written: Any = None
        self._written_at = 0.0

    async def begin(self) -> None:
        """Load the memory of an earlier process, and look."""
        if self._file is not None:
            self.memory.recall(*await self._file.read(), time.monotonic())
        await self.look()

    async def end(self) -> None:
        """Keep the memory for the next process."""
        with anyio.CancelScope(shield=True):
            await self._write(at_once=True)
        if self._file is not None:
            self._file.close()

    def keep(self, number: int, known: int, step: Any) -> None:
        """Remember an own change that was confirmed under this number.

        `known` is the number of own changes that were confirmed when it was sent.
        """
        memory = self.memory
        memory.keep(number, known, step, time.monotonic())
        if self._file is not None and memory.id:
            self._file.count(memory.writer, memory.id, memory.decided, memory.confirmed)

    async def look(self) -> LedgerLoss | None:
        """Compare the ledger with the memory, and act on it. Return the loss; None if there is none."""
        async with self._turn:
            loss = await self._look()
            await self._write(at_once=False)
            return loss

    async def _look(self) -> LedgerLoss | None:
        memory, known, id_ = self.memory, self.memory.confirmed, self.memory.id
        seen, now = await self._port.read_epoch(), time.monotonic()
        if memory.id != id_:  # given meanwhile, over another connection: this answer may be older
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
        """Write again the changes that the ledger forgot or may have forgotten. A failure changes nothing."""
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
