"""Scheduler processes for the length of one command: started, awaited until ready, and always ended.

Each is `toolgate scheduler run …` in its own process. They also end if this process is killed (Linux): a
variable in their environment tells them to. Only the command line is used; this module imports nothing of the
schedulers' package.
"""

import asyncio
import json
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL
from typing import IO

import anyio
from anyio.abc import Process
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.reads import delete_keys, find_keys

READY_S = 30.0
GRACE_S = 7.0
"""Seconds between SIGTERM and SIGKILL. A scheduler needs at most its drain time of five seconds."""
MAX_WORDS = 8_000
NOT_INHERITED = frozenset({"TOOLGATE_KEYS", "TOOLGATE_METRICS_PORT"})
"""Environment variables that are meant for this process alone."""


@dataclass(frozen=True, slots=True)
class SchedulerSpec:
    """A scheduler to start."""

    spec: str
    """Name of an installed scheduler, or `module:attribute`."""
    config: Path | None = None
    name: str | None = None
    """Name instead of the author's; None keeps the author's."""
    directory: Path | None = None
    """Working directory; `spec` can name a module in it."""
    tools: tuple[str, ...] = ()
    """Tools instead of the author's; empty keeps the author's."""


@dataclass(slots=True)
class RunningScheduler:
    """A scheduler process."""

    name: str
    process: Process
    stderr: IO[bytes]
    """Temporary file for stderr, so that a scheduler with much output never blocks on a full pipe."""
    pid: int = 0
    tools: tuple[str, ...] = ()
    """Tools that the scheduler wrote on its own stdout, which nobody on the bus can forge."""
    drain: asyncio.Task[None] | None = field(default=None, repr=False)

    def words(self) -> str:
        """Return the end of its stderr."""
        size = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, size - MAX_WORDS))
        return self.stderr.read().decode(errors="replace").strip()


@asynccontextmanager
async def scheduler_processes(
    specs: Sequence[SchedulerSpec], bus: BusSettings, ready_s: float = READY_S
) -> AsyncIterator[list[RunningScheduler]]:
    """Start these schedulers, wait up to `ready_s` seconds for each to be ready, and end them with the block.

    Raise ConfigError with a scheduler's own message if its options or config are wrong. Raise ToolgateError
    if it ends or does not become ready.
    """
    running: list[RunningScheduler] = []
    try:
        for spec in specs:
            await _start(spec, bus, running)
        for one in running:
            await _ready(one, ready_s)
        yield running
    finally:
        with anyio.CancelScope(shield=True):
            await _end(running)


async def _start(spec: SchedulerSpec, bus: BusSettings, running: list[RunningScheduler]) -> None:
    options = ["--json"]
    options += [f"--config={spec.config.resolve()}"] if spec.config else []
    options += [f"--name={spec.name}"] if spec.name else []
    options += [f"--tools={glob}" for glob in spec.tools]
    # The environment carries the bus's URL: it may hold a password, and `ps` shows command lines.
    environment = {
        **{name: value for name, value in os.environ.items() if name not in NOT_INHERITED},
        "TOOLGATE_DIE_WITH_PARENT": str(os.getpid()),
        "TOOLGATE_REDIS_URL": bus.redis or "",
        "TOOLGATE_NAMESPACE": bus.namespace,
        **({"TOOLGATE_KEYS": str(bus.keys.resolve())} if bus.keys else {}),
        "NO_COLOR": "1",
    }
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the process
    try:
        # A session of its own: Ctrl-C reaches only the command, which ends its schedulers itself.
        process = await anyio.open_process(
            [sys.executable, "-m", "toolgate_bus", "scheduler", "run", *options, "--", spec.spec],
            stdin=DEVNULL,
            stderr=stderr,
            env=environment,
            cwd=spec.directory,
            start_new_session=True,
        )
    except BaseException:
        stderr.close()
        raise
    running.append(RunningScheduler(spec.name or spec.spec, process, stderr, process.pid))


async def _ready(one: RunningScheduler, ready_s: float) -> None:
    """Wait for the line that says "ready". Afterwards, read and drop all further output."""
    lines = _lines(one.process)
    with anyio.move_on_after(ready_s):
        async for line in lines:
            if line.startswith("{") and (fields := json.loads(line)).get("event") == "ready":
                one.name, one.pid = str(fields["name"]), int(fields["pid"])
                one.tools = tuple(map(str, fields["tools"]))
                one.drain = asyncio.create_task(_drain(lines))
                return
        code = await one.process.wait()
        said = one.words() or f"it ended with exit code {code} and said nothing"
        error = ConfigError if code == 2 else ToolgateError
        raise error(f"scheduler {one.name} did not start: {said.removeprefix('Error: ')}")
    raise ToolgateError(f"scheduler {one.name} was not ready within {ready_s:g} s; is the machine busy?")


async def _lines(process: Process) -> AsyncIterator[str]:
    """Yield the process's output by lines. A line without an end is cut to its last 64 KiB."""
    rest = b""
    if process.stdout is not None:
        async for part in process.stdout:
            *lines, rest = (rest + part).split(b"\n")
            rest = rest[-65_536:]
            for line in lines:
                yield line.decode(errors="replace")


async def _drain(lines: AsyncIterator[str]) -> None:
    async for _ in lines:
        pass


async def _end(running: Sequence[RunningScheduler]) -> None:
    """Send SIGTERM to all, and SIGKILL to those that do not end in time."""
    living = [one.process for one in running if one.process.returncode is None]
    for process in living:
        process.terminate()
    with anyio.move_on_after(GRACE_S):
        for process in living:
            await process.wait()
    for process in living:
        if process.returncode is None:
            process.kill()
            await process.wait()
    for one in running:
        if one.drain is not None:
            one.drain.cancel()
            await asyncio.wait([one.drain])
        one.stderr.close()
        await one.process.aclose()


def new_namespace() -> str:
    """Return a namespace that no other command uses."""
    return f"replay-{secrets.token_hex(6)}"


@asynccontextmanager
async def remove_namespace_on_exit(bus: BusSettings) -> AsyncIterator[None]:
    """Delete all keys of the namespace at the end of the block. Use it only with one that `new_namespace`
    made.

    Errors of the server are ignored.
    """
    try:
        yield
    finally:
        if bus.redis:
            with anyio.CancelScope(shield=True), suppress(ToolgateError):
                await _remove(bus.redis, bus.namespace)


async def _remove(url: str, namespace: str) -> None:
    commands = RedisCommands(url, "toolgate-replay", connections=1)
    # The braces are part of the keys. A namespace holds no character with a meaning in patterns.
    patterns = (f"tg:{{{namespace}}}*", f"tg:{{{namespace}:*")
    try:
        for pattern in patterns:
            async for keys in find_keys(commands, pattern):
                await delete_keys(commands, keys)
    finally:
        await commands.aclose()
