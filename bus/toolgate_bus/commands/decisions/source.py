"""Where the facts come from: the server, which keeps an hour, or an archive. Both oldest first."""

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from toolgate_bus.commands.decisions.archive_reader import read_archived_facts
from toolgate_bus.commands.decisions.filters import Filters
from toolgate_bus.facts.join import DecisionJoiner
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.connection import RedisCommands

Fact = dict[str, Any]

REMEMBERED: Final = 10_000
"""Decisions that are in memory at once: their late verdicts are put to them."""


class Source(Protocol):
    """Facts that are there."""

    keeps: str
    """How long they are kept, for people."""

    async def now(self) -> float:
        """The clock by which facts are dated, in seconds since the epoch."""

    def facts(self, since: float | None = None) -> AsyncIterator[Fact]:
        """The facts, oldest first, a part of them in memory; `since` may leave out older ones."""


@dataclass
class ServerSource(Source):
    """The record of a namespace."""

    reader: FactsReader
    keeps = "The record keeps one hour; `toolgate decisions archive DIR` keeps more, for `--from DIR`."

    async def now(self) -> float:
        """The server's clock."""
        return await self.reader.now_ms() / 1000

    def facts(self, since: float | None = None) -> AsyncIterator[Fact]:
        """What is kept."""
        return self.reader.read_stored(None if since is None else int(since * 1000))


@dataclass
class ArchiveSource(Source):
    """An archive that `toolgate decisions archive` made."""

    directory: Path
    keeps = "The archive has what was read since it was begun."

    async def now(self) -> float:
        """This machine's clock: there is no server to ask."""
        return time.time()

    async def facts(self, since: float | None = None) -> AsyncIterator[Fact]:
        """What was archived; files that are older than `since` are not opened."""
        for fact in read_archived_facts(self.directory, since):
            yield fact


@contextlib.asynccontextmanager
async def open_source(settings: BusSettings) -> AsyncIterator[ServerSource]:
    """The record on a server, for the length of a block."""
    async with contextlib.aclosing(RedisCommands(str(settings.redis), "toolgate-decisions")) as commands:
        reader = FactsReader(commands, settings.namespace)
        try:
            yield ServerSource(reader)
        finally:
            await reader.leave()


async def facts_for(source: Source, filters: Filters) -> AsyncIterator[Fact]:
    """The facts that may matter to these filters."""
    async for fact in source.facts(filters.since):
        if filters.over(fact):
            return
        yield fact


async def decisions_in(
    facts: AsyncIterator[Mapping[str, Any]], most: int = REMEMBERED
) -> AsyncIterator[Fact]:
    """The decisions among facts, in their order, each with the verdicts that came beside it.

    At most `most` are in memory: a verdict that comes after so many further decisions is left out.
    """
    gathering = DecisionJoiner(most + 1)
    async for fact in facts:
        gathering.take(fact)
        if len(gathering.decisions) > most:
            yield gathering.decisions.popitem(last=False)[1]
    for decision in gathering.decisions.values():
        yield decision
