"""Serve a replica of each scheduler in one process: join, say that it is ready, reload on SIGHUP, drain.

A reload reads all configurations again, checks them, and hands the new schedulers to their workers. If one is
wrong, its errors are listed by field, and the old ones stay: no file can end a running replica.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import anyio
import anyio.to_thread
from toolgate_bus.commands.markup import escape_lines
from toolgate_bus.commands.options import err_console
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError, ToolgateError, TransportError
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.server.settings import BusSettings, redact_url
from toolgate_bus.state.config_store import ConfigStore
from toolgate_bus.state.notifications import RedisNotices
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.state.shared_state import SharedState
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_bus.transport.redis.answering.scheduler_host import SchedulerHost

from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.worker.bus_address import bus_url, no_bus
from toolgate_schedulers.worker.config_follower import ConfigFollower, LoadText, PushedConfig, find_pushed
from toolgate_schedulers.worker.loading import authors_words
from toolgate_schedulers.worker.question_cache import QuestionCache
from toolgate_schedulers.worker.reload_signal import ReloadSignal, hangups
from toolgate_schedulers.worker.replica import name_replica
from toolgate_schedulers.worker.trial import TrialTally
from toolgate_schedulers.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A scheduler whose configuration was checked, and the options to run it with."""

    scheduler: Scheduler
    load: Callable[[], Scheduler] | None
    """Reads its configuration again; None if it has none. Raises ConfigError that says what to correct."""
    keyring: Keyring | None
    concurrency: int
    as_json: bool
    metrics: str | None = None
    """URL at which its metrics are served; None if they are not."""
    load_text: LoadText | None = None
    """Makes the scheduler from a pushed configuration; None if it follows none."""
    load_own: Callable[[], Scheduler] | None = None
    """Makes the scheduler again from its own options and file."""


_log = get_logger("toolgate.worker")


class ReloadError(ConfigError):
    """Raised if a configuration is wrong; then this process takes none of them."""

    def __init__(self, wrong: Sequence[tuple[WorkerSpec, str]]) -> None:
        super().__init__("\n".join(why for _, why in wrong))
        self.wrong = wrong


