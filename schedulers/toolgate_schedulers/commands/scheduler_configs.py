"""Do the work of `toolgate scheduler push`, `history`, `diff`, `undo`, `rollout` and `status` on the bus.

The scheduler's own model checks a configuration here before it is stored. The replicas decide when they take
it up (`worker.config_follower`), and `config_record` decides which changes are allowed.
"""

import asyncio
import difflib
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from toolgate_bus.commands.options import find_user, join_bus, parse_span, run_async
from toolgate_bus.config.document import Document, parse_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.facts.observed_calls import ObservedCalls
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol.names import NAME_PATTERN, explain_reserved
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.server.settings import read_keys
from toolgate_bus.state.changes import ChangeEvent, ConfigChange, tell_change
from toolgate_bus.state.config_record import (
    FILE,
    MAX_CONFIG,
    ConfigRecord,
    Progress,
    Rollout,
    RolloutStage,
    StoredConfig,
    advance,
    begin,
    digest_of,
    push,
    stage_of,
    undo,
)
from toolgate_bus.state.config_store import SEEN_S, ConfigsRead, ConfigStore, ReplicaReport
from toolgate_bus.state.notifications import RedisNotices
from toolgate_bus.state.rollout_rules import TrialCounts, parse_condition
from toolgate_bus.telemetry.printable import visible
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster

from toolgate_schedulers.commands.rule_check import RuleCheck, compare, read_living
from toolgate_schedulers.shipped.rule_listing import CONFIGS
from toolgate_schedulers.worker.bus_address import bus_url
from toolgate_schedulers.worker.config_follower import change_of
from toolgate_schedulers.worker.loading import load

Result = TypeVar("Result")


class CheckedConfig(NamedTuple):
    """Configuration that its scheduler accepts."""

    text: bytes
    document: Document
    tools: tuple[str, ...]
    """Globs of tools of the scheduler that was made from it."""


