"""Decides where connections go: to the server of a URL, the primary of sentinels, or the owner of a slot.

No other module knows about kinds of servers. Code that opens connections takes its pools from here, and
learns of a move when its connections close: a new connection leads to the new primary.
"""

from abc import ABC, abstractmethod
from typing import Any, Final
from urllib.parse import urlsplit

from toolgate_bus.errors import BusDown, ConfigError, Refusal, TransportError
from toolgate_bus.protocol.cluster_url import is_cluster_url, read_cluster_url
from toolgate_bus.protocol.sentinel_url import is_sentinel_url, read_sentinel_url
from toolgate_bus.transport.redis.client.cluster import make_owner_pool, watch_of
from toolgate_bus.transport.redis.client.cluster_client import ClusterClient
from toolgate_bus.transport.redis.client.cluster_routes import slot_of
from toolgate_bus.transport.redis.client.driver import (
    BlockingConnectionPool,
    Connection,
    ConnectionPool,
    count_masters,
    make_client,
    make_pool,
)
from toolgate_bus.transport.redis.client.sentinels import make_primary_pool

ALONE: Final = 4
"""Factor for the maximum number of connections, if each carries one command at a time."""


class Topology(ABC):
    """The place to which connections go."""

    name: str
    """Name of the server in error messages."""
    example: str
    """URL of one of its servers, for a diagnosis."""
    has_slots = False
    """True if one command can use keys of one slot only."""
    moves = True
    """True if another server may take over the writes; commands under way to this one are then lost."""

    @abstractmethod
    def make_pool(
        self, name: str, near: str = "", kind: type[ConnectionPool] = ConnectionPool, **options: Any
    ) -> ConnectionPool:
        """Make a pool for the server that takes writes of the key `near`. Raises ConfigError."""

    def make_client(self, name: str, connections: int, seconds: float) -> Any:
        """Make redis-py's client, or a replacement, for ordinary commands. Raises ConfigError."""
        pool = self.make_pool(name, kind=BlockingConnectionPool, **_pool_options(connections, seconds))
        return make_client(pool)

    def note_refusal(self, connection: Connection, said: str) -> None:  # noqa: B027 - most need not know
        """Note that the server of a connection said that it cannot be used."""

    def read_refusal(self, said: str) -> TransportError:
        """Return our error for a server's reply that it cannot be used."""
        return Refusal(_name_cluster(said)) if said.startswith(("MOVED", "ASK ")) else BusDown(said)

    async def check_node(self, connection: Connection) -> None:
        """Check a connection to a node of a cluster. Raises ConfigError if others hold some of the keys."""
        if (masters := await count_masters(connection)) > 1:
            raise ConfigError(f"{self.name}: {_name_cluster(f'{masters} share the keys')}")


def _name_cluster(said: str) -> str:
    return f"the server is one node of a Redis Cluster ({said}): name the cluster, redis+cluster://host:port"


def _pool_options(connections: int, seconds: float) -> dict[str, Any]:
    return {"socket_timeout": seconds, "max_connections": connections, "timeout": seconds}


class FixedTopology(Topology):
    """The server of a URL, whatever it is; each new connection looks up its name again."""

    moves = False

    def __init__(self, url: str) -> None:
        self.example = url
        parts = urlsplit(url)
        self.name = parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"

    def make_pool(
        self, name: str, near: str = "", kind: type[ConnectionPool] = ConnectionPool, **options: Any
    ) -> ConnectionPool:
        """Make a pool for the server."""
        return make_pool(self.example, name, kind, **options)


class SentinelTopology(Topology):
    """The primary of a service, as most of its sentinels say when a connection is made."""

    def __init__(self, url: str) -> None:
        try:
            self._at = read_sentinel_url(url)
        except ValueError as error:
            raise ConfigError(f"redis: {error}") from None
        self.example = self._at.server_url(self._at.sentinels[0])
        self.name = f"the primary of {self._at.service}"

    def make_pool(
        self, name: str, near: str = "", kind: type[ConnectionPool] = ConnectionPool, **options: Any
    ) -> ConnectionPool:
        """Make a pool whose connections ask the sentinels first, and are closed when the primary moves."""
        return make_primary_pool(self._at, name, kind, **options)


class ClusterTopology(Topology):
    """The owner of a key's slot, as the nodes of a cluster say when a connection is made."""

    has_slots = True

    def __init__(self, url: str) -> None:
        try:
            self._at = read_cluster_url(url)
        except ValueError as error:
            raise ConfigError(f"redis: {error}") from None
        self.example = self._at.server_url(self._at.nodes[0])
        self.name = self._at.name

    def make_pool(
        self, name: str, near: str = "", kind: type[ConnectionPool] = ConnectionPool, **options: Any
    ) -> ConnectionPool:
        """Make a pool whose connections ask the nodes first, and are closed when the slot moves."""
        return make_owner_pool(self._at, slot_of(near), name, kind, **options)

    def make_client(self, name: str, connections: int, seconds: float) -> Any:
        """Make a client that routes each command by its key."""
        return ClusterClient(self._at, name, **_pool_options(ALONE * connections, seconds))

    def note_refusal(self, connection: Connection, said: str) -> None:
        """Look for the owner again; if the node names it, that is believed."""
        watch_of(self._at).read(said, (connection.host, int(connection.port)))

    def read_refusal(self, said: str) -> TransportError:
        """Return BusDown: the owner is looked for again, and a person need mend nothing."""
        return BusDown(said)

    async def check_node(self, connection: Connection) -> None:
        """Accept the node: it is one of the cluster."""


def topology_of(url: str) -> Topology:
    """Return the topology of a URL. Raises ConfigError."""
    if is_cluster_url(url):
        return ClusterTopology(url)
    return SentinelTopology(url) if is_sentinel_url(url) else FixedTopology(url)
