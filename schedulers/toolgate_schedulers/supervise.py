"""Several replicas of one scheduler: a process each, restarted when one crashes, ended together.

A replica that ends by itself is started again, after a growing pause; one that ends because its
call was wrong ends all. On Linux a replica also ends when its parent does, however that one died.
What a replica does is none of this module's business: it runs a command.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from subprocess import DEVNULL

import anyio
from anyio.abc import Process

__all__ = ["DIE_WITH_PARENT", "die_with_parent", "next_pause", "supervise"]

DIE_WITH_PARENT = "TOOLGATE_DIE_WITH_PARENT"
"""Environment variable: `1`, or the parent's process id, which closes the gap before it is read."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
STEADY = 30.0
"""Seconds after which a replica counts as having worked: its next pause is the first one again."""
GRACE = 15.0
"""Seconds to finish in after SIGTERM; a replica needs at most its drain time, five."""
WRONG_CALL = 2
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """If the environment says so: get SIGTERM when the parent ends. Linux only; elsewhere nothing.

    To be called in the main thread, and the parent must have been started from its main thread:
    the signal comes with the end of the thread that started this process.
    """
    asked = os.environ.get(DIE_WITH_PARENT, "")
    if not asked or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have ended before the line above: then no signal comes.
    if asked.isdecimal() and int(asked) > 1 and os.getppid() != int(asked):
        sys.exit(128 + signal.SIGTERM)


def next_pause(lived: float, last: float | None) -> float:
    """Seconds to wait before a restart, after a life of `lived` seconds and a pause of `last`."""
    return FIRST_PAUSE if last is None or lived >= STEADY else min(LONGEST_PAUSE, last * 2)


async def supervise(
    command: Sequence[str], replicas: int, env: Mapping[str, str], say: Callable[[str], None]
) -> int:
    """Keep this many processes of a command running until cancelled; then end them, and give 0.

    Gives 2 when a replica says that its call was wrong: restarting it would not help.
    """
    wrong = False

    async def keep(number: int) -> None:
        nonlocal wrong
        if await _keep(command, env, lambda words: say(f"replica {number} of {replicas} {words}")):
            wrong = True
            group.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as group:
            for number in range(1, replicas + 1):
                group.start_soon(keep, number)
    except anyio.get_cancelled_exc_class():
        return 0  # being cancelled is how it is told to finish
    return WRONG_CALL if wrong else 0


async def _keep(command: Sequence[str], env: Mapping[str, str], say: Callable[[str], None]) -> bool:
    """One replica, started again and again; True when its call is wrong."""
    pause: float | None = None
    while True:
        born = anyio.current_time()
        code = await _live(command, env)
        if code == WRONG_CALL:
            return True
        pause = next_pause(anyio.current_time() - born, pause)
        say(f"ended ({_how(code)}); starting it again in {pause:g} s")
        await anyio.sleep(pause)


async def _live(command: Sequence[str], env: Mapping[str, str]) -> int:
    """One process from start to end; cancelled, it ends the process first."""
    # A session of its own: Ctrl-C reaches the parent alone, which then asks once and waits.
    process = await anyio.open_process(
        command,
        stdin=DEVNULL,
        stdout=None,
        stderr=None,
        env={**env, DIE_WITH_PARENT: str(os.getpid())},
        start_new_session=True,
    )
    try:
        return await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


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
