"""Show the configurations of schedulers: replicas, history, rollouts, changes. Read only.

This is `toolgate scheduler status`, `history` and `diff` as one view of all schedulers. The data come from
others: numbers are made finite, texts are cut, rows are bounded, and a scheduler that cannot be read is
shown with the reason. Signatures are not checked, as a console has no keys.
"""

import asyncio
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from toolgate_bus.config.document import Document, parse_document
from toolgate_bus.errors import ConfigError, ToolgateError, TransportError
from toolgate_bus.protocol.agents import LiveAgent
from toolgate_bus.protocol.names import NAME_PATTERN
from toolgate_bus.protocol.tool_sets import LivingTools
from toolgate_bus.state.changes import TOPIC, ConfigChange, decode_change
from toolgate_bus.state.config_record import ConfigRecord, Rollout, RolloutStage, stage_of
from toolgate_bus.state.config_store import ConfigStore
from toolgate_bus.state.notifications import FIRST, PAGE, RedisNotices
from toolgate_bus.state.rollout_rules import TrialCounts, in_share
from toolgate_bus.telemetry.printable import shorten
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory
from toolgate_bus.transport.redis.storage.store import RedisStore

from toolgate_schedulers.commands.rule_check import compare
from toolgate_schedulers.commands.scheduler_configs import ConfigCommands, Status, diff_texts, history_rows
from toolgate_schedulers.shipped.rule_listing import CONFIGS

MAX_SCHEDULERS: Final = 50
MAX_REPLICAS: Final = 50
"""Maximum number of replicas shown of one scheduler."""
MAX_CHANGES: Final = 100
MAX_PAGES: Final = 8
"""Maximum number of pages of the record of changes that one look reads."""
MAX_SESSIONS: Final = 20_000
MAX_DIFF: Final = 2000
"""Maximum number of lines of a configuration that is compared here: longer ones could take minutes."""
MAX_LINE: Final = 400
WORD: Final = 128
WHY: Final = 300
_LATEST: Final = 1e11
MAX_DOUBTED: Final = 64 * 1024
"""Maximum size in bytes of a configuration that is compared with living agents here."""
MAX_DOUBTS: Final = 20
MAX_KEPT: Final = 64

ReadAgents = Callable[[], Awaitable[Sequence[LiveAgent]]]


class RevisionReader:
    """Reader of the configurations of one namespace; one task reads at a time."""

    def __init__(self, commands: RedisCommands, namespace: str, agents: ReadAgents) -> None:
        self._commands, self._namespace, self._agents = commands, namespace, agents
        self._roster, self._store = Roster(commands, namespace), RedisStore(commands, namespace)
        self._notices = RedisNotices(commands, commands, namespace)
        self._after, self._changes = FIRST, deque[dict[str, Any]](maxlen=MAX_CHANGES)
        self._comparing = asyncio.Lock()
        self._doubts = DoubtReader(AgentDirectory(commands, namespace))

    async def read(self) -> dict[str, Any]:
        """Return the data of the page; raise TransportError."""
        members = (await self._roster.read()).members
        names = await self._names(members)
        await self._doubts.look()
        told = [await self._read_one(name, members) for name in names[:MAX_SCHEDULERS]]
        await self._read_changes()
        return {
            "schedulers": told,
            "more": len(names[MAX_SCHEDULERS:]),
            "changes": list(self._changes)[::-1],
        }

    async def diff(self, name: str, one: str, other: str) -> list[str]:
        """Return the difference between two configurations, in lines; raise ConfigError, TransportError."""
        if not re.fullmatch(NAME_PATTERN, name):
            raise ConfigError("scheduler: is no valid name of a scheduler")
        if max(len(one), len(other)) > WORD:
            raise ConfigError(f"from, to: must be at most {WORD} characters")
        desk = ConfigCommands(self._commands, self._namespace, name, None)
        async with self._comparing:
            lines = await diff_texts(desk, one, other, MAX_DIFF)
        return [shorten(line, MAX_LINE) for line in lines[:MAX_DIFF]]

    async def _names(self, members: Sequence[Member]) -> list[str]:
        keys = await self._store.keys("config:")
        kept = {key.split(":")[1] for key in keys if key.count(":") == 2 and key.endswith(":record")}
        return sorted(
            name for name in kept | {one.name for one in members} if re.fullmatch(NAME_PATTERN, name)
        )

    async def _read_one(self, name: str, members: Sequence[Member]) -> dict[str, Any]:
        own = [one for one in members if one.name == name]
        try:
            return await self._read_configs(name, own)
        except ToolgateError as error:
            replicas = [{"replica": one.replica, "revision": one.revision.text} for one in own[:MAX_REPLICAS]]
            return {
                "scheduler": name,
                "problem": shorten(str(error), WHY),
                "replicas": replicas,
                "history": [],
            }

    async def _read_configs(self, name: str, own: Sequence[Member]) -> dict[str, Any]:
        store = ConfigStore(self._commands, self._namespace, name)
        read = await store.read()
        found, rollout = stage_of(read.record, read.progress), read.record.rollout
        counts = TrialCounts()
        if found is not None and rollout is not None:
            counts = await store.counts(rollout, found[0])
        reports = await store.reports() if own else {}
        status = Status(name, read, own, reports, counts, await store.now())
        told = status.as_json()
        if found is not None and rollout is not None:
            told["rollout"] |= await self._describe(rollout, found[1])
            del told["rollout"]["seconds"]  # it changes every second, and so would the page
        replicas = [_replica(one) for one in told["replicas"]]
        return {
            **told,
            "replicas": replicas[:MAX_REPLICAS],
            "more_replicas": len(replicas[MAX_REPLICAS:]),
            "history": _history(read.record),
            **await self._doubts.read(name, read.record, store),
        }

    async def _describe(self, rollout: Rollout, stage: RolloutStage) -> dict[str, Any]:
        """Return the author of a rollout, and the number of live trees of sessions that it covers."""
        living = {one.root or one.session for one in await self._agents()}
        roots = list(islice(living, MAX_SESSIONS))
        seen = sum(in_share(rollout.id, root, stage.share) for root in roots) if stage.share else 0
        return {"author": shorten(rollout.author, WORD), "sessions": len(roots), "sessions_new": seen}

    async def _read_changes(self) -> None:
        for _ in range(MAX_PAGES):
            page = await self._notices.read(TOPIC, self._after, 0.0)
            for one in page:
                self._after = one.id
                if (change := decode_change(one.body)) is not None:
                    self._changes.append(_change(change))
            if len(page) < PAGE:
                return


