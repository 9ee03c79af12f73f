"""Hosts as a browser resolves them: one spelling for each host, or none if a host has two readings. Pure.

Names become A-labels by IDNA 2008 with the mapping of UTS 46. So "ß" stays apart from "ss", and letters that
mean the same (capitals, full-width letters, a soft hyphen within) make the same name. A last dot, percent
signs and the numeric forms of IPv4 (`0x7f.1`, `2130706433`) are read as the URL standard says.
"""

import ipaddress
import re
import unicodedata
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

MAX_HOST: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PART: Final = re.compile(r"0|[1-9][0-9]*|0x[0-9a-f]+")
_OTHER_READING: Final = "\u1e9e"
"""The capital sharp s: "ss" for some readers, "ß" for others."""


@lru_cache(maxsize=1024)
def canonical_host(host: str) -> str | None:
    """Return the one spelling of a host; None if readers disagree about it or it is no host.

    A name is returned as A-labels without a last dot, IPv4 as four numbers, IPv6 in brackets.
    """
    if not host or len(host) > 4 * MAX_HOST:
        return None
    if host.startswith("["):
        return _read_ipv6(host)
    name = host
    if "%" in name:
        try:
            name = unquote_to_bytes(name).decode()
        except UnicodeError:
            return None
        if "%" in name:
            return None
    labels = _split(name)
    if labels is None:
        return None
    if _NUMBER.fullmatch(labels[-1]):
        return _read_ipv4(labels)
    named = [_read_label(label) for label in labels]
    if None in named:
        return None
    whole = ".".join(label for label in named if label is not None)
    return whole if len(whole) <= MAX_HOST else None


def is_address(host: str) -> bool:
    """Return whether a canonical host is an IP address and no name."""
    return host.startswith("[") or host.rpartition(".")[2].isdecimal()


def _split(name: str) -> list[str] | None:
    """Return the labels of a name, mapped by UTS 46; None if one is empty or a character is not allowed."""
    mapped = name.lower() if name.isascii() else _map(name)
    if mapped is None:
        return None
    labels = mapped.removesuffix(".").split(".")
    return labels if all(labels) else None


def _map(name: str) -> str | None:
    import idna  # late: its tables take 20 ms to load, and most hosts are plain

    if _OTHER_READING in name or any(_hides_sign(letter) for letter in name):
        return None
    try:
        return idna.uts46_remap(name, std3_rules=False, transitional=False).lower()
    except (idna.IDNAError, UnicodeError):
        return None


def _hides_sign(letter: str) -> bool:
    """Return whether a letter becomes a sign that ends hosts: readers differ in when they map it."""
    return not letter.isascii() and any(
        sign in "/\\?#@:%[]<>|^ " for sign in unicodedata.normalize("NFKC", letter)
    )


def _read_label(label: str) -> str | None:
    if label.isascii() and not label.startswith("xn--"):
        return label if _LABEL.fullmatch(label) else None
    import idna

    try:
        if not label.isascii():
            return idna.alabel(label).decode()
        again = idna.alabel(idna.ulabel(label)).decode()
    except (idna.IDNAError, UnicodeError):
        return None
    return label if again == label else None


def _read_ipv4(labels: list[str]) -> str | None:
    """Return four numbers. A part that begins with 0 is octal to some readers, and decimal to others."""
    if len(labels) > 4 or not all(_PART.fullmatch(label) and len(label) <= 16 for label in labels):
        return None
    *bytes_, last = (int(label, 0) for label in labels)
    if any(one > 255 for one in bytes_) or last >= 256 ** (5 - len(labels)):
        return None
    value = last + sum(one << 8 * (3 - place) for place, one in enumerate(bytes_))
    return str(ipaddress.IPv4Address(value))


def _read_ipv6(host: str) -> str | None:
    if not host.endswith("]") or "%" in host:
        return None
    try:
        address = ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return None
    inner = address.ipv4_mapped
    return f"[{address.compressed}]" if inner is None else str(inner)
