"""Runs a `toolgate` command in its own process on this process's bus, as an operator would type it."""

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
    """Result of a `toolgate` command."""

    code: int
    output: str
    """Output on both streams."""


async def run_toolgate(bus: BusSettings, *words: str) -> Command:
    """Run a command on this bus, and kill it if the caller is cancelled. Raise TimeoutError.

    The environment carries the bus's URL: it may hold a password, and `ps` shows command lines.
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
