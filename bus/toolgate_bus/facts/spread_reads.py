"""Reads streams that lie in several slots of a cluster, so that no one command can read them all.

All are read at once without waiting. If there is nothing, each slot gets a read that blocks, and the first
one that ends makes all be read again. So a result is one look at everything, and an empty one means that
nothing came during the wait. A read that still blocks is kept, and ends a later wait.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from toolgate_bus.errors import ToolgateError
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.storage.reads import read_next

Groups = Mapping[int, Mapping[str, str | bytes]]
"""Streams by shard, each with the id after which it is read."""
Rows = Sequence[tuple[bytes, list[Any]]]


class SpreadReads:
    """Reads of one follower."""

    def __init__(self, commands: Commands) -> None:
        """Prepare the reads; `commands` must have connections for two reads of each shard."""
        self._commands = commands
        self._bells: dict[int, asyncio.Task[bool]] = {}

    async def next(
        self, groups: Groups, most: int, wait_ms: int
    ) -> tuple[list[tuple[bytes, list[Any]]], dict[int, ToolgateError]]:
        """Return entries after these ids, waiting up to `wait_ms` for some, and the shards that failed."""
        until = time.monotonic() + wait_ms / 1000
        rows, failed = await self._look(groups, most)
        if not rows and wait_ms > 0:
            await self._wait({shard: one for shard, one in groups.items() if shard not in failed}, until)
            rows, failed = await self._look(groups, most)
        return rows, failed

    async def _look(
        self, groups: Groups, most: int
    ) -> tuple[list[tuple[bytes, list[Any]]], dict[int, ToolgateError]]:
        pages = await asyncio.gather(*(self._look_at(after, most) for after in groups.values()))
        found = dict(zip(groups, pages, strict=True))
        failed = {shard: page for shard, page in found.items() if isinstance(page, ToolgateError)}
        return [row for page in pages if not isinstance(page, ToolgateError) for row in page], failed

    async def _look_at(self, after: Mapping[str, str | bytes], most: int) -> Rows | ToolgateError:
        try:
            return await read_next(self._commands, after, most, 0)
        except ToolgateError as error:
            return error

    async def _wait(self, groups: Groups, until: float) -> None:
        """Wait until something may have come into one of the shards, or the time is over."""
        for shard in [shard for shard, bell in self._bells.items() if bell.done() or shard not in groups]:
            if (bell := self._bells.pop(shard)).done():
                bell.cancelled() or bell.exception()
        while (left := until - time.monotonic()) > 0:
            for shard in groups.keys() - self._bells.keys():
                self._bells[shard] = asyncio.create_task(
                    self._ring(groups[shard], max(1, round(left * 1000)))
                )
            done, _ = await asyncio.wait(
                self._bells.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if any(bell.result() for bell in done):
                return
            self._bells = {shard: bell for shard, bell in self._bells.items() if bell not in done}

    async def _ring(self, after: Mapping[str, str | bytes], wait_ms: int) -> bool:
        """Return whether anything came."""
        try:
            return bool(await read_next(self._commands, after, 1, wait_ms))
        except ToolgateError:
            await asyncio.sleep(wait_ms / 1000)  # the next look reports the error
            return False
