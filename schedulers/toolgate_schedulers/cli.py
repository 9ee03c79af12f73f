"""`toolgate scheduler run` and `toolgate scheduler list`: the edge where options meet the worker.

Everything that can be wrong with a call is found before a server is started or joined. SIGTERM and
SIGINT finish what is in hand and end with 0; a second one ends at once.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import anyio
import typer
from rich.markup import escape
from toolgate_bus.cli_options import (
    JsonOption,
    KeysOption,
    NamespaceOption,
    RedisOption,
    bus_settings,
    console,
    err_console,
    joined_bus,
    run_async,
    started_bus,
)
from toolgate_bus.errors import ConfigError, ToolgateError, TransportError
from toolgate_bus.ports import Member
from toolgate_bus.redis_link import RedisCommands
from toolgate_bus.roster import Roster
from toolgate_bus.scheduler_bus import RedisSchedulerBus
from toolgate_bus.settings import BusSettings, read_keys
from toolgate_bus.shared import shared_on
from toolgate_bus.signing import Keyring

from toolgate_schedulers.api import Scheduler
from toolgate_schedulers.listing import as_json, lines_of, table_of
from toolgate_schedulers.loading import authors_words, load
from toolgate_schedulers.supervise import die_with_parent, supervise
from toolgate_schedulers.worker import CONCURRENCY, Worker

__all__ = ["app"]

THREAD_SECONDS = 1.0

app = typer.Typer(name="scheduler", help="Run schedulers, list the living ones.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class _Job:
    """A scheduler that is known to be right, and how it is to be run."""

    scheduler: Scheduler
    keyring: Keyring | None
    concurrency: int
    as_json: bool


@app.command()
def run(
    ctx: typer.Context,
    spec: Annotated[
        str,
        typer.Argument(
            metavar="NAME_OR_MODULE:ATTR", help="An installed scheduler (policy, router …) or yours."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Run it under another name.")] = None,
    priority: Annotated[int | None, typer.Option(help="Priority of its verdicts; the higher wins.")] = None,
    tools: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only rule on these tools; may be repeated.")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Its configuration, in YAML.")] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Record and compare its verdicts; never act on them.")
    ] = False,
    replicas: Annotated[int, typer.Option(min=1, max=256, help="Processes that share its questions.")] = 1,
    concurrency: Annotated[
        int, typer.Option(min=1, max=10_000, help="Questions that one process decides at a time.")
    ] = CONCURRENCY,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: JsonOption = False,
) -> None:
    """Run a scheduler: from now on it is asked about every tool call that it names."""
    die_with_parent()
    scheduler = load(spec, name=name, priority=priority, tools=tools, shadow=shadow or None, config=config)
    job = _Job(scheduler, _keyring(bus_settings(redis, namespace, keys), scheduler), concurrency, json_)
    with started_bus(redis, namespace, keys) as settings:
        if replicas > 1:
            command = _replica_command(spec, job, config)
            env = _replica_env(settings, ctx.find_root().params.get("log_level"))
            raise typer.Exit(run_async(lambda: supervise(command, replicas, env, _notice)))
        run_async(lambda: _serve(job, settings))
    _abandon_threads()


@app.command("list")
def list_(
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: JsonOption = False,
) -> None:
    """Show who is alive: replicas, priority, tools, answered, late, last seen."""
    with joined_bus(redis, namespace, keys) as settings:
        lines = lines_of(run_async(lambda: _members(settings)))
    if json_:
        for line in lines:
            _print_json(as_json(line))
    elif lines:
        console.print(table_of(lines))
    else:
        err_console.print(
            f"No scheduler is alive in namespace {namespace}. "
            "Start one: toolgate scheduler run policy --config rules.yaml"
        )


def _abandon_threads() -> None:
    """End now, with 0, if a plain function of the author's still hangs: Python would wait for its thread."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(THREAD_SECONDS)
            if thread.is_alive():
                _notice(f"left {thread.name} behind: it did not return")
                sys.stdout.flush()
                os._exit(0)


def _keyring(settings: BusSettings, scheduler: Scheduler) -> Keyring | None:
    if settings.keys is None:
        return None
    keyring = Keyring(read_keys(settings.keys))
    if not keyring.knows(scheduler.name):
        raise ConfigError(
            f"keys: {settings.keys} has no key for {scheduler.name}: add `{scheduler.name}: <hex>`"
        )
    return keyring


