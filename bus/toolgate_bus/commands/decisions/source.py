"""Sources of facts: the server, which keeps an hour, or an archive. Both give the oldest first."""

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
from toolgate_bus.transport.redis.client.connection import RedisCommands

Fact = dict[str, Any]

REMEMBERED: Final = 10_000
"""Maximum number of decisions in memory at once. Late verdicts are added to these."""


class Source(Protocol):
    """Place from which facts are read."""

    keeps: str
    """Sentence for people that says how long facts are kept."""

    async def now(self) -> float:
        """Return the time of the clock that dates the facts, in seconds since the epoch."""

    def facts(self, since: float | None = None) -> AsyncIterator[Fact]:
        """Read the facts, oldest first, a part of them in memory. `since` may leave out older ones."""


@dataclass
class ServerSource(Source):
    """The record of a namespace, on the server."""

    reader: FactsReader
    keeps = "The server keeps one hour; `toolgate decisions archive DIR` keeps more, for `--from DIR`."

    async def now(self) -> float:
        """Return the time of the server's clock."""
        return await self.reader.now_ms() / 1000

    def facts(self, since: float | None = None) -> AsyncIterator[Fact]:
        """Read the facts that the server keeps."""
        return self.reader.read_stored(None if since is None else int(since * 1000))


@dataclass
class ArchiveSource(Source):
    """An archive that `toolgate decisions archive` made."""

    directory: Path
    keeps = "The archive has all facts that were read since it was begun."

    async def now(self) -> float:
        """Return the time of this machine's clock, since there is no server to ask."""
        return time.time()

    async def facts(self, since: float | None = None) -> AsyncIterator[Fact]:
        """Read the archived facts. Files that are older than `since` are not opened."""
        for fact in read_archived_facts(self.directory, since):
            yield fact


@contextlib.asynccontextmanager
async def open_source(settings: BusSettings) -> AsyncIterator[ServerSource]:
    """Open the record on a server, for the length of a block."""
    async with contextlib.aclosing(RedisCommands(str(settings.redis), "toolgate-decisions")) as commands:
        reader = FactsReader(commands, settings.namespace)
        try:
            yield ServerSource(reader)
        finally:
            await reader.leave()


async def facts_for(source: Source, filters: Filters) -> AsyncIterator[Fact]:
    """Give the facts that may matter to these filters."""
    async for fact in source.facts(filters.since):
        if filters.over(fact):
            return
        yield fact


async def decisions_in(
    facts: AsyncIterator[Mapping[str, Any]], most: int = REMEMBERED
) -> AsyncIterator[Fact]:
    """Give the decisions among facts, in their order, each with its verdicts.

    At most `most` are in memory: a verdict that comes after so many further decisions is left out.
    """
    gathering = DecisionJoiner(most + 1)
    async for fact in facts:
        gathering.take(fact)
        if len(gathering.decisions) > most:
            yield gathering.decisions.popitem(last=False)[1]
    for decision in gathering.decisions.values():
        yield decision
