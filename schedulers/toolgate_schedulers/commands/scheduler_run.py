"""What `toolgate scheduler run` does: from checked options to a scheduler that serves, or several replicas.

Everything that can be wrong with the call is found before a server is started or joined. How one
replica serves is `serve`'s affair, how several are kept `supervise`'s.
"""

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import typer
from toolgate_bus.commands.options import METRICS_PORT, bus_settings, run_async, serve_metrics, start_bus
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.server.settings import BusSettings, read_keys
from toolgate_bus.telemetry import tracing

from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.worker.bus_address import bus_url
from toolgate_schedulers.worker.loading import load
from toolgate_schedulers.worker.process import WorkerSpec, notice, serve, tell_refused
from toolgate_schedulers.worker.reload_signal import hangups
from toolgate_schedulers.worker.supervisor import Reloads, die_with_parent, supervise

THREAD_SECONDS: Final = 1.0
MAX_PORT: Final = 65535
FRAME_OPTIONS: Final = ("log_level", "log_format")


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """The options that say which scheduler, and how it runs: a replica is given them again."""

    spec: str
    name: str | None
    priority: int | None
    tools: list[str] | None
    config: Path | None
    shadow: bool
    revision: str | None
    concurrency: int
    json: bool

    def load(self) -> Scheduler:
        """The scheduler, with its configuration as it is now; raises ConfigError."""
        options: dict[str, Any] = {"name": self.name, "priority": self.priority, "tools": self.tools}
        return load(
            self.spec, **options, shadow=self.shadow or None, config=self.config, revision=self.revision
        )

    def load_again(self) -> Scheduler:
        """The same for a reload, for which there must be a configuration."""
        if self.config is None:
            raise ConfigError("It was started without --config: there is nothing to read again")
        return self.load()


def launch(
    asked: ReplicaOptions,
    redis: str | None,
    namespace: str,
    keys: Path | None,
    replicas: int,
    metrics_port: int | None,
    metrics_address: str,
    frame: Mapping[str, Any],
) -> None:
    """Run it until it is told to end; `frame` are the options of `toolgate` itself.

    Raises ToolgateError where the call is wrong or the bus is away, typer.Exit where replicas ended.
    """
    die_with_parent()
    scheduler = asked.load()
    keyring = _load_keyring(bus_settings(redis, namespace, keys), scheduler)
    job = WorkerSpec(scheduler, asked.load_again, keyring, asked.concurrency, asked.json)
    with tracing.configure("toolgate-scheduler"), start_bus(redis, namespace, keys) as settings:
        if replicas > 1:
            given = asdict(asked)
            command = replica_command(given.pop("spec"), given)
            env = _replica_env(settings, frame)
            own = _own_ports(metrics_port, metrics_address, replicas)
            raise typer.Exit(run_async(lambda: _supervise(command, [env | one for one in own], job)))
        with serve_metrics(metrics_port, metrics_address, "scheduler") as url:
            run_async(lambda: serve(replace(job, metrics=url), settings))
    # If a plain function of the author's still hangs, end now, with 0: Python would wait for its thread.
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(THREAD_SECONDS)
            if thread.is_alive():
                notice(f"left {thread.name} behind: it did not return")
                sys.stdout.flush()
                os._exit(0)


def _load_keyring(settings: BusSettings, scheduler: Scheduler) -> Keyring | None:
    if settings.keys is None:
        return None
    keyring = Keyring(read_keys(settings.keys))
    if not keyring.knows(scheduler.name):
        raise ConfigError(
            f"keys: {settings.keys} has no key for {scheduler.name}: add `{scheduler.name}: <hex>`"
        )
    return keyring


def _own_ports(first: int | None, address: str, replicas: int) -> list[dict[str, str]]:
    """Where each replica serves its metrics, as an environment: on PORT, PORT+1, … or any free one."""
    if first is None:
        return [{} for _ in range(replicas)]
    if first and first + replicas - 1 > MAX_PORT:
        raise ConfigError(f"metrics port: {replicas} replicas from {first} on go beyond {MAX_PORT}")
    ports = range(first, first + replicas) if first else [0] * replicas
    return [{METRICS_PORT: str(port), "TOOLGATE_METRICS_ADDRESS": address} for port in ports]


async def _supervise(command: Sequence[str], envs: Sequence[dict[str, str]], job: WorkerSpec) -> int:
    """Keep the replicas; a SIGHUP is passed on to each once the configuration was found right."""

    with hangups() as asked:
        reloads = Reloads(asked.each(), job.load, lambda error: tell_refused(str(error), job))
        return await supervise(command, envs, notice, reloads)


def replica_command(spec: str, given: Mapping[str, Any]) -> list[str]:
    """The command of one replica: the options that were given, no others: a reload may change the rest."""
    options: list[str] = []
    for option, value in given.items():
        if value is True:
            options.append(f"--{option}")
        elif value is not None and value is not False:
            options += [f"--{option}={one}" for one in (value if isinstance(value, list) else [value])]
    return [sys.executable, "-m", "toolgate_bus", "scheduler", "run", *options, "--", spec]


def _replica_env(settings: BusSettings, frame: Mapping[str, Any]) -> dict[str, str]:
    """Where the bus is goes by the environment: a URL may hold a password, and `ps` shows commands.

    The frame's own options go the same way.
    """
    where = {"TOOLGATE_REDIS_URL": bus_url(settings), "TOOLGATE_NAMESPACE": settings.namespace}
    keys = {} if settings.keys is None else {"TOOLGATE_KEYS": str(settings.keys)}
    logs = {f"TOOLGATE_{name.upper()}": str(frame[name]) for name in FRAME_OPTIONS if frame.get(name)}
    return {**os.environ, **where, **keys, **logs}
