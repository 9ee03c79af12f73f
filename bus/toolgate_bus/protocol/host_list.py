"""Common parts of URLs that name several hosts: the hosts, and the map of announced addresses.

`address_map=ANNOUNCED=REACHED[,…]` is for networks that translate addresses: there, sentinels and nodes are
not reached at the addresses that they announce. An address in it is `host:port`, or a host for all its ports.
Pure.
"""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

MAX_HOSTS: Final = 16
MAX_MAPPED: Final = 1024
_HOST: Final = re.compile(r"([A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")

Address = tuple[str, int]
"""Host and port."""
AddressMap = tuple[tuple[Address, Address], ...]
"""Announced addresses, each with the address at which it is reached; port 0 stands for every port."""


def read_hosts(hosts: str, port: int, what: str, form: str) -> tuple[Address, ...]:
    """Read `host[:port],…`. Raises ValueError that names the wrong part. `what` is the kind of the server."""
    found: dict[Address, None] = {}
    for number, one in enumerate(unquote(hosts).split(","), 1):  # not shown: it may be a password
        match = _HOST.fullmatch(one)
        if match is None:
            raise ValueError(
                f"part {number} of the hosts is not a host of a {what}; it must look like {form}"
            )
        found[match[1], _check_port(f"part {number} of the hosts", match[2] or str(port))] = None
    if len(found) > MAX_HOSTS:
        raise ValueError(f"at most {MAX_HOSTS} hosts can be named")
    return tuple(found)


def read_address_map(text: str) -> AddressMap:
    """Read the value of `address_map`. Raises ValueError that says what is wrong."""
    pairs = text.split(",") if text else []
    if len(pairs) > MAX_MAPPED:
        raise ValueError(f"address_map: at most {MAX_MAPPED} addresses can be mapped")
    return tuple(_read_pair(pair) for pair in pairs)


def _read_pair(pair: str) -> tuple[Address, Address]:
    sides = [_HOST.fullmatch(side) for side in pair.split("=")]
    if len(sides) != 2 or sides[0] is None or sides[1] is None or bool(sides[0][2]) != bool(sides[1][2]):
        raise ValueError(
            f"address_map: {pair!r} must be ANNOUNCED=REACHED, both host:port, or both a host alone"
        )
    announced, reached = (
        (side[1], _check_port(repr(pair), side[2]) if side[2] else 0) for side in sides if side is not None
    )
    return announced, reached


def _check_port(where: str, port: str) -> int:
    if not 0 < int(port) < 65536:
        raise ValueError(f"{where}: a port is a number from 1 to 65535")
    return int(port)


def read_address(host: str, port: str) -> Address | None:
    """Read an address that a server or sentinel reported; None if it is malformed."""
    fine = 0 < len(host) <= 253 and host.isprintable() and port.isdecimal() and 0 < int(port[:6]) < 65536
    return (host, int(port)) if fine else None


def reach(address: Address, mapped: AddressMap) -> Address:
    """Return the address at which an announced address is reached."""
    for announced, reached in mapped:
        if announced == address:
            return reached
        if announced == (address[0], 0):
            return reached[0], address[1]
    return address


def redact_hosts_url(url: str) -> str:
    """Return a URL of several hosts without passwords and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def has_scheme(url: str, schemes: Sequence[str]) -> bool:
    """Return whether a URL has one of these schemes."""
    return url.partition("://")[0].casefold() in schemes
