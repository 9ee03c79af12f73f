"""Processes of a benchmark: started, awaited until ready, and ended by their ids with the block."""

import asyncio
import contextlib
import gc
import signal
import subprocess
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
from toolgate_bus.commands.options import COLLECT_AFTER, new_event_loop
from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.guard import die_with_parent

READY_S: Final = 30.0
GRACE_S: Final = 7.0
LINE_BYTES: Final = 1 << 26


@asynccontextmanager
async def start_processes(
    commands: Sequence[Sequence[str]],
    what: str,
    *,
    wait: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Run these commands, and end them with the block. Each is ready when it has written a line.

    `what` names them in errors. Raises ToolgateError if one ends early or is not ready in 30 s.
    """
    running: list[asyncio.subprocess.Process] = []
    try:
        for command in commands:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=env,
                cwd=cwd,
                limit=LINE_BYTES,
                start_new_session=True,  # Ctrl-C reaches the benchmark alone, which ends its processes itself
                preexec_fn=die_with_parent(),
            )
            running.append(process)
        if wait:
            for process in running:
                await read_line(process, what, READY_S)
        yield running
    finally:
        with anyio.CancelScope(shield=True):
            await _end(running)


async def read_line(process: asyncio.subprocess.Process, what: str, seconds: float) -> bytes:
    """Return the next line that a process writes; raises ToolgateError if it ends, or writes none in time."""
    line = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            line = await process.stdout.readline() if process.stdout else b""
    if not line:
        raise ToolgateError(f"{what}: ended, or wrote nothing for {seconds:g} s. Its messages stand above")
    return line


async def _end(running: Sequence[asyncio.subprocess.Process]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in running:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
        with anyio.move_on_after(GRACE_S):
            await asyncio.gather(*(process.wait() for process in running))


def run_answering(main: Coroutine[Any, Any, None]) -> None:
    """Run the main of an answering process, with the event loop and collector of a scheduler."""
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)
