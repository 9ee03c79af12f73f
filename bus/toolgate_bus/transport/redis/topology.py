"""Which server connections go to: the one that a URL names, or the primary of a service that sentinels name.

The only thing that knows servers. Whoever opens connections takes its pools from here, and learns of a move
by its connections being closed: what connects again is led to the new primary.
"""

from abc import ABC, abstractmethod
from typing import Any
from urllib.parse import urlsplit

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.sentinel_url import is_sentinel_url, read_sentinel_url
from toolgate_bus.transport.redis.driver import ConnectionPool, make_pool
from toolgate_bus.transport.redis.sentinels import make_primary_pool


class Topology(ABC):
    """Where connections go."""

    name: str
    """What it is called where something is wrong with it."""
    example: str
    """The URL of a server as it is reached, for a diagnosis."""

    @abstractmethod
    def make_pool(
        self, name: str, kind: type[ConnectionPool] = ConnectionPool, **options: Any
    ) -> ConnectionPool:
        """A pool whose connections go to the server that takes writes; raises ConfigError."""


class FixedTopology(Topology):
    """The server of a URL, whatever it is; its name is looked up with each new connection."""

    def __init__(self, url: str) -> None:
        self.example = url
        parts = urlsplit(url)
        self.name = parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"

    def make_pool(
        self, name: str, kind: type[ConnectionPool] = ConnectionPool, **options: Any
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
        self, name: str, kind: type[ConnectionPool] = ConnectionPool, **options: Any
    ) -> ConnectionPool:
        """A pool each of whose connections asks the sentinels first, and is closed when the primary moves."""
        return make_primary_pool(self._at, name, kind, **options)


def topology_of(url: str) -> Topology:
    """That of a URL; raises ConfigError."""
    return SentinelTopology(url) if is_sentinel_url(url) else FixedTopology(url)
