"""Do the work of `toolgate scheduler run`: turn options into schedulers that serve, or into replicas.

All options are checked before a server is started or joined. `serve` runs one process, and `supervise` keeps
several.
"""

import difflib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import typer
from toolgate_bus.commands.options import METRICS_PORT, bus_settings, run_async, serve_metrics, start_bus
from toolgate_bus.config.document import parse_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.revision import Revision
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.server.settings import BusSettings, read_keys
from toolgate_bus.telemetry import tracing

from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.worker.bus_address import bus_url
from toolgate_schedulers.worker.loading import load
from toolgate_schedulers.worker.process import (
    ReloadError,
    WorkerSpec,
    notice,
    read_again,
    serve,
    tell_all_refused,
)
from toolgate_schedulers.worker.reload_signal import hangups
from toolgate_schedulers.worker.supervisor import Reloads, die_with_parent, supervise

SWITCH_S: Final = 0.0005
"""Switch interval in seconds, a tenth of the default: a heartbeat's thread delays the deciding loop by this
much."""
THREAD_SECONDS: Final = 1.0
MAX_PORT: Final = 65535
KEEP_BOOKS: Final = ("cost-aware", "rate-limit")
FRAME_OPTIONS: Final = ("log_level", "log_format")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of the command, which each replica gets again."""

    specs: list[str]
    """Schedulers, each `NAME_OR_MODULE:ATTR`, or `NAME=` before that."""
    name: str | None
    priority: int | None
    tools: list[str] | None
    config: list[str] | None
    """Config files, each `FILE`, or `NAME=FILE` for one of several schedulers."""
    shadow: bool
    revision: str | None
    concurrency: int
    json: bool

    def schedulers(self) -> "list[SchedulerOptions]":
        """Return the options of each scheduler; raise ConfigError, which says what to write instead."""
        return divide(self)


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Options of one scheduler."""

    label: str
    """Name in the command: its own name, if one is given, otherwise its spec."""
    spec: str
    config: Path | None
    more: Mapping[str, Any]
    is_alone: bool

    def load_text(self, text: bytes, revision: Revision) -> Scheduler:
        """Load the scheduler with a pushed configuration; raise ConfigError."""
        more = {**self.more, "revision": revision}
        return load(self.spec, config=parse_document(text, f"pushed {revision.text}"), **more)

    def load(self) -> Scheduler:
        """Load the scheduler with its present configuration; raise ConfigError."""
        try:
            return load(self.spec, config=self.config, **self.more)
        except ConfigError as error:
            if self.is_alone:
                raise
            told = str(error).replace("--config FILE", f"--config {self.label}=FILE")
            raise ConfigError(f"{self.label}: {told}") from None


def divide(asked: RunOptions) -> list[SchedulerOptions]:
    """Return the options of each scheduler; raise ConfigError, which says what to write instead."""
    labels = [spec.partition("=")[0] for spec in asked.specs]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(
                f"{label} is named twice: give one of them a name of its own, "
                f"for example second-{label.partition(':')[0]}={label}"
            )
    several = len(labels) > 1
    for option, value in {"name": asked.name, "priority": asked.priority, "tools": asked.tools}.items():
        if several and value:
            raise ConfigError(_ALONE[option].format(labels[0], asked.specs[0].rpartition("=")[2], value))
    files = _configs(asked.config or [], labels)
    found = []
    for spec, label in zip(asked.specs, labels, strict=True):
        own, equals, what = spec.rpartition("=")
        if equals and not own:
            raise ConfigError(f"{spec}: write a name before =, for example treasury{spec}")
        more = {
            "name": own or asked.name,
            "priority": asked.priority,
            "tools": asked.tools,
            "shadow": asked.shadow or None,
            "revision": asked.revision,
        }
        found.append(SchedulerOptions(label, what, files.get(label), more, is_alone=not several))
    return found


_ALONE: Final = {
    "name": "--name: there are several schedulers: write {2}={1} for the one that you mean",
    "priority": "--priority: there are several schedulers: set it in the configuration, or run {0} alone",
    "tools": "--tools: there are several schedulers: set them in the configuration, or run {0} alone",
}


def _configs(given: Sequence[str], labels: Sequence[str]) -> dict[str, Path]:
    """Return the config file of each scheduler that has one."""
    files: dict[str, Path] = {}
    for one in given:
        label, _, file = one.partition("=")
        if label in labels and file:
            pass
        elif len(labels) == 1:
            label, file = labels[0], one
        else:
            close = difflib.get_close_matches(label, labels, n=1) or [labels[0]]
            named = f"{close[0]}={file or one}"
            raise ConfigError(
                f"--config {one}: name its scheduler ({', '.join(labels)}), for example --config {named}"
            )
        if label in files:
            raise ConfigError(f"--config {one}: {label} has a file already, {files[label]}; give one file")
        files[label] = Path(file)
    return files


