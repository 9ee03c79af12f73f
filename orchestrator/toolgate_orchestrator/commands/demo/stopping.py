"""The second act's operator: sees who is at work and stops an agent, by the commands that anybody has."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from toolgate_bus.server.settings import BusSettings

__all__ = ["Command", "Stopped", "stop_through_the_bus", "toolgate"]

LOOKS: Final = 5
"""Who is alive is told at the heartbeat: so often it is looked for."""
SECONDS: Final = 20.0
SHOWN: Final = 8
"""So many letters of a session's id name it."""


@dataclass(frozen=True, slots=True)
class Command:
    """A `toolgate` command that was run as a process."""

    words: tuple[str, ...]
    code: int
    output: str

    @property
    def line(self) -> str:
        """As one types it."""
        return " ".join(("toolgate", *self.words))


@dataclass(frozen=True, slots=True)
class Stopped:
    """Who was seen, and how the order went."""

    looked: Command
    ordered: Command
    seconds: float
    """From the order to its end, the start of the command included."""


async def toolgate(bus: BusSettings, *words: str) -> Command:
    """Run a command on this bus; whoever cancels this ends it. Raises TimeoutError."""
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
    return Command(words, process.returncode or 0, output.decode(errors="replace").rstrip())


async def stop_through_the_bus(
    bus: BusSettings, session: str, looked_on: Callable[[Command], None]
) -> Stopped:
    """Look who is alive, until this session is among them, and stop it; raises TimeoutError.

    `looked_on` is told who was there before the order is given.
    """
    id_ = session[:SHOWN]
    for _ in range(LOOKS):
        looked = await toolgate(bus, "agents")
        if id_ in looked.output:
            break
    looked_on(looked)
    began = time.monotonic()
    ordered = await toolgate(bus, "agents", "stop", id_)
    return Stopped(looked, ordered, time.monotonic() - began)
