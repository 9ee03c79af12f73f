"""Reads the URL of sentinels: `redis+sentinel://h1:26379,h2,h3/SERVICE[/DB]`, `rediss+…` with TLS.

User and password are those of the servers. `sentinel_username` and `sentinel_password` are those of the
sentinels, if they need any. Pure: it does not check whether any sentinel answers.
"""

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from toolgate_bus.protocol.host_list import Address, AddressMap, has_scheme, read_address_map, read_hosts

SCHEMES: Final = ("redis+sentinel", "rediss+sentinel")
SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password", "address_map")
"""Options that only the URL of sentinels may have."""
SENTINEL_PORT: Final = 26379
FORM: Final = "redis+sentinel://host1:26379,host2,host3/SERVICE[/DB] (rediss+sentinel:// with TLS)"
_SERVICE: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """Parts of the URL of sentinels."""

    sentinels: tuple[Address, ...]
    service: str
    """Name under which the sentinels know the primary and its replicas."""
    db: int
    scheme: str
    """Protocol of the servers behind them: `redis`, or `rediss` with TLS."""
    credentials: str = field(repr=False)
    """User and password of the servers as the URL has them, including the `@`."""
    sentinel_username: str
    sentinel_password: str = field(repr=False)
    address_map: AddressMap
    """Map from the servers' addresses that the sentinels report to those at which they are reached."""
    options: tuple[tuple[str, str], ...] = field(repr=False)
    """Options of TLS, for servers and sentinels."""

    def server_url(self, address: Address) -> str:
        """Return the URL of the server at this address."""
        host, port = address
        return f"{self.scheme}://{self.credentials}{host}:{port}/{self.db}{self._query}"

    def sentinel_url(self, address: Address) -> str:
        """Return the URL of a sentinel without credentials, because those may hold any character."""
        host, port = address
        return f"{self.scheme}://{host}:{port}{self._query}"

    @property
    def _query(self) -> str:
        return f"?{urlencode(self.options)}" if self.options else ""


def is_sentinel_url(url: str) -> bool:
    """Return whether the URL names sentinels rather than a server."""
    return has_scheme(url, SCHEMES)


def read_sentinel_url(url: str) -> SentinelUrl:
    """Read the URL of sentinels. Raises ValueError that names the wrong part and shows no password."""
    parts = urlsplit(url)
    _, at, hosts = parts.netloc.rpartition("@")
    credentials = parts.netloc[: -len(hosts)] if at and hosts else ""
    service, _, db = parts.path.removeprefix("/").partition("/")
    if not _SERVICE.fullmatch(service):
        raise ValueError(f"the name of the service is missing or wrong; it must look like {FORM}")
    if not re.fullmatch(r"[0-9]{0,5}", db):
        raise ValueError(f"the database must be a number; it must look like {FORM}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    username, password, mapped = (options.pop(name, "") for name in SENTINEL_OPTIONS)
    return SentinelUrl(
        read_hosts(hosts, SENTINEL_PORT, "sentinel", FORM),
        service,
        int(db or 0),
        parts.scheme.removesuffix("+sentinel"),
        credentials,
        username,
        password,
        read_address_map(mapped),
        tuple((name, value) for name, value in options.items()),
    )