def _url(settings: BusSettings) -> str:
    if settings.redis is None:
        raise ConfigError("redis: no server is named")
    return settings.redis


async def _members(settings: BusSettings) -> Sequence[Member]:
    """The living replicas, from the roster."""
    commands = RedisCommands(_url(settings), "toolgate-list", connections=1)
    try:
        return (await Roster(commands, settings.namespace).read(ages=True)).members
    except TransportError as error:
        raise _no_bus(settings, error) from None
    finally:
        await commands.aclose()


async def _serve(job: _Job, settings: BusSettings) -> None:
    """Run one replica until cancelled; then finish what is in hand."""
    bus = RedisSchedulerBus(_url(settings), settings.namespace)
    shared = shared_on(_url(settings), bus.commands, settings.namespace, shadow=job.scheduler.shadow)
    worker = Worker(
        job.scheduler,
        bus,
        shared=shared,
        keyring=job.keyring,
        namespace=settings.namespace,
        concurrency=job.concurrency,
    )
    async with AsyncExitStack() as undo:
        undo.push_async_callback(_shielded, bus.aclose)
        member = await _started(worker, job, settings)
        undo.pop_all()
    try:
        _say_ready(member, _shown(_url(settings)), job.as_json)
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        pass  # being cancelled is how it is told to finish
    finally:
        await _shielded(worker.drain)
        await _shielded(shared.aclose)


async def _started(worker: Worker, job: _Job, settings: BusSettings) -> Member:
    try:
        return await worker.start()
    except TransportError as error:
        raise _no_bus(settings, error) from None
    except ToolgateError:
        raise
    except Exception as error:
        raise ToolgateError(f"{job.scheduler.name} could not start: {authors_words(error)}") from error


async def _shielded(close: Callable[[], Any]) -> None:
    with anyio.CancelScope(shield=True):
        await close()


def _no_bus(settings: BusSettings, error: TransportError) -> TransportError:
    return type(error)(f"the bus at {_shown(_url(settings))} cannot be reached: {error}")


def _say_ready(member: Member, url: str, as_json: bool) -> None:
    if as_json:
        fields = {"name": member.name, "replica": member.replica, "pid": member.pid, "redis": url}
        _print_json({"event": "ready", **fields})
        return
    how = "watches (shadow)" if member.shadow else "rules on"
    _notice(
        f"{member.name} (replica {member.replica}, pid {member.pid}) {how} {' '.join(member.tools)} at {url}"
    )


def _shown(url: str) -> str:
    """The URL without its password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return parts._replace(netloc=f"{parts.username or ''}:***@{parts.netloc.rpartition('@')[2]}").geturl()


def _replica_command(spec: str, job: _Job, config: Path | None) -> list[str]:
    """The command of one replica: what was asked for, the scheduler's final fields spelled out."""
    scheduler = job.scheduler
    options = [f"--name={scheduler.name}", f"--priority={scheduler.priority}"]
    options += [f"--tools={glob}" for glob in scheduler.tools]
    options += [f"--concurrency={job.concurrency}"]
    options += [f"--config={config}"] if config else []
    options += ["--shadow"] if scheduler.shadow else []
    options += ["--json"] if job.as_json else []
    return [sys.executable, "-m", "toolgate_bus.cli", "scheduler", "run", *options, "--", spec]


def _replica_env(settings: BusSettings, log_level: str | None) -> dict[str, str]:
    """Where the bus is goes by the environment: a URL may hold a password, and `ps` shows commands.

    The frame's own options go the same way.
    """
    where = {"TOOLGATE_REDIS_URL": _url(settings), "TOOLGATE_NAMESPACE": settings.namespace}
    keys = {} if settings.keys is None else {"TOOLGATE_KEYS": str(settings.keys)}
    logs = {"TOOLGATE_LOG_LEVEL": str(log_level)} if log_level else {}
    return {**os.environ, **where, **keys, **logs}


def _notice(words: str) -> None:
    err_console.print(escape(words), soft_wrap=True)


def _print_json(fields: dict[str, Any]) -> None:
    typer.echo(json.dumps(fields, ensure_ascii=False))
