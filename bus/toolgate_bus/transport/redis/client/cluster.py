"""A cluster: which node owns which slot, and connections to the owner that are closed when the slot moves.

There is one map for each URL and event loop. redis-py's own `NodesManager` asks the nodes for it: for each
new connection, and a few times a second while connections are being made again. Without trouble no node is
asked. A node that sends us elsewhere (MOVED) is believed at once. This module moves no slot.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from toolgate_bus.errors import BusDown, Refusal, ToolgateError, TransportError
from toolgate_bus.protocol.cluster_url import ClusterUrl
from toolgate_bus.protocol.host_list import Address, reach
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.client.driver import (
    AuthenticationError,
    ClusterNode,
    ConnectionPool,
    NodesManager,
    NoPermissionError,
    RedisClusterException,
    RedisConnectionError,
    ResponseError,
    TcpConnection,
    TlsConnection,
    make_pool,
    read_role,
)

ASK_SECONDS: Final = 0.7
"""Longest time that one node may take to list the owners of the slots, in seconds."""
LOOK_SECONDS: Final = 3.0
"""Longest time that the whole search may take, in seconds, whichever nodes are away."""
FRESH_SECONDS: Final = 0.15
"""Age in seconds up to which a map is not asked for again."""
AGAIN_SECONDS: Final = 0.25
"""Seconds between two questions to the nodes while there is trouble."""
TROUBLE_SECONDS: Final = 3.0
"""Seconds after a reconnection during which nodes are asked whether it leads to the right node."""
TOLD_SECONDS: Final = 2.0
"""Seconds for which a node that sent us elsewhere is believed, whatever others say."""
SLOTS: Final = 16384
_log = get_logger("toolgate.bus")

SlotMap = dict[int, list[ClusterNode]]
SlotOwners = dict[int, list[Address]]
"""By slot its master, and the replicas behind it."""


class ClusterWatch:
    """The owners of the slots, for all connections of one event loop."""

    def __init__(self, at: ClusterUrl) -> None:
        self._at = at
        self._slots: SlotMap = {}
        self._nodes: tuple[Address, ...] = ()
        self._looked = float("-inf")
        self._told: dict[int, tuple[float, Address]] = {}
        self._search: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._trouble_until = float("-inf")
        self._open: dict[asyncio.Transport, tuple[Address, int | None]] = {}
        self._strays: set[asyncio.Transport] = set()

    # ------------------------------------------------------------------ connecting and asking

    async def find(self, slot: int) -> Address:
        """Return the owner of a slot, as the nodes say now. Raises BusDown or Refusal."""
        if self._slots and time.monotonic() - self._looked > FRESH_SECONDS:
            self.suspect()
        await self.look()
        return self.owner(slot)

    async def look(self, seconds: float = FRESH_SECONDS) -> None:
        """Fetch a map unless one is at most `seconds` old. Raises BusDown, or Refusal if no wait helps."""
        if self._slots and time.monotonic() - self._looked <= seconds:
            return
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._ask())
            self._search.add_done_callback(_forget)
        await asyncio.shield(self._search)

    def owner(self, slot: int) -> Address:
        """Return the owner by the current map. Raises BusDown."""
        until, told = self._told.get(slot, (0.0, None))
        if told is not None and until > time.monotonic():
            return told
        nodes = self._slots.get(slot)
        if not nodes:
            raise BusDown(
                f"no node of {self._at.name} serves slot {slot}: "
                f"{len(self._slots)} of {SLOTS} slots are covered"
            )
        return nodes[0].host, int(nodes[0].port)

    @property
    def owners(self) -> set[Address]:
        """Nodes that own a slot."""
        told = {address for until, address in self._told.values() if until > time.monotonic()}
        return told.union((nodes[0].host, int(nodes[0].port)) for nodes in self._slots.values())

    def keep(self, transport: asyncio.Transport, address: Address, slot: int | None) -> None:
        """Keep a connection until its node no longer owns the slot, or any slot; then close it."""
        self._open = {one: what for one, what in self._open.items() if not one.is_closing()}
        self._open[transport] = (address, slot)

    # ------------------------------------------------------------------ moves

    def note(self, slot: int, host: str, port: int, said_by: Address) -> None:
        """Note that a node sends us elsewhere for a slot; an empty host is its own."""
        address = reach((host or said_by[0], port), self._at.address_map)
        if self._told.get(slot, (0.0, None))[1] != address:
            _log.warning("a slot has moved", slot=slot, to=f"{address[0]}:{address[1]}")
        self._told[slot] = (time.monotonic() + TOLD_SECONDS, address)
        self.suspect()

    def read(self, refusal: str, said_by: Address) -> None:
        """Read a node's refusal: `MOVED 866 10.0.0.1:6379`, or anything else."""
        words = refusal.split()
        if len(words) == 3 and words[0] == "MOVED" and words[1].isdecimal():
            host, _, port = words[2].rpartition(":")
            if port.isdecimal() and int(words[1]) < SLOTS and 0 < int(port[:6]) < 65536:
                self.note(int(words[1]), host, int(port), said_by)
                return
        self.suspect()

    def suspect(self, address: Address | None = None) -> None:
        """Ask the nodes again for a while, as the map seems wrong; no move to `address` is believed."""
        if address is not None:
            self._told = {slot: told for slot, told in self._told.items() if told[1] != address}
        self._trouble_until = time.monotonic() + TROUBLE_SECONDS
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="toolgate-cluster")

    async def _watch(self) -> None:
        while time.monotonic() < self._trouble_until:
            await asyncio.sleep(AGAIN_SECONDS)
            with contextlib.suppress(ToolgateError):
                await self.look()
                self._close_strays()

    def _close_strays(self) -> None:
        """Close connections that go to the wrong node by two looks in a row: one node may be behind."""
        strays = {one for one, (address, slot) in self._open.items() if self._is_stray(address, slot)}
        for transport in strays & self._strays:
            transport.abort()
        self._strays = strays

    def _is_stray(self, address: Address, slot: int | None) -> bool:
        if slot is None:
            return len(self._slots) == SLOTS and address not in self.owners
        return self._owner_or_none(slot) not in (None, address)

    def _owner_or_none(self, slot: int) -> Address | None:
        with contextlib.suppress(BusDown):
            return self.owner(slot)
        return None

    # ------------------------------------------------------------------ asking

    async def _ask(self) -> None:
        slots = await _ask_nodes(self._at, tuple(dict.fromkeys((*self._nodes, *self._at.nodes))))
        self._slots, self._looked = slots, time.monotonic()
        self._nodes = tuple({(node.host, int(node.port)): None for nodes in _lists(slots) for node in nodes})
        now = self._looked
        self._told = {slot: told for slot, told in self._told.items() if told[0] > now}

    async def ask_each(self) -> "dict[Address, SlotOwners | TransportError]":
        """Return the map of each node, whether they agree or not."""
        await self.look()
        return dict(zip(self._nodes, await asyncio.gather(*map(self._ask_one, self._nodes)), strict=True))

    async def _ask_one(self, node: Address) -> "SlotOwners | TransportError":
        try:
            slots = await _ask_nodes(self._at, (node,))
        except TransportError as error:
            return error
        return {slot: [(one.host, int(one.port)) for one in nodes] for slot, nodes in slots.items()}


