"""One replica as a process serves it: joined, said to be ready, reloaded on SIGHUP, drained at the end.

A reload reads the configuration again, checks it, and hands the new scheduler to the worker. What is
wrong is said, by field, and the old one goes on: nothing that a file holds ends a running replica.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from toolgate_bus.commands.options import err_console
from toolgate_bus.commands.terminal import escape_lines, print_json
from toolgate_bus.errors import ConfigError, ToolgateError, TransportError
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.state.shared_state import SharedState
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.scheduler import RedisSchedulerBus

from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.worker.bus_address import bus_url, no_bus, redact_url
from toolgate_schedulers.worker.loading import authors_words
from toolgate_schedulers.worker.reload_signal import Hangups, hangups
from toolgate_schedulers.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A scheduler that is known to be right, and how it is to be run."""

    scheduler: Scheduler
    load: Callable[[], Scheduler]
    """Reads its configuration again; raises ConfigError that says what to mend."""
    keyring: Keyring | None
    concurrency: int
    as_json: bool
    metrics: str | None = None
    """Where its metrics are served, if they are."""


async def serve(job: WorkerSpec, settings: BusSettings) -> None:
    """Run one replica until cancelled, or its terminal is gone; then finish what is in hand."""
    with hangups() as asked:
        bus = RedisSchedulerBus(bus_url(settings), settings.namespace, keyring=job.keyring)

        def open_shared_state() -> SharedState:
            return connect_shared_state(
                bus_url(settings), bus.commands, settings.namespace, shadow=job.scheduler.shadow
            )

        worker = Worker(
            job.scheduler,
            bus,
            shared=open_shared_state(),
            keyring=job.keyring,
            namespace=settings.namespace,
            concurrency=job.concurrency,
        )
        async with AsyncExitStack() as undo:
            undo.push_async_callback(_close_shielded, bus.aclose)
            member = await _start_worker(worker, job, settings)
            undo.pop_all()
        try:
            _tell_ready(member, redact_url(bus_url(settings)), job)
            await _reload_when_asked(asked, worker, job, member, open_shared_state)
        except anyio.get_cancelled_exc_class():
            pass  # being cancelled is how it is told to finish
        finally:
            await _close_shielded(worker.drain)


async def _start_worker(worker: Worker, job: WorkerSpec, settings: BusSettings) -> Member:
    try:
        return await worker.start()
    except ConfigError:
        raise
    except TransportError as error:
        raise no_bus(settings, error) from None
    except ToolgateError:
        raise
    except Exception as error:
        raise ToolgateError(f"{job.scheduler.name} could not start: {authors_words(error)}") from error


async def _reload_when_asked(
    asked: Hangups, worker: Worker, job: WorkerSpec, member: Member, shared: Callable[[], SharedState]
) -> None:
    async for _ in asked.each():
        try:
            # In a thread: a long file takes its time to read, and what is being decided must be renewed.
            scheduler = await anyio.to_thread.run_sync(job.load)
            member = await worker.swap(scheduler, shared())
        except ConfigError as error:
            tell_refused(str(error), job)
        except Exception as error:  # noqa: BLE001 - the author's `start`: whatever it raises, the old one goes on
            tell_refused(f"it could not start: {authors_words(error)}", job)
        else:
            _tell_reloaded(member, job.as_json)


async def _close_shielded(close: Callable[[], Any]) -> None:
    with anyio.CancelScope(shield=True):
        await close()


# ---------------------------------------------------------------------- what it says


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
