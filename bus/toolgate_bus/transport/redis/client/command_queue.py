"""Sends waiting ordinary commands together, in one round trip of the next free connection.

So few connections carry many commands: fewer must be made again after a failover, and a command that comes
while all are busy needs no round trip of its own. Commands that block (`BLOCK`, `WAIT`) go alone.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from toolgate_bus.transport.ports import Arg

MAX_TOGETHER: Final = 32
"""Maximum number of commands in one round trip; more only if one caller asks for them."""
_HOLD_UP: Final = frozenset({"WAIT", "WAITAOF", "XREAD", "XREADGROUP"})

Words = Sequence[Arg]
Send = Callable[[Sequence[Words]], Awaitable[list[Any]]]


class NoConnectionError(Exception):
    """All connections were busy for as long as a command may wait."""


class _Unit(NamedTuple):
    """The commands of one caller, who waits for them."""

    commands: Sequence[Words]
    alone: bool
    since: float
    done: asyncio.Future[list[Any]]


class CommandQueue:
    """Commands that wait for a connection, in one event loop."""

    def __init__(
        self, send: Send, connections: int, seconds: float, most_together: int = MAX_TOGETHER
    ) -> None:
        """`send` runs commands in one round trip; a command waits up to `seconds` to be sent."""
        self._send, self._most, self._seconds = send, connections, seconds
        self._most_together = most_together
        self._waiting: deque[_Unit] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = 0
        """Number of tasks that will look again at the waiting commands."""

    async def ask(self, commands: Sequence[Words]) -> list[Any]:
        """Return the replies, error replies among them. Raises what `send` does, and NoConnectionError.

        A cancelled caller leaves its commands: half a command must not stay on a connection.
        """
        done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        alone = any(words[0] in _HOLD_UP for words in commands)
        self._waiting.append(_Unit(commands, alone, time.monotonic(), done))
        if self._busy < self._most:
            self._busy += 1
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await done

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for commands on their way."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def _run(self) -> None:
        """Send waiting commands over one connection, until none is left."""
        try:
            while units := self._take():
                await self._send_all(units)
        finally:
            self._busy -= 1

    async def _send_all(self, units: Sequence[_Unit]) -> None:
        commands = [words for unit in units for words in unit.commands]
        try:
            replies = await self._send(commands)
            if len(replies) != len(commands):  # replies cannot be matched
                raise RuntimeError(f"{len(replies)} replies to {len(commands)} commands")
        except Exception as error:  # noqa: BLE001 - every waiting caller gets the error, whatever it is
            for unit in units:
                _tell(unit, error)
        except BaseException:
            for unit in units:
                unit.done.cancel()
            raise
        else:
            at = 0
            for unit in units:
                if not unit.done.done():
                    unit.done.set_result(replies[at : at + len(unit.commands)])
                at += len(unit.commands)

    def _take(self) -> list[_Unit]:
        """Take the oldest commands that go together."""
        waiting, units, size = self._waiting, list[_Unit](), 0
        late = time.monotonic() - self._seconds
        while waiting:
            unit = waiting[0]
            if unit.since < late:
                _tell(waiting.popleft(), NoConnectionError("No connection available."))
                continue
            if units and (unit.alone or size + len(unit.commands) > self._most_together):
                break
            units.append(waiting.popleft())
            size += len(unit.commands)
            if unit.alone:
                break
        return units


def _tell(unit: _Unit, error: Exception) -> None:
    if not unit.done.done():
        unit.done.set_exception(error)
