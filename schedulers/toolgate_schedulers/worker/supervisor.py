"""Run several replicas of one scheduler: one process each, restarted if it crashes, ended together.

A replica that ends by itself is started again after a growing pause. One that ends because its options or
its configuration are wrong ends all. A replica also ends when its parent does, in whatever way that died: on
Linux it gets a signal at once, and `survivor`, a small process beside the replicas, kills one that does not
react. A reload is checked once, here, and then passed on to each. This module knows nothing of what a replica
does: it runs a command.
"""

import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from subprocess import DEVNULL, PIPE
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
from anyio.abc import Process
from toolgate_bus.errors import ConfigError

from toolgate_schedulers.worker import survivor

DIE_WITH_PARENT = "TOOLGATE_DIE_WITH_PARENT"
"""Environment variable: `1`, or the parent's process id, which closes the gap before it is read."""

FIRST_PAUSE = 0.5
"""Seconds to wait before the first restart."""
MAX_PAUSE = 10.0
"""Longest wait before a restart, in seconds."""
STEADY = 5.0
"""Seconds after which a replica counts as having worked: its next pause is the first one again."""
GRACE = 15.0
"""Seconds to finish in after SIGTERM. A replica needs at most its drain time, five seconds."""
SURVIVE_S = 10.0
"""Seconds that replicas have to end in once their supervisor was killed."""
WRONG_CALL = 2
"""Exit code of a replica whose options or configuration are wrong."""
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Get SIGTERM when the parent ends, if the environment asks for it. Linux only; elsewhere do nothing.

    Call it in the main thread. The parent must have started this process from its main thread: the signal
    comes with the end of the thread that started it.
    """
    asked = os.environ.get(DIE_WITH_PARENT, "")
    if not asked or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have ended before the line above: then no signal comes.
    if asked.isdecimal() and int(asked) > 1 and os.getppid() != int(asked):
        sys.exit(128 + signal.SIGTERM)


def next_pause(lived: float, last: float | None) -> float:
    """Return the seconds to wait before a restart, after a life of `lived` seconds and a pause of `last`."""
    return FIRST_PAUSE if last is None or lived >= STEADY else min(MAX_PAUSE, last * 2)


class Reloads(NamedTuple):
    """Requests that replicas read their configuration again, and the check that comes first."""

    asked: AsyncIterator[None]
    """Yields once for each request. Ends when all replicas are to end."""
    check: Callable[[], Any]
    """Reads the configuration as a replica would. If it raises ConfigError, no replica is asked to reload."""
    refused: Callable[[ConfigError], None]


async def supervise(
    command: Sequence[str],
    envs: Sequence[Mapping[str, str]],
    say: Callable[[str], None],
    reloads: Reloads,
) -> int:
    """Keep one process of a command running in each environment. If cancelled, end them and return 0.

    Return 2 if a replica says that its options or configuration are wrong: restarting it would not help.
    """
    wrong = False
    living = _ReplicaSet()

    async def keep(number: int, env: Mapping[str, str]) -> None:
        nonlocal wrong
        if await _keep(command, env, lambda words: say(f"replica {number} of {len(envs)} {words}"), living):
            wrong = True
            group.cancel_scope.cancel()

    async def reload() -> None:
        await _pass_on(reloads, living)
        group.cancel_scope.cancel()

    try:
        async with living, anyio.create_task_group() as group:
            group.start_soon(reload)
            for number, env in enumerate(envs, 1):
                group.start_soon(keep, number, env)
    except anyio.get_cancelled_exc_class():
        return 0  # cancelling is how it is told to finish
    return WRONG_CALL if wrong else 0


class _ReplicaSet:
    """The living replicas, of which the survivor is told."""

    def __init__(self) -> None:
        self._processes: set[Process] = set()
        self._survivor: Process | None = None

    async def __aenter__(self) -> None:
        # Isolated and without site packages: it starts fast, and nothing in the user's environment breaks it.
        self._survivor = await anyio.open_process(
            [sys.executable, "-I", "-S", survivor.__file__, str(SURVIVE_S)],
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            start_new_session=True,
        )

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            if self._survivor is not None and self._survivor.stdin is not None:
                await self._survivor.stdin.aclose()  # no replica is left, so it ends
                await self._survivor.wait()

    def __iter__(self) -> Iterator[Process]:
        return iter(tuple(self._processes))

    async def add(self, process: Process) -> None:
        """Add a replica that was started."""
        self._processes.add(process)
        await self._tell(f"+{process.pid}\n")

    async def discard(self, process: Process) -> None:
        """Remove a replica that has ended."""
        self._processes.discard(process)
        await self._tell(f"-{process.pid}\n")

    async def _tell(self, line: str) -> None:
        if self._survivor is not None and self._survivor.stdin is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the survivor was killed
                await self._survivor.stdin.send(line.encode())


async def _pass_on(reloads: Reloads, living: _ReplicaSet) -> None:
    """Check the configuration for each reload, then send SIGHUP to each living replica."""
    async for _ in reloads.asked:
        try:
            await anyio.to_thread.run_sync(reloads.check)
        except ConfigError as error:
            reloads.refused(error)
            continue
        for process in living:
            with suppress(ProcessLookupError):  # it has just ended; the next one reads the new file
                process.send_signal(signal.SIGHUP)


async def _keep(
    command: Sequence[str], env: Mapping[str, str], say: Callable[[str], None], living: _ReplicaSet
) -> bool:
    """Run one replica, restarting it after each end. Return True if its options are wrong."""
    pause: float | None = None
    while True:
        born = anyio.current_time()
        code = await _live(command, env, living)
        if code == WRONG_CALL:
            return True
        if code == -signal.SIGHUP:  # told to reload before it could be: the next one reads the new file
            continue
        pause = next_pause(anyio.current_time() - born, pause)
        say(f"ended ({_how(code)}); starting it again in {pause:g} s")
        await anyio.sleep(pause)


async def _live(command: Sequence[str], env: Mapping[str, str], living: _ReplicaSet) -> int:
    """Run one process from start to end. If cancelled, end the process first."""
    # A session of its own: Ctrl-C reaches the parent alone, which then asks each to end, and waits.
    process = await anyio.open_process(
        command,
        stdin=DEVNULL,
        stdout=None,
        stderr=None,
        env={**env, DIE_WITH_PARENT: str(os.getpid())},
        start_new_session=True,
    )
    try:
        await living.add(process)
        return await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
            await living.discard(process)


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
        with anyio.move_on_after(GRACE):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
