"""Detects a primary's handover: it has become a replica of its successor, which says that it is primary.

In a coordinated failover the old primary makes itself a replica of the server that a sentinel has chosen.
That sentinel checks once a second whether it is done, then tells the others; the two servers know at once.
No server is believed alone. Only the primary on which most sentinels agreed can name its successor; before
that, nothing connects to the successor, since a single sentinel may name any server.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from toolgate_bus.protocol.host_list import Address, read_address
from toolgate_bus.transport.redis.client.driver import ConnectionPool, RedisError, ResponseError

ASK_SECONDS: Final = 0.5
"""Longest time that a server may take to report its role, in seconds."""
FIRST_SECONDS: Final = 0.02
LAST_SECONDS: Final = 0.05
SLOWER: Final = 1.15
"""Factor by which each pause between two looks is longer than the one before, from the first to the last."""


class Move(NamedTuple):
    """A primary that leaves and its successor, as a sentinel tells."""

    old: Address
    new: Address


class Role(NamedTuple):
    """Role that a server reports."""

    is_primary: bool
    follows: Address | None = None
    """Server of which it is a replica."""
    is_taken: bool = False
    """True if that server has accepted it as a replica, and sends it the writes."""


def parse_role(said: object) -> Role | None:
    """Parse the reply to ROLE; None if it is malformed. Pure."""
    if not isinstance(said, list) or not said:
        return None
    if said[0] == b"master":
        return Role(is_primary=True)
    if said[0] != b"slave" or len(said) < 4 or not isinstance(said[1], bytes):
        return None
    follows = read_address(said[1].decode("utf-8", "replace"), str(said[2]))
    return Role(is_primary=False, follows=follows, is_taken=said[3] == b"connected")


def names_successor(move: Move, old: Role | None) -> bool:
    """Return whether the leaving primary says that it follows the chosen server. Pure."""
    return old is not None and old.follows == move.new and old.is_taken


def is_handed_over(move: Move, old: Role | None, new: Role | None) -> bool:
    """Return whether both ends confirm the move: the old one follows, the new one is primary. Pure."""
    return names_successor(move, old) and new is not None and new.is_primary


class RoleProbe:
    """Asks one server for its role, by a connection of its own, made when it is needed."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool, self._connection = pool, cast("Any", None)

    async def ask(self) -> Role | None:
        """Return the server's role; None if it does not tell."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                if self._connection is None:
                    self._connection = cast("Any", self._pool).make_connection()
                    await self._connection.connect()
                await self._connection.send_command("ROLE")
                return parse_role(await self._connection.read_response())
        except ResponseError:  # for example if its access rules are of an older version
            return None
        except (RedisError, OSError, TimeoutError):
            await self.aclose()
            return None

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                await connection.disconnect(nowait=True)


class PrimaryHandover:
    """Finds out whether a primary has handed over by itself, after a sentinel said that it leaves."""

    def __init__(self, make_pool: Callable[[Address], ConnectionPool], done: Callable[[], None]) -> None:
        """`make_pool` makes a pool for a server; `done` is called as soon as both ends confirm the move."""
        self._make_pool, self._done = make_pool, done
        self._task: asyncio.Task[None] | None = None
        self._successor: Address | None = None
        self._until = 0.0

    def begin(self, move: Move, primary: Address | None, seconds: float) -> None:
        """Ask both servers for up to `seconds`; only about a move of the known primary."""
        if self._task is not None:
            self._task.cancel()
        self._task, self._successor, self._until = None, None, time.monotonic() + seconds
        if move.old == primary:
            self._task = asyncio.create_task(self._ask_both(move), name="toolgate-handover")

    def find_successor(self) -> Address | None:
        """Return the new primary if both servers confirm it, while the sentinels may not have heard of it."""
        return self._successor if time.monotonic() < self._until else None

    async def _ask_both(self, move: Move) -> None:
        old, new = (RoleProbe(self._make_pool(address)) for address in move)
        pause = FIRST_SECONDS
        try:
            while time.monotonic() < self._until:
                here = await old.ask()
                there = await new.ask() if names_successor(move, here) else None
                if is_handed_over(move, here, there):
                    self._successor = move.new
                    self._done()
                    return
                await asyncio.sleep(pause)
                pause = min(pause * SLOWER, LAST_SECONDS)
        finally:
            await old.aclose()
            await new.aclose()