class ConfigCommands:
    """Configurations of one scheduler, as an operator's command sees and changes them."""

    def __init__(
        self,
        commands: RedisCommands,
        namespace: str,
        name: str,
        keyring: Keyring | None,
        by: str | None = None,
    ) -> None:
        """Prepare; `by` is the person who changes them, by default the user of this process."""
        self.name, self._commands, self._namespace = name, commands, namespace
        self._by = by or find_user()
        self.store = ConfigStore(commands, namespace, name, keyring)
        self._notices = RedisNotices(commands, commands, namespace)

    async def push(
        self, text: bytes, label: str, spec: str, *, stage: bool, instead_of: str | None = None
    ) -> StoredConfig:
        """Store a configuration, and put it in force unless it is only staged.

        With `instead_of`, raise ConfigError if another configuration than that digest is in force.
        """
        now, digest = await self.store.now(), digest_of(text)
        new = StoredConfig(digest, label, self._by, now, len(text), spec[:128])

        def change(record: ConfigRecord) -> ConfigRecord:
            if instead_of not in (None, record.active):
                raise ConfigError(f"{self.name}: another configuration was pushed meanwhile; try again")
            return push(record, new, stage=stage)

        await self.store.put_text(digest, text)
        was, record = await self.store.change(change, anew=True)
        if record.active != was.active:
            await self._tell("config:pushed", was, record)
        return record.config(digest) or new

    async def count_calls(self, calls: ObservedCalls) -> None:
        """Count calls of the record, as far as the server has it."""
        async for fact in FactsReader(self._commands, self._namespace).read_stored():
            calls.take(fact)
        calls.finish()

    async def compare(self, checked: CheckedConfig, spec: str, *, strict: bool) -> RuleCheck:
        """Compare a configuration with living agents; if `strict`, raise ConfigError for certain doubts."""
        living = await read_living(self._commands, self._namespace)
        found = compare(spec, checked.document, living, checked.tools)
        if strict:
            found.refuse()
        return found

    async def compare_stored(self, label: str, *, strict: bool) -> RuleCheck:
        """Compare a pushed configuration with living agents; only models of shipped schedulers are loaded for
        it."""
        record = (await self.store.read()).record
        digest = record.find(label)
        config = record.config(digest)
        spec = (config.spec or self.name) if config is not None else ""
        if spec not in CONFIGS:
            return RuleCheck(missing=f"{visible(label)} is not for a shipped scheduler")
        living = await read_living(self._commands, self._namespace)
        try:
            found = compare(spec, parse_document(await self.store.text(digest), label), living)
        except ConfigError as error:  # the replicas refuse it, and say so
            return RuleCheck(missing=str(error).partition("\n")[0])
        if strict:
            found.refuse()
        return found

    async def undo(self, to: str | None) -> ConfigRecord:
        """Put the previous configuration in force, or the named one."""
        was, record = await self.store.change(
            lambda record: undo(record, None if to is None else record.find(to))
        )
        await self._tell("config:undone", was, record)
        return record

    async def begin(self, to: str, rollout: Rollout) -> ConfigRecord:
        """Start a rollout."""
        rollout = rollout._replace(at=await self.store.now())
        was, record = await self.store.change(
            lambda record: begin(record, rollout._replace(to=record.find(to)))
        )
        new = record.rollout.to if record.rollout else ""
        await self._tell("rollout:started", was, record._replace(active=new))
        return record

    async def move(self, *, cancel: bool) -> ConfigsRead:
        """Cancel the rollout, or start its next stage now."""
        now, who = await self.store.now(), self._by

        def change(record: ConfigRecord, progress: Progress | None) -> Progress:
            found = stage_of(record, progress)
            if found is None or record.rollout is None:
                raise ConfigError(f"no rollout of {self.name} is under way")
            if cancel:
                return Progress(record.rollout.id, found[0], now, "cancelled", f"cancelled by {who}")
            return advance(record, progress, now)

        changed = await self.store.change_progress(change)
        if changed is None or changed.progress is None:
            raise ConfigError(f"no rollout of {self.name} is under way")
        await tell_change(self._notices, change_of(self.name, changed.record, changed.progress, now, who))
        return changed

    async def status(self) -> "Status":
        """Return the revisions of all replicas, and the state of the rollout."""
        read = await self.store.read()
        members = (await Roster(self._commands, self._namespace).read()).members
        own = [one for one in members if one.name == self.name]
        found = stage_of(read.record, read.progress)
        counts = TrialCounts()
        if found is not None and read.record.rollout is not None:
            counts = await self.store.counts(read.record.rollout, found[0])
        return Status(self.name, read, own, await self.store.reports(), counts, await self.store.now())

    async def _tell(self, event: ChangeEvent, was: ConfigRecord, now: ConfigRecord) -> None:
        config = now.config(now.active)
        author, label = self._by, config.label if config else ""
        names = now.name(now.active), was.name(was.active)
        at = await self.store.now()
        await tell_change(self._notices, ConfigChange(event, self.name, *names, label, author, "", at))


@dataclass(frozen=True, slots=True)
class Status:
    """Data for `toolgate scheduler status NAME`."""

    name: str
    read: ConfigsRead
    members: Sequence[Member]
    reports: dict[str, ReplicaReport]
    counts: TrialCounts
    now: float

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        record, found = self.read.record, stage_of(self.read.record, self.read.progress)
        told: dict[str, Any] = {"scheduler": self.name, "in_force": record.name(record.active)}
        told["replicas"] = [self._replica(one) for one in self.members]
        if record.rollout is not None and found is not None:
            at, stage = found
            progress = self.read.progress
            mine = progress is not None and progress.rollout == record.rollout.id
            since = progress.since if progress is not None and mine else record.rollout.at
            told["rollout"] = {
                "to": record.name(record.rollout.to),
                "stage": stage.text,
                "number": at + 1,
                "stages": [one.text for one in record.rollout.stages],
                "share": stage.share,
                "since": since,
                "seconds": round(self.now - since, 1),
                "of": stage.seconds,
                "undo_if": record.rollout.undo_if,
                **self.counts._asdict(),
            }
        elif self.read.progress is not None and self.read.progress.ending:
            told["last_rollout"] = {"ending": self.read.progress.ending, "why": self.read.progress.why}
        return told

    def _replica(self, member: Member) -> dict[str, Any]:
        report = self.reports.get(member.replica)
        if report is None:
            # Replicas report once something was pushed. Until then, and just after it, nothing is known.
            record = self.read.record
            newest = max((one.at for one in record.configs), default=self.now)
            follows = False if record.number and self.now - newest > SEEN_S else None
            return {"replica": member.replica, "revision": member.revision.text, "follows": follows}
        told = {"replica": member.replica, "revision": report.revision, "follows": True}
        told |= {"trial": report.trial} if report.trial else {}
        return told | ({"refused": report.refused} if report.refused else {})