def _lists(slots: SlotMap) -> Iterator[list[ClusterNode]]:
    """Yield each list of nodes once: a range of slots shares one."""
    yield from {id(nodes): nodes for nodes in slots.values()}.values()


async def _ask_nodes(at: ClusterUrl, nodes: tuple[Address, ...]) -> SlotMap:
    """Return the map of the first of these nodes that answers. Raises BusDown or Refusal."""
    pool = make_pool(
        at.server_url(nodes[0]),
        "toolgate-cluster",
        socket_timeout=ASK_SECONDS,
        socket_connect_timeout=ASK_SECONDS,
    )
    options = {**pool.connection_kwargs, "connection_class": pool.connection_class}
    for name in ("host", "port"):
        options.pop(name, None)
    made = [ClusterNode(host, port, **options) for host, port in nodes]
    manager = NodesManager(made, False, options, address_remap=partial(reach, mapped=at.address_map))
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await manager.initialize()
    except RedisClusterException as error:
        raise _explain(at, error) from None
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, IndexError) and not manager.slots_cache:
            return {}  # no node owns any slot: look for an owner nevertheless
        raise BusDown(f"a node of {at.name} sent a malformed list of the slots: {error!r}") from None
    except TimeoutError:
        raise BusDown(f"no node of {at.name} answers within {LOOK_SECONDS:.0f} s") from None
    finally:
        await asyncio.gather(*(node.disconnect() for node in made), return_exceptions=True)
    return manager.slots_cache


