"""What every process of a simulated world has: links that can be cut, and tasks that end where it is killed.

A killed process does nothing any more; what it had under way is lost.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from simulated_server import Calls, SimulatedLink, SimulatedServer, Wire
from toolgate_bus.protocol.keys import Keys
from virtual_time import VirtualLoop

KEYS = Keys("simulated")
LATENCY = 0.001
"""Seconds of one way, on the average."""


class Process:
    """Something that can be cut off and killed."""

    def __init__(self, loop: VirtualLoop, server: SimulatedServer, name: str, seed: int) -> None:
        self.loop, self.server, self.name = loop, server, name
        self.tasks: list[asyncio.Task[Any]] = []
        """All that it ever began."""
        self.dead = False
        self.link: SimulatedLink | None = None
        self._cuts = 0
        self._chance = random.Random(f"{seed}:{name}")
        self.wires: list[Wire] = []
        self.up, self.down = self.wire(), self.wire()
        self.calls = Calls(loop, self.wire)

    def wire(self) -> Wire:
        """One more direction, of this process."""
        made = Wire(self.loop, self._chance, self, LATENCY)
        self.wires.append(made)
        return made

    def slow_down(self, seconds: float) -> None:
        """Have whatever is sent from now on stand still for so long: as where it is stopped, and goes on."""
        for wire in self.wires:
            wire.slow_until = self.loop.now + seconds

    def cut(self) -> None:
        """Break its connections."""
        self._cuts += 1
        self.calls.cut()
        for wire in self.wires:
            wire.cut()
        link, self.link = self.link, None
        if link is not None:
            self._in_it(self.on_cut, link)

    def mend(self) -> None:
        """Let it connect again, unless another cut lasts."""
        self._cuts -= 1
        if not self._cuts and not self.dead:
            self.connect()

    def connect(self) -> None:
        """Be connected."""
        self.link = SimulatedLink(self.server, self.up, self.down, self.on_reply)
        self.calls.connected = True
        self._in_it(self.on_connect)

    def _in_it(self, act: Callable[..., None], *args: Any) -> None:
        before, self.loop.owner = self.loop.owner, self
        act(*args)
        self.loop.owner = before

    def list_open(self) -> "list[asyncio.Task[Any]]":
        """Its tasks that have not ended."""
        return [task for task in self.tasks if not task.done()]

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.cut()
        self.dead = True
        self._end_tasks(8)

    def _end_tasks(self, tries: int) -> None:
        open_ = self.list_open()
        for task in open_:
            task.cancel()
        if open_ and tries:
            self.loop.call_later(0.01, self._end_tasks, tries - 1)

    def on_cut(self, link: SimulatedLink) -> None:
        """The connection broke."""

    def on_connect(self) -> None:
        """There is a connection."""

    def on_reply(self, reply: Any, tag: Any) -> None:
        """A command was answered."""