class _Replica:
    """One scheduler in this process, with its bus, worker and follower."""

    def __init__(
        self,
        job: WorkerSpec,
        settings: BusSettings,
        host: SchedulerHost,
        replica: str,
        questions: QuestionCache | None,
        found: PushedConfig,
    ) -> None:
        self.job, self._settings, self._found, self._host = job, settings, found, host
        self.bus = RedisSchedulerBus(host.url, host.namespace, keyring=job.keyring, host=host)
        self.follower: ConfigFollower | None = None
        self.worker = Worker(
            found.scheduler or job.scheduler,
            self.bus,
            shared=self.open_shared_state(),
            keyring=job.keyring,
            namespace=settings.namespace,
            concurrency=job.concurrency,
            replica=replica,
            questions=questions,
        )

    def open_shared_state(self, *, shadow: bool = False) -> SharedState:
        """Open the shared state for one tenure. A shadow has its own, apart from the live one."""
        settings, shadow = self._settings, shadow or self.job.scheduler.shadow
        return connect_shared_state(bus_url(settings), self.bus.commands, settings.namespace, shadow=shadow)

    async def start(self) -> Member:
        """Join the bus. Raises ToolgateError that names the scheduler."""
        try:
            return await self.worker.start(self._prepare)
        except ConfigError:
            raise
        except TransportError as error:
            raise no_bus(self._settings, error) from None
        except ToolgateError:
            raise
        except Exception as error:
            said = authors_words(error)
            raise ToolgateError(f"{self.job.scheduler.name} could not start: {said}") from error

    async def follow(self) -> None:
        """Take up pushed configurations until cancelled."""
        if self.follower is not None:
            await self.follower.run()

    async def _prepare(self) -> None:
        """Set up a rollout in progress before the first question, as some sessions may be on trial."""
        if self.job.load_text is None:
            return
        commands, space, name = self.bus.commands, self._settings.namespace, self.job.scheduler.name
        store = ConfigStore(commands, space, name, self.job.keyring)
        notices = RedisNotices(commands, commands, space)
        replica = self.worker.replica
        self.follower = ConfigFollower(
            store, notices, replica, name, self, self.job.load_text, self._found, self._host
        )
        try:
            await self.follower.look()
        except TransportError as error:
            # Joining says what is wrong with a server that is away.
            _log.info("configurations on the bus could not be looked at", why=str(error))

    async def take(self, scheduler: Scheduler | None, name: str) -> None:
        """Rule by the pushed scheduler from now on, or by its own file if None. Raises what prevents it."""
        load = self.job.load_own
        if scheduler is None:
            scheduler = await anyio.to_thread.run_sync(load) if load else self.job.scheduler
        member = await self.worker.swap(scheduler, self.open_shared_state())
        _tell_taken(member, name, self.job.as_json)

    async def try_beside(self, scheduler: Scheduler, rollout: str, share: int, tally: TrialTally) -> None:
        """Put a new scheduler on trial beside the one in force."""
        shadow = not share
        tried = replace(scheduler, shadow=True) if shadow else scheduler
        shared = self.open_shared_state(shadow=shadow)
        await self.worker.try_beside(tried, shared, rollout, share, tally)

    async def end_trial(self) -> None:
        """Let the scheduler in force rule alone."""
        if self.worker.end_trial():
            await self.worker.announce()

    async def reload(self, scheduler: Scheduler) -> None:
        """Let another scheduler decide, or report why it cannot."""
        if self.follower is not None and self.follower.digest:
            notice(
                f"{scheduler.name}: its file is valid, but the pushed configuration stays in force. "
                f"To rule by the file: toolgate scheduler undo {scheduler.name} --to file"
            )
            return
        try:
            member = await self.worker.swap(scheduler, self.open_shared_state())
        except ConfigError as error:
            tell_refused(str(error), self.job)
        except Exception as error:  # noqa: BLE001 - the author's `start`: whatever it raises, the old one goes on
            tell_refused(f"it could not start: {authors_words(error)}", self.job)
        else:
            _tell_reloaded(member, self.job.as_json)


async def serve(jobs: Sequence[WorkerSpec], settings: BusSettings) -> None:
    """Run a replica of each job until cancelled or the terminal is gone; then finish what has begun."""
    with hangups() as asked:
        host, name = SchedulerHost(bus_url(settings), settings.namespace), name_replica()
        questions = QuestionCache() if len(jobs) > 1 else None
        if questions is not None:
            host.on_batch = questions.clear
        found = [await _find_pushed(job, host, settings) for job in jobs]
        replicas = [
            _Replica(job, settings, host, name, questions, one) for job, one in zip(jobs, found, strict=True)
        ]
        async with AsyncExitStack() as undo:
            for one in replicas:
                undo.push_async_callback(_close_shielded, one.bus.aclose)
            members = []
            for one in replicas:
                members.append(await one.start())
                undo.push_async_callback(_close_shielded, one.worker.drain)
            undo.pop_all()
        try:
            for job, member, pushed in zip(jobs, members, found, strict=True):
                _tell_ready(member, redact_url(bus_url(settings)), job, pushed)
            async with anyio.create_task_group() as following:
                for each in replicas:
                    following.start_soon(each.follow)
                await _reload_when_asked(asked, replicas)
                following.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            pass  # cancelling is how `serve` is told to finish
        finally:
            await _close_shielded(lambda: asyncio.gather(*(one.worker.drain() for one in replicas)))


async def _find_pushed(job: WorkerSpec, host: SchedulerHost, settings: BusSettings) -> PushedConfig:
    if job.load_text is None:
        return PushedConfig()
    store = ConfigStore(host.commands, settings.namespace, job.scheduler.name, job.keyring)
    try:
        return await find_pushed(store, job.load_text)
    except TransportError:
        return PushedConfig()  # joining reports what is wrong


