"""The URL of a cluster, taken apart: `redis+cluster://h1[:port],h2[,…]`, `rediss+cluster://` with TLS.

Any nodes of it may be named; the others are told by those. User and password are those of all of them.
Pure: whether anybody is there is not its affair.
"""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from toolgate_bus.protocol.host_list import Address, AddressMap, has_scheme, read_address_map, read_hosts

CLUSTER_SCHEMES: Final = ("redis+cluster", "rediss+cluster")
CLUSTER_OPTIONS: Final = ("address_map",)
"""What the URL of a cluster may have besides those of TLS."""
CLUSTER_PORT: Final = 6379
CLUSTER_FORM: Final = "redis+cluster://host1[:port],host2[,…] (rediss+cluster:// with TLS)"


@dataclass(frozen=True, slots=True)
class ClusterUrl:
    """What a URL of a cluster says."""

    nodes: tuple[Address, ...]
    scheme: str
    """What the nodes speak: `redis`, or `rediss` with TLS."""
    credentials: str = field(repr=False)
    """As the URL has them, up to and with the `@`."""
    address_map: AddressMap
    options: tuple[tuple[str, str], ...] = field(repr=False)
    """Those of TLS."""

    def server_url(self, address: Address) -> str:
        """The URL of the node at this address."""
        host, port = address
        query = f"?{urlencode(self.options)}" if self.options else ""
        return f"{self.scheme}://{self.credentials}{host}:{port}{query}"

    @property
    def name(self) -> str:
        """What the cluster is called: by its first node."""
        host, port = self.nodes[0]
        return f"the cluster of {host}:{port}"


def is_cluster_url(url: str) -> bool:
    """Whether it names a cluster rather than a server."""
    return has_scheme(url, CLUSTER_SCHEMES)


def read_cluster_url(url: str) -> ClusterUrl:
    """Take it apart; raises ValueError that says which part is wrong and shows no password."""
    parts = urlsplit(url)
    _, at, hosts = parts.netloc.rpartition("@")
    if parts.path not in ("", "/", "/0"):
        raise ValueError(f"a cluster has database 0 alone; it must look like {CLUSTER_FORM}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    return ClusterUrl(
        nodes=read_hosts(hosts, CLUSTER_PORT, "cluster", CLUSTER_FORM),
        scheme=parts.scheme.removesuffix("+cluster"),
        credentials=parts.netloc[: -len(hosts)] if at and hosts else "",
        address_map=read_address_map(options.pop("address_map", "")),
        options=tuple(options.items()),
    )
