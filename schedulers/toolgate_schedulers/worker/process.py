"""A replica of each of its schedulers as a process serves them: joined, ready, reloaded on SIGHUP, drained.

A reload reads all configurations again, checks them, and hands the new schedulers to their workers. What is
wrong is said, by field, and the old ones go on: nothing that a file holds ends a running replica.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from toolgate_bus.commands.markup import escape_lines
from toolgate_bus.commands.options import err_console
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError, ToolgateError, TransportError
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.state.shared_state import SharedState
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.scheduler import RedisSchedulerBus
from toolgate_bus.transport.redis.scheduler_host import SchedulerHost

from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.worker.bus_address import bus_url, no_bus, redact_url
from toolgate_schedulers.worker.loading import authors_words
from toolgate_schedulers.worker.question_cache import QuestionCache
from toolgate_schedulers.worker.reload_signal import Hangups, hangups
from toolgate_schedulers.worker.replica import name_replica
from toolgate_schedulers.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A scheduler that is known to be right, and how it is to be run."""

    scheduler: Scheduler
    load: Callable[[], Scheduler] | None
    """Reads its configuration again, where it has one; raises ConfigError that says what to mend."""
    keyring: Keyring | None
    concurrency: int
    as_json: bool
    metrics: str | None = None
    """Where its metrics are served, if they are."""


class ReloadError(ConfigError):
    """Configurations that cannot be taken; none of the process is."""

    def __init__(self, wrong: Sequence[tuple[WorkerSpec, str]]) -> None:
        super().__init__("\n".join(why for _, why in wrong))
        self.wrong = wrong


class _Replica:
    """One scheduler in this process, and what it works with."""

    def __init__(
        self,
        job: WorkerSpec,
        settings: BusSettings,
        host: SchedulerHost,
        replica: str,
        questions: QuestionCache | None,
    ) -> None:
        self.job, self._settings = job, settings
        self.bus = RedisSchedulerBus(host.url, host.namespace, keyring=job.keyring, host=host)
        self.worker = Worker(
            job.scheduler,
            self.bus,
            shared=self.open_shared_state(),
            keyring=job.keyring,
            namespace=settings.namespace,
            concurrency=job.concurrency,
            replica=replica,
            questions=questions,
        )

    def open_shared_state(self) -> SharedState:
        """What it shares, for one tenure."""
        settings, shadow = self._settings, self.job.scheduler.shadow
        return connect_shared_state(bus_url(settings), self.bus.commands, settings.namespace, shadow=shadow)

    async def start(self) -> Member:
        """Join; raises ToolgateError that names the scheduler."""
        try:
            return await self.worker.start()
        except ConfigError:
            raise
        except TransportError as error:
            raise no_bus(self._settings, error) from None
        except ToolgateError:
            raise
        except Exception as error:
            said = authors_words(error)
            raise ToolgateError(f"{self.job.scheduler.name} could not start: {said}") from error

    async def swap(self, scheduler: Scheduler) -> None:
        """Have another scheduler decide, or say why not."""
        try:
            member = await self.worker.swap(scheduler, self.open_shared_state())
        except ConfigError as error:
            tell_refused(str(error), self.job)
        except Exception as error:  # noqa: BLE001 - the author's `start`: whatever it raises, the old one goes on
            tell_refused(f"it could not start: {authors_words(error)}", self.job)
        else:
            _tell_reloaded(member, self.job.as_json)


async def serve(jobs: Sequence[WorkerSpec], settings: BusSettings) -> None:
    """Run a replica of each until cancelled, or the terminal is gone; then finish what is in hand."""
    with hangups() as asked:
        host, name = SchedulerHost(bus_url(settings), settings.namespace), name_replica()
        questions = QuestionCache() if len(jobs) > 1 else None
        if questions is not None:
            host.on_batch = questions.clear
        replicas = [_Replica(job, settings, host, name, questions) for job in jobs]
        async with AsyncExitStack() as undo:
            for one in replicas:
                undo.push_async_callback(_close_shielded, one.bus.aclose)
            members = []
            for one in replicas:
                members.append(await one.start())
                undo.push_async_callback(_close_shielded, one.worker.drain)
            undo.pop_all()
        try:
            for job, member in zip(jobs, members, strict=True):
                _tell_ready(member, redact_url(bus_url(settings)), job)
            await _reload_when_asked(asked, replicas)
        except anyio.get_cancelled_exc_class():
            pass  # being cancelled is how it is told to finish
        finally:
            await _close_shielded(lambda: asyncio.gather(*(one.worker.drain() for one in replicas)))


async def _reload_when_asked(asked: Hangups, replicas: Sequence[_Replica]) -> None:
    jobs = [one.job for one in replicas]
    async for _ in asked.each():
        try:
            # In a thread: a long file takes its time to read, and what is being decided must be renewed.
            schedulers = await anyio.to_thread.run_sync(read_again, jobs)
        except ReloadError as error:
            tell_all_refused(error)
            continue
        for one, scheduler in zip(replicas, schedulers, strict=True):
            if scheduler is not None:
                await one.swap(scheduler)


def read_again(jobs: Sequence[WorkerSpec]) -> list[Scheduler | None]:
    """The schedulers by their configurations as they are now, None for who has none; raises ReloadError."""
    found: list[Scheduler | None] = []
    wrong: list[tuple[WorkerSpec, str]] = []
    for job in jobs:
        try:
            found.append(None if job.load is None else job.load())
        except ConfigError as error:
            wrong.append((job, str(error)))
        except Exception as error:  # noqa: BLE001 - the author's module: whatever it raises, the old one goes on
            wrong.append((job, f"it could not be made: {authors_words(error)}"))
    if not wrong and all(job.load is None for job in jobs):
        wrong = [(jobs[0], "It was started without --config: there is nothing to read again")]
    if wrong:
        raise ReloadError(wrong)
    return found


async def _close_shielded(close: Callable[[], Any]) -> None:
    with anyio.CancelScope(shield=True):
        await close()


# ---------------------------------------------------------------------- what it says


def tell_all_refused(error: ReloadError) -> None:
    """Say of each wrong configuration that the old one stays, and why; the others stay as well."""
    for job, why in error.wrong:
        tell_refused(why, job)


def tell_refused(why: str, job: WorkerSpec) -> None:
    """Say that the old configuration stays, and why."""
    if job.as_json:
        print_json({"event": "not_reloaded", "name": job.scheduler.name, "error": why})
    notice(f"{job.scheduler.name} was not reloaded, its old configuration stays. {why}")


def _tell_reloaded(member: Member, as_json: bool) -> None:
    if as_json:
        print_json({"event": "reloaded", "name": member.name, "replica": member.replica, "pid": member.pid})
        return
    notice(f"{member.name} (replica {member.replica}, pid {member.pid}) was reloaded: {_what(member)}")


def _tell_ready(member: Member, url: str, job: WorkerSpec) -> None:
    if job.as_json:
        fields = {"name": member.name, "replica": member.replica, "pid": member.pid, "redis": url}
        print_json(
            {"event": "ready", **fields, "tools": member.tools}
            | ({"metrics": job.metrics} if job.metrics else {})
        )
        return
    measured = f"; metrics at {job.metrics}" if job.metrics else ""
    notice(f"{member.name} (replica {member.replica}, pid {member.pid}) {_what(member)} at {url}{measured}")


def _what(member: Member) -> str:
    return f"{'watches (shadow)' if member.shadow else 'rules on'} {' '.join(member.tools)}"


def notice(words: str) -> None:
    """A line for people, on stderr."""
    err_console.print(escape_lines(words), soft_wrap=True)
