"""Which server connections go to: that of a URL, the primary that sentinels name, the owner of a slot.

The only thing that knows servers. Whoever opens connections takes its pools from here, and learns of a move
by its connections being closed: what connects again is led to the new primary.
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
"""So many times the connections, made as they are needed, where each carries one command at a time."""


class Topology(ABC):
    """Where connections go."""

    name: str
    """What it is called where something is wrong with it."""
    example: str
    """The URL of a server as it is reached, for a diagnosis."""
    has_slots = False
    """Whether one command can be about keys of one slot alone."""
    moves = True
    """Whether another server may take the writes by and by: what was under way to this one is lost then."""

    @abstractmethod
    def make_pool(
        self, name: str, near: str = "", kind: type[ConnectionPool] = ConnectionPool, **options: Any
    ) -> ConnectionPool:
        """A pool to the server that takes writes of the key `near`; raises ConfigError."""

    def make_client(self, name: str, connections: int, seconds: float) -> Any:
        """redis-py's client, or what does as well, for ordinary commands; raises ConfigError."""
        pool = self.make_pool(name, kind=BlockingConnectionPool, **_pool_options(connections, seconds))
        return make_client(pool)

    def note_refusal(self, connection: Connection, said: str) -> None:  # noqa: B027 - most need not know
        """The server of a connection said that it is not the one to talk to."""

    def read_refusal(self, said: str) -> TransportError:
        """Our word for what a server said that is not the one to talk to."""
        return Refusal(_name_cluster(said)) if said.startswith(("MOVED", "ASK ")) else BusDown(said)

    async def check_node(self, connection: Connection) -> None:
        """The connection is to a node of a cluster: raises ConfigError where others hold some of the keys."""
        if (masters := await count_masters(connection)) > 1:
            raise ConfigError(f"{self.name}: {_name_cluster(f'{masters} share the keys')}")


def _name_cluster(said: str) -> str:
    return f"the server is one node of a Redis Cluster ({said}): name the cluster, redis+cluster://host:port"


def _pool_options(connections: int, seconds: float) -> dict[str, Any]:
    return {"socket_timeout": seconds, "max_connections": connections, "timeout": seconds}


class FixedTopology(Topology):
    """The server of a URL, whatever it is; its name is looked up with each new connection."""

    moves = False

    def __init__(self, url: str) -> None:
        self.example = url
        parts = urlsplit(url)
        self.name = parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"

    def make_pool(
        self, name: str, near: str = "", kind: type[ConnectionPool] = ConnectionPool, **options: Any
    ) -> ConnectionPool:
        """A pool to it."""
        return make_pool(self.example, name, kind, **options)


class SentinelTopology(Topology):
    """The primary of a service, by what most of its sentinels say when a connection is made."""

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
        """A pool each of whose connections asks the sentinels first, and is closed when the primary moves."""
        return make_primary_pool(self._at, name, kind, **options)


class ClusterTopology(Topology):
    """The owner of a key's slot, by what the nodes of a cluster say when a connection is made."""

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
        """A pool each of whose connections asks the nodes first, and is closed when the slot moves."""
        return make_owner_pool(self._at, slot_of(near), name, kind, **options)

    def make_client(self, name: str, connections: int, seconds: float) -> Any:
        """A client that routes each command by its key."""
        return ClusterClient(self._at, name, **_pool_options(ALONE * connections, seconds))

    def note_refusal(self, connection: Connection, said: str) -> None:
        """Look for the owner anew; where the node says who it is, that is believed."""
        watch_of(self._at).read(said, (connection.host, int(connection.port)))

    def read_refusal(self, said: str) -> TransportError:
        """It is looked for again: nothing that a person would mend."""
        return BusDown(said)

    async def check_node(self, connection: Connection) -> None:
        """It is one, as it should be."""


def topology_of(url: str) -> Topology:
    """That of a URL; raises ConfigError."""
    if is_cluster_url(url):
        return ClusterTopology(url)
    return SentinelTopology(url) if is_sentinel_url(url) else FixedTopology(url)
