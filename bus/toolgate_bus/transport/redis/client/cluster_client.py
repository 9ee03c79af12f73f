"""Ordinary commands in a cluster: each goes to the node that owns its key, over one pool for each node.

A pipeline is split by slot; its replies stand in the order of its commands. A node that sends us elsewhere
(MOVED, ASK, TRYAGAIN) has not run the command, so it is run there. Nothing else is tried again. While a slot
moves key by key, a script waits for the end of the move: it works on keys that it names itself, and they may
be on both nodes, so neither could run it. The class has those methods of redis-py's client that `connection`
uses.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from toolgate_bus.errors import BusDown
from toolgate_bus.protocol.cluster_url import ClusterUrl
from toolgate_bus.protocol.host_list import Address, reach
from toolgate_bus.transport.ports import Arg
from toolgate_bus.transport.redis.client.cluster import ClusterWatch, make_owner_pool, watch_of
from toolgate_bus.transport.redis.client.cluster_routes import (
    absent_key,
    near_of,
    pattern_of,
    slot_of_pattern,
    split,
)
from toolgate_bus.transport.redis.client.command_keys import is_script
from toolgate_bus.transport.redis.client.driver import (
    AskError,
    BlockingConnectionPool,
    ClusterDownError,
    MovedError,
    ReadOnlyError,
    RedisConnectionError,
    RedisError,
    RedisTimeoutError,
    TryAgainError,
    make_client,
)

MAX_REDIRECTS: Final = 16
TRY_AGAIN_S: Final = 0.05
WAIT_S: Final = 0.8
"""Seconds that the commands of a pipeline wait for a slot that moves."""
_GROUND: Final = float("inf")
"""Age for which any map will do: the nodes say what is wrong with it."""

Words = Sequence[Arg]


class ClusterClient:
    """A client for one event loop, as redis-py's is."""

    def __init__(self, at: ClusterUrl, name: str, **options: Any) -> None:
        """`options` are those of each node's pool."""
        self._at, self._name, self._options = at, name, options
        self._clients: dict[Address, Any] = {}
        self._near = 0
        """Slot for commands without a key, if no command with a key is sent with them."""
        self.connection_pool = self

    async def execute_command(self, *command: Arg) -> Any:
        """Return the reply to one command.

        Raises what redis-py does, and BusDown or ConfigError if no node is found.
        """
        (reply,) = await self.run([command])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def pipeline(self, *, transaction: bool) -> "ClusterPipeline":
        """Return a collector that runs its commands together; never as a transaction."""
        del transaction
        return ClusterPipeline(self)

    async def disconnect(self, *, inuse_connections: bool = True) -> None:
        """Close connections: all, or those that are not in use."""
        for client in list(self._clients.values()):
            await client.connection_pool.disconnect(inuse_connections=inuse_connections)

    async def aclose(self) -> None:
        """Close all connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()
            await client.connection_pool.disconnect()

    # ------------------------------------------------------------------ running

    async def run(self, commands: Sequence[Words]) -> list[Any]:
        """Return the replies in the order of the commands; error replies stand among them."""
        watch = watch_of(self._at)
        await watch.look(_GROUND)
        near = near_of(commands)
        self._near = self._near if near is None else near
        first = [str(word).upper() for word in commands[0][:2]]
        if first == ["SCRIPT", "LOAD"]:
            return [await self._run_everywhere(watch, commands[0])]
        if first[0] == "SCAN":
            return [await self._scan(watch, commands[0])]
        if first[0] == "MULTI":
            return await self._try_together(watch, commands)
        replies: list[Any] = [None] * len(commands)
        parts = split(commands, self._near)
        for part, found in zip(
            parts,
            await asyncio.gather(
                *(
                    self._run_part(watch, one.slot, [[commands[i] for i in unit] for unit in one.units])
                    for one in parts
                )
            ),
            strict=True,
        ):
            for number, reply in zip((i for unit in part.units for i in unit), found, strict=True):
                replies[number] = reply
        return replies

    async def _run_part(self, watch: ClusterWatch, slot: int, units: list[list[Words]]) -> list[Any]:
        address = watch.owner(slot)
        replies = iter(await self._send(watch, address, [command for unit in units for command in unit]))
        found: list[Any] = []
        until = time.monotonic() + WAIT_S
        for unit in units:
            said = [next(replies) for _ in unit]
            if _is_redirect(said[0]):
                said = await self._follow(watch, slot, unit, said, address, until)
            found += said
        return found

    async def _follow(
        self,
        watch: ClusterWatch,
        slot: int,
        unit: list[Words],
        said: list[Any],
        address: Address,
        until: float,
    ) -> list[Any]:
        """Send a unit where a node's redirect leads. Return the replies to all its commands."""
        for _ in range(MAX_REDIRECTS):
            reply = said[0]
            if isinstance(reply, MovedError):
                watch.note(slot, reply.host, reply.port, address)
                address = watch.owner(slot)
                said = await self._send(watch, address, unit)
            elif isinstance(reply, AskError) and not is_script(unit[0]):
                there = reach((reply.host or address[0], reply.port), self._at.address_map)
                said = (await self._send(watch, there, [("ASKING",), *unit]))[1:]
            elif _is_redirect(reply) and time.monotonic() < until:
                await asyncio.sleep(TRY_AGAIN_S)
                address = watch.owner(slot)
                said = await self._send(watch, address, unit)
            else:
                break
        return said

    async def _send(self, watch: ClusterWatch, address: Address, commands: Sequence[Words]) -> list[Any]:
        pipe = self._client(address).pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        try:
            replies: list[Any] = await pipe.execute(raise_on_error=False)
        except (RedisConnectionError, RedisTimeoutError, OSError):
            watch.suspect(address)
            raise
        if any(isinstance(reply, ClusterDownError | ReadOnlyError) for reply in replies):
            watch.suspect(address)
        return replies

    def _client(self, address: Address) -> Any:
        client = self._clients.get(address)
        if client is None:
            pool = make_owner_pool(self._at, address, self._name, BlockingConnectionPool, **self._options)
            client = self._clients[address] = make_client(pool)
        return client

    # ------------------------------------------------------------------ commands without one key

    async def _run_everywhere(self, watch: ClusterWatch, command: Words) -> Any:
        """Send to all owners of slots, except those that are away. Return one of the replies."""
        found = await asyncio.gather(
            *(self._send(watch, one, [command]) for one in sorted(watch.owners)), return_exceptions=True
        )
        replies = [one[0] if isinstance(one, list) else one for one in found]
        fine = [reply for reply in replies if not isinstance(reply, BaseException)]
        if fine:
            return fine[0]
        if isinstance(replies[0], RedisError):
            return replies[0]
        raise replies[0]

    async def _scan(self, watch: ClusterWatch, command: Words) -> Any:
        """Return a page of keys: from one node if all that match lie there, else from all in turn.

        The cursor names the node as well. Raises BusDown while keys move, as some would be missed.
        """
        until = time.monotonic() + WAIT_S
        while True:
            try:
                return await self._scan_once(watch, command)
            except BusDown:
                if str(command[1]) != "0" or time.monotonic() > until:
                    raise
            await asyncio.sleep(TRY_AGAIN_S)

    async def _scan_once(self, watch: ClusterWatch, command: Words) -> Any:
        pattern = pattern_of(command)
        slot = slot_of_pattern(pattern)
        owners = sorted(watch.owners) if slot is None else [watch.owner(slot)]
        nodes = {f"{host}:{port}": (host, port) for host, port in owners}
        told = command[1].decode() if isinstance(command[1], bytes) else str(command[1])
        name, _, cursor = told.rpartition("@")
        here = name or next(iter(nodes))
        if here not in nodes:
            raise BusDown("keys moved to another node while they were searched for")
        probe = [] if slot is None else [("GET", absent_key(pattern))]
        replies = await self._send(watch, nodes[here], [(command[0], cursor, *command[2:]), *probe])
        if slot is not None and _is_redirect(replies[1]):  # some keys of a moving slot are elsewhere
            if isinstance(replies[1], MovedError):
                watch.note(slot, replies[1].host, replies[1].port, nodes[here])
            raise BusDown(f"slot {slot} moves to another node, and its keys cannot be searched for meanwhile")
        if isinstance(replies[0], Exception):
            return replies[0]
        following, page = replies[0]
        if following not in (b"0", "0", 0):
            return [f"{here}@{int(following)}".encode(), page]
        left = list(nodes)[list(nodes).index(here) + 1 :]
        return [f"{left[0]}@0".encode() if left else b"0", page]

    async def _try_together(self, watch: ClusterWatch, commands: Sequence[Words]) -> list[Any]:
        """Queue the commands and discard them, to test rights: a node checks these before it says MOVED."""
        replies = await self._send(watch, watch.owner(self._near), commands)
        return [b"QUEUED" if _is_redirect(reply) else reply for reply in replies]


class ClusterPipeline:
    """Commands that are run together."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._commands: list[Words] = []

    def execute_command(self, *command: Arg) -> None:
        """Add a command."""
        self._commands.append(command)

    async def execute(self, *, raise_on_error: bool) -> list[Any]:
        """Run the commands; error replies stand among the replies, whatever `raise_on_error` is."""
        del raise_on_error
        return await self._client.run(self._commands) if self._commands else []


def _is_redirect(reply: Any) -> bool:
    return isinstance(reply, AskError | TryAgainError)