def _explain(at: ClusterUrl, error: RedisClusterException) -> TransportError:
    """Return an error that says why there is no map."""
    said = str(error)
    if "could not agree" in said:
        said = said.partition(": ")[2]
        return BusDown(f"the nodes of {at.name} disagree on the owners of the slots: {said}")
    causes = list(_causes(error))
    refused = next((one for one in causes if isinstance(one, AuthenticationError | NoPermissionError)), None)
    if refused is not None:
        return Refusal(f"the nodes of {at.name} refuse these credentials, or the right to ask: {refused}")
    wrong = next((one for one in causes if isinstance(one, ResponseError)), None)
    if wrong is not None and "cluster support disabled" in str(wrong):
        return Refusal(
            f"{at.name} is not a cluster: its servers are no nodes of a Redis Cluster; "
            f"name one server as {at.scheme}://host:port"
        )
    return BusDown(f"no node of {at.name} answers: {wrong or causes[-1]}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _forget(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        task.exception()


_watches: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ClusterUrl, ClusterWatch]]" = WeakKeyDictionary()


def watch_of(at: ClusterUrl) -> ClusterWatch:
    """Return the watch of the running loop."""
    watches = _watches.setdefault(asyncio.get_running_loop(), {})
    if at not in watches:
        watches[at] = ClusterWatch(at)
    return watches[at]


# ---------------------------------------------------------------------- connections that follow a slot


class _OwnerMixin:
    """A connection to the current owner of a slot; without a slot, to one node."""

    toolgate_at: ClusterUrl
    toolgate_slot: int | None
    host: str
    port: int
    _writer: Any

    async def _connect(self) -> None:
        watch, slot = watch_of(self.toolgate_at), self.toolgate_slot
        if slot is not None:
            self.host, self.port = await watch.find(slot)
        address = (self.host, int(self.port))
        try:
            await super()._connect()  # type: ignore[misc]  # redis-py's own, of the class that is mixed in
        except BaseException:
            watch.suspect(address)
            raise
        watch.keep(self._writer.transport, address, slot)

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        """Authenticate as always. Raises a RedisConnectionError caused by BusDown if it is a replica."""
        await super().on_connect_check_health(check_health=check_health)  # type: ignore[misc]  # as above
        if self.toolgate_slot is not None and await read_role(self) == b"replica":
            watch_of(self.toolgate_at).suspect((self.host, int(self.port)))
            moved = BusDown(f"READONLY {self.host}:{self.port} is a replica, and the cluster says it is not")
            raise RedisConnectionError(str(moved)) from moved


class _OwnerConnection(_OwnerMixin, TcpConnection):
    """Connection by TCP."""


class _OwnerTlsConnection(_OwnerMixin, TlsConnection):
    """Connection by TLS."""


def make_owner_pool(
    at: ClusterUrl, to: int | Address, name: str, kind: type[ConnectionPool], **options: Any
) -> ConnectionPool:
    """Make a pool of connections to the owner of a slot, or to one node. Raises ConfigError."""
    slot = to if isinstance(to, int) else None
    pool = make_pool(at.server_url(at.nodes[0] if isinstance(to, int) else to), name, kind, **options)
    base = _OwnerTlsConnection if at.scheme == "rediss" else _OwnerConnection
    pool.connection_class = type(base.__name__, (base,), {"toolgate_at": at, "toolgate_slot": slot})
    return pool
