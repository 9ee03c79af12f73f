"""A `toolgate` command as a process of its own, on the bus of this one: what an operator would type."""

import asyncio
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from toolgate_bus.server.settings import BusSettings

SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Command:
    """A `toolgate` command that was run as a process."""

    code: int
    output: str
    """What it printed, on either stream."""


async def run_toolgate(bus: BusSettings, *words: str) -> Command:
    """Run a command on this bus; whoever cancels this ends it. Raises TimeoutError.

    Where the bus is goes by the environment: a URL may hold a password, and `ps` shows commands.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "toolgate_bus", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        env={
            **os.environ,
            "TOOLGATE_REDIS_URL": bus.redis or "",
            "TOOLGATE_NAMESPACE": bus.namespace,
            "COLUMNS": "100",
            "NO_COLOR": "1",
        },
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return Command(process.returncode or 0, output.decode(errors="replace").rstrip())
