"""Reads the URL of a cluster: `redis+cluster://h1[:port],h2[,…]`, `rediss+cluster://` with TLS.

It may name any of the nodes; these tell the others. All nodes have the same user and password. Pure: it does
not check whether any node answers.
"""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from toolgate_bus.protocol.host_list import Address, AddressMap, has_scheme, read_address_map, read_hosts

CLUSTER_SCHEMES: Final = ("redis+cluster", "rediss+cluster")
CLUSTER_OPTIONS: Final = ("address_map",)
"""Options that the URL of a cluster may have besides those of TLS."""
CLUSTER_PORT: Final = 6379
CLUSTER_FORM: Final = "redis+cluster://host1[:port],host2[,…] (rediss+cluster:// with TLS)"


@dataclass(frozen=True, slots=True)
class ClusterUrl:
    """Parts of the URL of a cluster."""

    nodes: tuple[Address, ...]
    scheme: str
    """Protocol of the nodes: `redis`, or `rediss` with TLS."""
    credentials: str = field(repr=False)
    """User and password as the URL has them, including the `@`."""
    address_map: AddressMap
    options: tuple[tuple[str, str], ...] = field(repr=False)
    """Options of TLS."""

    def server_url(self, address: Address) -> str:
        """Return the URL of the node at this address."""
        host, port = address
        query = f"?{urlencode(self.options)}" if self.options else ""
        return f"{self.scheme}://{self.credentials}{host}:{port}{query}"

    @property
    def name(self) -> str:
        """Name of the cluster for people, with its first node."""
        host, port = self.nodes[0]
        return f"the cluster of {host}:{port}"


def is_cluster_url(url: str) -> bool:
    """Return whether the URL names a cluster rather than a server."""
    return has_scheme(url, CLUSTER_SCHEMES)


def read_cluster_url(url: str) -> ClusterUrl:
    """Read the URL of a cluster. Raises ValueError that names the wrong part and shows no password."""
    parts = urlsplit(url)
    _, at, hosts = parts.netloc.rpartition("@")
    if parts.path not in ("", "/", "/0"):
        raise ValueError(f"a cluster has only database 0; it must look like {CLUSTER_FORM}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    return ClusterUrl(
        nodes=read_hosts(hosts, CLUSTER_PORT, "cluster", CLUSTER_FORM),
        scheme=parts.scheme.removesuffix("+cluster"),
        credentials=parts.netloc[: -len(hosts)] if at and hosts else "",
        address_map=read_address_map(options.pop("address_map", "")),
        options=tuple(options.items()),
    )