def launch(
    asked: RunOptions,
    redis: str | None,
    namespace: str,
    keys: Path | None,
    replicas: int,
    metrics_port: int | None,
    metrics_address: str,
    frame: Mapping[str, Any],
) -> None:
    """Run the schedulers until told to end; `frame` are the options of `toolgate` itself.

    Raise ToolgateError if an option is wrong or the bus is away, typer.Exit if replicas ended.
    """
    die_with_parent()
    given = asked.schedulers()
    schedulers = [one.load() for one in given]
    _check_names([scheduler.name for scheduler in schedulers])
    keyring = _load_keyring(bus_settings(redis, namespace, keys), schedulers)
    jobs = [
        WorkerSpec(
            scheduler,
            one.load if one.config else None,
            keyring,
            asked.concurrency,
            asked.json,
            load_text=one.load_text,
            load_own=one.load,
        )
        for one, scheduler in zip(given, schedulers, strict=True)
    ]
    if bus_settings(redis, namespace, keys).redis is None:
        _tell_what_ends(asked.specs)
    sys.setswitchinterval(SWITCH_S)
    with tracing.configure("toolgate-scheduler"), start_bus(redis, namespace, keys) as settings:
        if replicas > 1:
            options = asdict(asked)
            command = replica_command(options.pop("specs"), options)
            env = _replica_env(settings, frame)
            own = _own_ports(metrics_port, metrics_address, replicas)
            raise typer.Exit(run_async(lambda: _supervise(command, [env | one for one in own], jobs)))
        with serve_metrics(metrics_port, metrics_address, "scheduler") as url:
            run_async(lambda: serve([replace(job, metrics=url) for job in jobs], settings))
    # If a plain function of the author's still hangs, end now, with 0: Python would wait for its thread.
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(THREAD_SECONDS)
            if thread.is_alive():
                notice(f"thread {thread.name} did not return: it is left behind")
                sys.stdout.flush()
                os._exit(0)


def _tell_what_ends(specs: Sequence[str]) -> None:
    """Warn if a scheduler keeps books on the embedded server, as they will not last."""
    if any(spec.rpartition("=")[2] in KEEP_BOOKS for spec in specs):
        notice(
            "the embedded server keeps nothing: counts and spending are forgotten when its last command "
            "ends. For budgets that last, name a server: --redis URL"
        )


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two schedulers are called {name}: give one another name, NAME=MODULE:ATTR")


def _load_keyring(settings: BusSettings, schedulers: Sequence[Scheduler]) -> Keyring | None:
    if settings.keys is None:
        return None
    keyring = Keyring(read_keys(settings.keys), settings.namespace)
    for scheduler in schedulers:
        if not keyring.knows(scheduler.name):
            raise ConfigError(
                f"keys: {settings.keys} has no key for {scheduler.name}: add `{scheduler.name}: <hex>`"
            )
    return keyring


def _own_ports(first: int | None, address: str, replicas: int) -> list[dict[str, str]]:
    """Return the environment of each replica's metrics: port PORT, PORT+1, … or any free one."""
    if first is None:
        return [{} for _ in range(replicas)]
    if first and first + replicas - 1 > MAX_PORT:
        raise ConfigError(f"metrics port: {replicas} replicas from {first} on need ports above {MAX_PORT}")
    ports = range(first, first + replicas) if first else [0] * replicas
    return [{METRICS_PORT: str(port), "TOOLGATE_METRICS_ADDRESS": address} for port in ports]


async def _supervise(
    command: Sequence[str], envs: Sequence[dict[str, str]], jobs: Sequence[WorkerSpec]
) -> int:
    """Keep the replicas; pass a SIGHUP on to each once the configurations are checked."""

    def refused(error: ConfigError) -> None:
        if isinstance(error, ReloadError):
            tell_all_refused(error)

    with hangups() as asked:
        return await supervise(
            command, envs, notice, Reloads(asked.each(), lambda: read_again(jobs), refused)
        )


def replica_command(specs: Sequence[str], given: Mapping[str, Any]) -> list[str]:
    """Return the command of one replica with only the options that were given, as a reload may change the
    others."""
    options: list[str] = []
    for option, value in given.items():
        if value is True:
            options.append(f"--{option}")
        elif value is not None and value is not False:
            options += [f"--{option}={one}" for one in (value if isinstance(value, list) else [value])]
    return [sys.executable, "-m", "toolgate_bus", "scheduler", "run", *options, "--", *specs]


def _replica_env(settings: BusSettings, frame: Mapping[str, Any]) -> dict[str, str]:
    """Return a replica's environment with the address of the bus: a URL may hold a password, and `ps` shows
    commands.

    The options of `toolgate` itself go the same way.
    """
    where = {"TOOLGATE_REDIS_URL": bus_url(settings), "TOOLGATE_NAMESPACE": settings.namespace}
    keys = {} if settings.keys is None else {"TOOLGATE_KEYS": str(settings.keys)}
    logs = {f"TOOLGATE_{name.upper()}": str(frame[name]) for name in FRAME_OPTIONS if frame.get(name)}
    return {**os.environ, **where, **keys, **logs}
