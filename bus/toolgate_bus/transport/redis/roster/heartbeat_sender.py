"""The heartbeats of a process's replicas, on an event loop, a thread and a connection of their own.

The code that decides may keep its own loop busy for seconds, for example by an author's slow call. That must
not take the replica off the roster: it is alive, though silent. `scheduler` renews what is being decided, and
does everything else. A call that lets no other thread run stops both.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from toolgate_bus.errors import ToolgateError, TransportError
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.client.refusals import refusal_of
from toolgate_bus.transport.redis.clock import ServerClock
from toolgate_bus.transport.redis.roster.roster import REPLICA_BEAT_SECONDS, Roster, tells_loss
from toolgate_bus.transport.redis.roster.roster_sets import TIME, Command
from toolgate_bus.transport.redis.roster.shards import ShardWatch
from toolgate_bus.transport.redis.tasks import keep

STUCK_SECONDS: Final = 5.0
"""Seconds without progress after which a stuck loop is logged, once."""
ENDING_SECONDS: Final = 6.0
"""Longest wait for the thread's end, in seconds; more than a command takes."""
_log = get_logger("toolgate.bus")


Tell = Callable[[int, int], bytes | None]
"""Returns the heartbeat of this number and time (in seconds, by the server's clock), or None to leave it out.
The heart's thread calls it.
"""