def _replica(told: dict[str, Any]) -> dict[str, Any]:
    return {name: shorten(one, WHY) if isinstance(one, str) else one for name, one in told.items()}


def _history(record: ConfigRecord) -> list[dict[str, Any]]:
    """Return the history, newest first, each entry with the one before it."""
    rows = history_rows(record)
    before = [*(row["digest"] for row in rows), None][1:]
    return [{**row, "before": one} for row, one in zip(rows, before, strict=True)]


def _change(change: ConfigChange) -> dict[str, Any]:
    words = {name: shorten(one, WHY) for name, one in change._asdict().items() if isinstance(one, str)}
    return {**words, "at": change.at if math.isfinite(change.at) and 0 <= change.at < _LATEST else 0.0}


class DoubtReader:
    """Reader of the rules in force that do not fit the tools of living agents; one task reads at a time.

    Other programs wrote both. Only the models of shipped schedulers read a configuration: nothing is imported
    that a record names. Long ones are left to the command. A thread reads and compares them, once for each
    text and set of tools.
    """

    def __init__(self, fleet: AgentDirectory) -> None:
        self._fleet = fleet
        self._living = LivingTools()
        self._found: dict[str, Mapping[str, Any]] = {}
        """Results of the comparison with the last known tools, by digest."""

    async def look(self) -> None:
        """Read the present tools of living agents; none if they cannot be read."""
        try:
            living = await self._fleet.tools()
        except TransportError:
            living = LivingTools()
        if living != self._living or len(self._found) > MAX_KEPT:
            self._living = living
            self._found.clear()

    async def read(self, name: str, record: ConfigRecord, store: ConfigStore) -> Mapping[str, Any]:
        """Return the doubts about a scheduler's configuration; raise TransportError."""
        config = record.config(record.active)
        spec = (config.spec or name) if config is not None else ""
        if config is None or spec not in CONFIGS or config.size > MAX_DOUBTED or not self._living.processes:
            return {"doubts": [], "compared": False}
        if config.digest not in self._found:
            text = await store.text(config.digest)
            self._found[config.digest] = await asyncio.to_thread(_compare, spec, text, self._living)
        return self._found[config.digest]


def _compare(spec: str, text: bytes, living: LivingTools) -> Mapping[str, Any]:
    try:
        document: Document = parse_document(text[:MAX_DOUBTED], "line")
        lines = compare(spec, document, living).lines
    except ConfigError:
        return {"doubts": [], "compared": False}  # replicas refuse it, and say why
    return {"doubts": [shorten(line, WHY) for line in lines[:MAX_DOUBTS]], "compared": True}
