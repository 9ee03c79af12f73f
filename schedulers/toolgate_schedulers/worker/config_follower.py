"""Follow what operators push for one scheduler: take it up in this replica, lead a rollout in its turn.

A pushed configuration wins over the replica's own file, until `undo --to file`. One that cannot be taken up
(broken, not signed, wrong, older than one seen before) is reported, and what was in force stays in force. All
this is off the path of decisions: the replica looks once a second, or every two where nothing has changed
for a minute, and more rarely if it is asked nothing either. `worker` changes its scheduler; `rollout_rules`
and `config_record` say what a rollout does next.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import anyio.to_thread
from toolgate_bus.errors import ConfigError, Refusal, TransportError
from toolgate_bus.protocol.revision import Revision
from toolgate_bus.state.changes import ChangeEvent, ConfigChange, tell_change
from toolgate_bus.state.config_record import (
    FILE,
    NO_RECORD,
    ConfigRecord,
    Progress,
    Rollout,
    RolloutStage,
    advance,
    settle,
    stage_of,
)
from toolgate_bus.state.config_store import ConfigsRead, ConfigStore, ReplicaReport
from toolgate_bus.state.notifications import Notices
from toolgate_bus.state.rollout_rules import judge
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.worker.loading import authors_words
from toolgate_schedulers.worker.trial import TrialTally

POLL_S: Final = 1.0
"""Seconds between two looks at the record of configurations."""
QUIET_POLL_S: Final = 2.0
"""The same where no rollout runs, and nothing has changed for `QUIET_S` seconds."""
QUIET_S: Final = 60.0
RARE_POLL_S: Final = 6.0
"""The same while nothing was asked for long."""
RARE_REPORT_S: Final = 4.0
"""The same where something was pushed: a replica's reports must not grow old."""
REPORT_S: Final = 3.0
"""Longest time between two reports of a replica, in seconds."""
_DIGITS: Final = 12
"""Number of characters of a digest in reports and messages."""
LoadText = Callable[[bytes, Revision], Scheduler]
"""Makes a scheduler from a configuration's text. Raises ConfigError."""
_log = get_logger("toolgate.worker")


class PushedConfig(NamedTuple):
    """Configuration that a starting replica found on the bus."""

    scheduler: Scheduler | None = None
    """Scheduler with the pushed configuration; None if its own file rules."""
    digest: str = ""
    number: int = 0
    refused: str = ""


class InboxWatch(Protocol):
    """The inboxes of a replica's process."""

    @property
    def is_watching(self) -> bool:
        """True if nothing was asked for long."""


class FollowedReplica(Protocol):
    """The replica that takes up what is pushed."""

    async def take(self, scheduler: Scheduler | None, name: str) -> None:
        """Let this scheduler rule from now on; None means that of the own file. Raises what prevents it."""

    async def try_beside(self, scheduler: Scheduler, rollout: str, share: int, tally: TrialTally) -> None:
        """Put this scheduler on trial beside the one in force. Raises what prevents it."""

    async def end_trial(self) -> None:
        """Let the scheduler in force rule alone."""


async def find_pushed(store: ConfigStore, load_text: LoadText) -> PushedConfig:
    """Return the configuration in force, for a starting replica. Raises TransportError if the bus is away."""
    try:
        record = (await store.read()).record
        if not record.active:
            return PushedConfig(number=record.number)
        scheduler = await _load(store, record, record.active, load_text)
        return PushedConfig(scheduler, record.active, record.number)
    except Refusal:
        return PushedConfig()  # this user's access rules know of no configurations on the bus
    except ConfigError as error:
        return PushedConfig(refused=str(error))


async def _load(store: ConfigStore, record: ConfigRecord, digest: str, load_text: LoadText) -> Scheduler:
    config = record.config(digest)
    if config is None:
        raise ConfigError(f"configuration {digest[:_DIGITS]} is not in the record on the bus: push it again")
    text = await store.text(digest)
    try:
        return await anyio.to_thread.run_sync(load_text, text, config.revision)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"it could not be created: {authors_words(error)}") from error