class HeartbeatSender:
    """Beats for members of the roster until it is ended."""

    def __init__(
        self,
        url: str,
        namespace: str,
        clock: ServerClock,
        shards: ShardWatch,
        on_shards: Callable[[frozenset[int]], None],
        is_idle: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_shards` is called with the shards to read when they change, on the loop that calls `start`.

        `is_idle` tells whether nothing was asked for long; the heart's thread calls it.
        """
        self._is_idle = is_idle
        self._url, self._namespace, self._clock = url, namespace, clock
        self._shards, self._on_shards = shards, on_shards
        self._members: dict[str, Tell] = {}
        self._number = 0
        self._left: set[str] = set()
        self._moved = time.monotonic()
        self._complained = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owner: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Start the thread; `beat` sends the first heartbeat."""
        self._owner = asyncio.get_running_loop()
        self._ended, running = self._owner.create_future(), self._owner.create_future()
        self._running = running
        threading.Thread(target=self._thread, name="toolgate-heart", daemon=True).start()
        await running

    def add(self, member: str, tell: Tell) -> None:
        """Beat for this member as well, from the next heartbeat on."""
        self._members = {**self._members, member: tell}  # the other thread may be looking at them

    async def beat(self) -> None:
        """Beat now, and wait until the server has it. Raises TransportError if it may not."""
        await self._there(self._beat())

    async def leave(self, member: str, mark: Callable[[int, int], bytes]) -> None:
        """Announce by a last heartbeat that a member leaves, and stop its beats. Raises TransportError."""
        await self._there(self._leave(member, mark))

    def name_again(self) -> None:
        """Name all members again with the next heartbeats: the server may have lost what was written."""
        if self._loop is not None:
            self._roster.name_again()

    def note_progress(self) -> None:
        """Note that the loop that decides is not stuck."""
        self._moved = time.monotonic()

    async def aclose(self) -> None:
        """End the thread and its connection."""
        self.end()
        if self._ended is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._ended), ENDING_SECONDS)

    def end(self) -> None:
        """Let the thread end soon."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stop.set)

    async def _there(self, work: Coroutine[Any, Any, None]) -> None:
        if self._loop is None or self._loop.is_closed():
            work.close()
            return
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # ------------------------------------------------------------------ in the other thread

    def _thread(self) -> None:
        try:
            asyncio.run(self._run())
        finally:
            self._say(self._running)
            self._say(self._ended)

    def _say(self, future: "asyncio.Future[None] | None") -> None:
        """Set a future on the waiting loop, unless that loop has ended."""
        with contextlib.suppress(RuntimeError):
            if self._owner is not None and future is not None:
                self._owner.call_soon_threadsafe(_resolve, future)

    async def _run(self) -> None:
        self._stop, self._turn = asyncio.Event(), asyncio.Lock()
        self._commands = RedisCommands(self._url, "toolgate-heart", connections=1)
        self._roster = Roster(self._commands, self._namespace, ())
        self._loop = asyncio.get_running_loop()
        self._say(self._running)
        beating = asyncio.create_task(keep(self._keep_beating))
        await self._stop.wait()
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await self._commands.aclose()

    async def _keep_beating(self) -> None:
        while self._owner is not None and not self._owner.is_closed():
            await asyncio.sleep(REPLICA_BEAT_SECONDS)
            stuck = time.monotonic() - self._moved > STUCK_SECONDS
            if stuck and not self._complained:
                _log.warning(
                    "a call blocks the event loop that decides, and questions wait",
                    member=", ".join(self._members),
                    seconds=STUCK_SECONDS,
                )
            self._complained = stuck
            with contextlib.suppress(ToolgateError):
                await self._beat()
            metrics.join_registry()
        self._stop.set()

    async def _beat(self) -> None:
        if not await self._beat_once():
            self._roster.name_again()
            await self._beat_once()

    async def _beat_once(self) -> bool:
        """Beat for all members. Return False if the server was emptied, and their names must be written."""
        async with self._turn:
            await self._roster.learn_minute()
            beats = [
                (member, value)
                for member, tell in self._members.items()
                if (value := None if member in self._left else tell(self._number + 1, self._roster.seconds))
                is not None
            ]
            if not beats:
                return True
            self._number += 1
            sent = time.monotonic()
            commands: list[Command] = []
            firsts: list[int] = []
            for member, value in beats:
                firsts.append(len(commands))
                commands += self._roster.beat(member, value, timed=TIME in commands)
            commands, firsts = merge_names(commands, firsts)
            if not self._clock.is_synced and TIME not in commands:
                commands.append(TIME)
            commands += (asks := self._shards.asks(self._number, is_idle=self._is_idle()))
            try:
                replies = await self._commands.pipeline(commands)
            except TransportError:
                self._roster.name_again()
                raise
            if TIME in commands:
                reply = replies[commands.index(TIME)]
                self._clock.set_time(reply, time.monotonic(), sent)
                self._roster.set_time(reply)
                firsts.append(commands.index(TIME))
            if asks:
                self._take_shards(replies[-len(asks) :])
            for first in firsts:
                command, reply = commands[first], replies[first]
                if isinstance(reply, Exception):
                    raise refusal_of(command, reply)
            return not any(tells_loss(commands[first], replies[first]) for first in firsts)

    def _take_shards(self, replies: Sequence[Any]) -> None:
        found = self._shards.take(replies, self._roster.seconds)
        if found is not None and self._owner is not None:
            with contextlib.suppress(RuntimeError):  # that loop has ended
                self._owner.call_soon_threadsafe(self._on_shards, found)

    async def _leave(self, member: str, mark: Callable[[int, int], bytes]) -> None:
        async with self._turn:  # a heartbeat on its way must not put it back
            self._left.add(member)
            await self._roster.leave(member, mark(self._number + 1, self._roster.seconds))


def merge_names(commands: Sequence[Command], firsts: Sequence[int]) -> tuple[list[Command], list[int]]:
    """Return the commands with the names of all members in one SADD a set, and each set's expiry once.

    `firsts` are the places of commands whose replies matter; they are returned as they are then.
    """
    merged: dict[tuple[Any, ...], Command] = {}
    for command in commands:
        if command[0] == "SADD":
            place = command[:2]
            merged[place] = (*merged.get(place, place), *command[2:])
        else:
            merged[command] = command
    kept = list(merged)
    return list(merged.values()), [kept.index(commands[first]) for first in firsts]


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
