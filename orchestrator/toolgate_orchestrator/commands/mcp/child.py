"""A server that is a program: started, spoken to by stdin and stdout, and ended with all that it started.

It gets the proxy's environment without variables that begin with TOOLGATE_, so it cannot reach the bus. Its
stderr is the proxy's. It ends as MCP prescribes: its stdin is closed, then SIGTERM, then SIGKILL.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.mcp.lines import Peer

GRACE_S: Final = 2.0
"""Seconds that the program has to end by itself, and again after SIGTERM."""
_READ_AHEAD: Final = 1 << 18
_PRIVATE: Final = "TOOLGATE_"


class Child(NamedTuple):
    """A running server."""

    process: asyncio.subprocess.Process
    peer: Peer

    async def how_it_ended(self) -> str:
        """Return the way in which the program ended, in words."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), GRACE_S)
        code = self.process.returncode
        if code is None:
            return "it closed its output"
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server: the proxy's without private variables, and `env`."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)} | dict(env)


@contextlib.asynccontextmanager
async def start_child(
    name: str, command: tuple[str, ...], env: Mapping[str, str], cwd: Path | None
) -> AsyncIterator[Child]:
    """Start a server, and end it with the block. Raise ConfigError if it cannot be started."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment(env),
            cwd=cwd,
            limit=_READ_AHEAD,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise ConfigError(f"{name}: {command[0]} cannot be started: {said}") from None
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a child without pipes")
    try:
        yield Child(process, Peer(name, process.stdout, process.stdin))
    finally:
        await asyncio.shield(asyncio.create_task(_end(process), name="mcp-end-child"))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    drain = asyncio.create_task(_drain(process))
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            _kill(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE_S)
            break
    _kill(process.pid, signal.SIGKILL)  # the rest of its process group
    drain.cancel()


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read and drop the output: a program that cannot write does not end."""
    while process.stdout is not None and await process.stdout.read(1 << 16):
        pass


def _kill(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