class ConfigFollower:
    """Follows, for one replica, the configurations of its scheduler on the bus."""

    def __init__(
        self,
        store: ConfigStore,
        notices: Notices,
        replica: str,
        name: str,
        own: FollowedReplica,
        load_text: LoadText,
        found: PushedConfig,
        inboxes: InboxWatch,
    ) -> None:
        self._inboxes = inboxes
        self._store, self._notices, self._replica, self._name = store, notices, replica, name
        self._own, self._load_text = own, load_text
        self.digest, self._number, self._refused = found.digest, found.number, found.refused
        self._failed: tuple[str, int] | None = None
        self._swept = False
        self._trial: tuple[str, int] | None = None
        self._trial_name = ""
        self._tally = TrialTally()
        self._counted: Rollout | None = None
        self._told = ReplicaReport()
        self._told_at = self._changed_at = float("-inf")
        self._seen = NO_RECORD

    async def run(self) -> None:
        """Look for changes until cancelled."""
        while True:
            try:
                await self.look()
            except Refusal as error:
                _log.info("this user may not follow configurations on the bus", why=str(error))
                return
            except TransportError:
                pass  # the bus is away: what was in force stays in force
            except Exception:  # noqa: BLE001 - following must never end a replica that rules
                _log.exception("configurations on the bus could not be followed", scheduler=self._name)
            is_quiet = self._seen.rollout is None and self._now() - self._changed_at >= QUIET_S
            if is_quiet and self._inboxes.is_watching:
                await asyncio.sleep(RARE_REPORT_S if self._seen.number else RARE_POLL_S)
            else:
                await asyncio.sleep(QUIET_POLL_S if is_quiet else POLL_S)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def look(self) -> None:
        """Take up what has changed, report it, and lead the rollout if it is this replica's turn."""
        try:
            read = await self._store.read()
            if read.record.number < self._number:
                raise ConfigError("the record of configurations on the bus is older than before: push again")
        except Refusal:
            raise
        except ConfigError as error:
            self._refused = str(error)
            await self._report(FILE if not self.digest else self.digest[:_DIGITS])
            return
        record = read.record
        if record != self._seen:
            self._seen, self._changed_at = record, self._now()
        await self._take(record)
        self._number = record.number
        await self._follow_rollout(read)
        if record.number or self._refused:
            await self._report(record.name(self.digest))
        if record.rollout is not None and await self._store.lead(self._replica):
            await self._judge(record.rollout)

    async def _take(self, record: ConfigRecord) -> None:
        if record.active == self.digest:
            self._refused, self._failed = "", None
            return
        if self._failed == (record.active, record.number):
            return
        try:
            scheduler = (
                await _load(self._store, record, record.active, self._load_text) if record.active else None
            )
            await self._own.take(scheduler, record.name(record.active))
        except TransportError:
            raise
        except Exception as error:  # noqa: BLE001 - the author's code: whatever it raises, the old one goes on
            self._refuse(error, record.active, record.number)
        else:
            self.digest, self._refused, self._failed = record.active, "", None

    async def _report(self, revision: str) -> None:
        """Report what this replica rules by: at once after a change, else every `REPORT_S` seconds."""
        stage = self._trial[1] if self._trial else -1
        refuses = self._failed[0][:_DIGITS] if self._failed and self._refused else ""
        told = ReplicaReport(revision, self._trial_name, stage, self._refused, refuses)
        now = self._now()
        if told == self._told and now - self._told_at < REPORT_S:
            return
        if not self._swept:
            await self._store.forget_reports()
            self._swept = True
        await self._store.report(self._replica, told)
        self._told, self._told_at = told, now

    def _refuse(self, error: Exception, digest: str, number: int) -> None:
        why = str(error) if isinstance(error, ConfigError) else f"it could not start: {authors_words(error)}"
        self._refused, self._failed = why, (digest, number)
        _log.error(
            "a pushed configuration was refused", scheduler=self._name, digest=digest[:_DIGITS], why=why
        )

    # ------------------------------------------------------------------ rollouts

    async def _follow_rollout(self, read: ConfigsRead) -> None:
        record, found = read.record, stage_of(read.record, read.progress)
        wanted = None if record.rollout is None or found is None else (record.rollout.id, found[0])
        if wanted != self._trial:
            await self._flush()
            self._tally.close()
            if wanted is None:
                await self._own.end_trial()
                self._trial, self._trial_name, self._counted = None, "", None
            elif record.rollout is not None and found is not None:
                await self._begin(record, record.rollout, *found)
        await self._flush()

    async def _begin(self, record: ConfigRecord, rollout: Rollout, at: int, stage: RolloutStage) -> None:
        if self._failed == (rollout.to, record.number):
            return
        tally = TrialTally()
        try:
            scheduler = await _load(self._store, record, rollout.to, self._load_text)
            await self._own.try_beside(scheduler, rollout.id, stage.share, tally)
        except TransportError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(error, rollout.to, record.number)
        else:
            self._trial, self._tally, self._counted = (rollout.id, at), tally, rollout
            self._trial_name = record.name(rollout.to)

    async def _flush(self) -> None:
        if self._counted is not None and self._trial is not None:
            await self._store.count(self._counted.id, self._trial[1], self._tally.take())

    async def _judge(self, rollout: Rollout) -> None:
        """End or advance the rollout if that is due."""
        now, reports = await self._store.now(), await self._store.reports()
        read = await self._store.read()
        found = stage_of(read.record, read.progress)
        if found is None or read.record.rollout is None or read.record.rollout.id != rollout.id:
            return
        at, stage = found
        counts = await self._store.counts(rollout, at)
        since = read.progress.since if read.progress and read.progress.rollout == rollout.id else rollout.at
        new = rollout.to[:_DIGITS]
        refusers = [f"{replica}: {one.refused}" for replica, one in reports.items() if one.refuses == new]
        why = f"refused by {refusers[0]}" if refusers else judge(rollout.undo_if, counts, rollout.min_sample)
        sampled = not rollout.undo_if or max(counts.asked, counts.compared) >= rollout.min_sample
        due = stage.seconds > 0 and now - since >= stage.seconds and sampled
        if why is None and not due:
            return

        def change(record: ConfigRecord, progress: Progress | None) -> Progress | None:
            there = stage_of(record, progress)
            if there is None or there[0] != at or record.rollout is None or record.rollout.id != rollout.id:
                return None  # another replica was faster
            if why is not None:
                return Progress(rollout.id, at, now, "undone", why)
            return advance(record, progress, now)

        changed = await self._store.change_progress(change)
        if changed is not None and changed.progress is not None:
            await tell_change(self._notices, change_of(self._name, changed.record, changed.progress, now))


def change_of(
    scheduler: str, record: ConfigRecord, progress: Progress, now: float, author: str = "toolgate"
) -> ConfigChange:
    """Return the notice about a rollout that has moved."""
    events: dict[str, ChangeEvent] = {"done": "rollout:done", "": "rollout:advanced"}
    to = record.rollout.to if record.rollout else record.active
    label = found.label if (found := record.config(to)) else ""
    now_in_force = settle(record, progress).active
    at = stage_of(record, progress)
    why = progress.why or (at[1].text if at else "")
    event = events.get(progress.ending, "rollout:undone")
    was = record.active if event != "rollout:undone" else to
    shown = now_in_force if event == "rollout:undone" else to
    return ConfigChange(event, scheduler, record.name(shown), record.name(was), label, author, why, now)