def at_desk(
    name: str, redis: str | None, namespace: str, keys: Path | None,
    work: Callable[[ConfigCommands], Awaitable[Result]],
) -> Result:  # fmt: skip
    """Do some work at a scheduler's desk; raise ToolgateError."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise ConfigError(f"{name}: is no scheduler's name")
    if why := explain_reserved(name):
        raise ConfigError(f"{name}: is no scheduler's name: {why}")
    with join_bus(redis, namespace, keys) as settings:
        keyring = Keyring(read_keys(settings.keys), settings.namespace) if settings.keys else None
        if keyring is not None and not keyring.knows(name):
            raise ConfigError(f"keys: {settings.keys} has no key for {name}: add `{name}: <hex>`")

        async def main() -> Result:
            async with aclosing(RedisCommands(bus_url(settings), "toolgate-configs", connections=1)) as own:
                return await work(ConfigCommands(own, settings.namespace, name, keyring))

        return run_async(main)


def read_checked(path: Path, spec: str, name: str) -> CheckedConfig:
    """Read a configuration and check that this scheduler accepts it; raise ConfigError, by field and line."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CONFIG + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    digest_of(text)
    document = parse_document(text, str(path))
    return CheckedConfig(text, document, load(spec, name=name, config=document).tools)


def plan_rollout(
    shadow: str | None, shares: Sequence[int], step: str, undo_if: str, min_sample: int
) -> Rollout:
    """Make a rollout from the command's options; raise ConfigError for wrong ones."""
    parse_condition(undo_if)
    stages = [RolloutStage(0, parse_span(shadow, "--shadow"))] if shadow is not None else []
    stages += [RolloutStage(share, parse_span(step, "--step")) for share in shares]
    if not stages:
        raise ConfigError(
            "give --shadow, --share or both; to put it in force at once, use `push` or `undo --to`"
        )
    return Rollout(secrets.token_hex(8), "", tuple(stages), undo_if, min_sample, find_user())


async def diff_texts(desk: ConfigCommands, one: str, other: str, most: int | None = None) -> list[str]:
    """Return the difference as a unified diff; raise ConfigError, also for more than `most` lines."""
    record = (await desk.store.read()).record
    names = [record.name(record.find(word)) for word in (one, other)]
    if FILE in names:
        raise ConfigError("file: is each replica's own file: name two pushed configurations")
    digests = [record.find(word) for word in (one, other)]
    texts = [(await desk.store.text(digest)).decode("utf-8", "replace").splitlines() for digest in digests]
    if most is not None and max(map(len, texts)) > most:
        raise ConfigError(f"more than {most} lines: use `toolgate scheduler diff {desk.name} {one} {other}`")
    return await asyncio.to_thread(_compare, texts[0], texts[1], names[0], names[1])


def _compare(one: list[str], other: list[str], name: str, other_name: str) -> list[str]:
    return list(difflib.unified_diff(one, other, name, other_name, lineterm=""))


def history_rows(record: ConfigRecord) -> list[dict[str, Any]]:
    """Return the pushed configurations, newest first."""
    rows = []
    for one in reversed(record.configs):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(one.at))
        state = "in force" if one.digest == record.active else ""
        if record.rollout is not None and record.rollout.to == one.digest:
            state = "rollout"
        rows.append(
            {
                "revision": one.revision.text, "state": state, "author": one.author, "at": at,
                "bytes": one.size, "spec": one.spec, "digest": one.digest,
            }
        )  # fmt: skip
    return rows