async def _reload_when_asked(asked: ReloadSignal, replicas: Sequence[_Replica]) -> None:
    jobs = [one.job for one in replicas]
    async for _ in asked.each():
        try:
            # In a thread: a long file takes time to read, and leases of open questions must be renewed.
            schedulers = await anyio.to_thread.run_sync(read_again, jobs)
        except ReloadError as error:
            tell_all_refused(error)
            continue
        for one, scheduler in zip(replicas, schedulers, strict=True):
            if scheduler is not None:
                await one.reload(scheduler)


def read_again(jobs: Sequence[WorkerSpec]) -> list[Scheduler | None]:
    """Read all configurations again. Return the schedulers, None for those without. Raises ReloadError."""
    found: list[Scheduler | None] = []
    wrong: list[tuple[WorkerSpec, str]] = []
    for job in jobs:
        try:
            found.append(None if job.load is None else job.load())
        except ConfigError as error:
            wrong.append((job, str(error)))
        except Exception as error:  # noqa: BLE001 - the author's module: whatever it raises, the old one goes on
            wrong.append((job, f"it could not be created: {authors_words(error)}"))
    if not wrong and all(job.load is None for job in jobs):
        wrong = [(jobs[0], "It was started without --config: there is nothing to read again")]
    if wrong:
        raise ReloadError(wrong)
    return found


async def _close_shielded(close: Callable[[], Any]) -> None:
    with anyio.CancelScope(shield=True):
        await close()


# ---------------------------------------------------------------------- notices


def tell_all_refused(error: ReloadError) -> None:
    """Report each wrong configuration, and that its old one stays. The others stay as well."""
    for job, why in error.wrong:
        tell_refused(why, job)


def tell_refused(why: str, job: WorkerSpec) -> None:
    """Report that the old configuration stays, and why."""
    if job.as_json:
        print_json({"event": "not_reloaded", "name": job.scheduler.name, "error": why})
    notice(f"{job.scheduler.name} was not reloaded, its old configuration stays. {why}")


def _tell_reloaded(member: Member, as_json: bool) -> None:
    if as_json:
        print_json({"event": "reloaded", "name": member.name, "replica": member.replica, "pid": member.pid})
        return
    notice(f"{member.name} (replica {member.replica}, pid {member.pid}) was reloaded: {_what(member)}")


def _tell_taken(member: Member, name: str, as_json: bool) -> None:
    if as_json:
        told = {"name": member.name, "replica": member.replica, "pid": member.pid, "config": name}
        print_json({"event": "reloaded", **told})
        return
    notice(f"{member.name} (replica {member.replica}, pid {member.pid}) rules by {name} from now on")


def _tell_ready(member: Member, url: str, job: WorkerSpec, found: PushedConfig) -> None:
    pushed = found.scheduler.revision.text if found.scheduler else ""
    if found.refused:
        notice(
            f"{member.name}: the configuration on the bus was refused, so its own file rules. {found.refused}"
        )
    if pushed:
        notice(
            f"{member.name} does not rule by its own file: {pushed} was pushed, and stays in force in every "
            f"replica. To rule by the file: toolgate scheduler undo {member.name} --to file"
        )
    if job.as_json:
        fields = {"name": member.name, "replica": member.replica, "pid": member.pid, "redis": url}
        print_json(
            {"event": "ready", **fields, "tools": member.tools}
            | ({"metrics": job.metrics} if job.metrics else {})
            | ({"config": pushed} if pushed else {})
        )
        return
    measured = f"; metrics at {job.metrics}" if job.metrics else ""
    notice(f"{member.name} (replica {member.replica}, pid {member.pid}) {_what(member)} at {url}{measured}")


def _what(member: Member) -> str:
    return f"{'watches (shadow)' if member.shadow else 'rules on'} {' '.join(member.tools)}"


def notice(words: str) -> None:
    """Print a line for people on stderr."""
    err_console.print(escape_lines(words), soft_wrap=True)
