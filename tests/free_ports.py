"""Ports for servers that tests start by themselves, and that must be had again after a kill.

They lie below those that the system gives to whoever connects: one of those may be a client's by the time its
server begins, or comes back, and a client that calls where nobody is may be connected to itself.
"""

import random
import socket
from pathlib import Path
from typing import Final

LOWEST: Final = 12_000
USUAL: Final = 32_768
"""Where the system's own begin, unless it is told otherwise."""
ENOUGH: Final = 28_000
"""Where they begin below this, too few are left: the usual ones are taken all the same."""
GIVEN: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def read_highest(given: str) -> int:
    """Below which port servers lie, by the range that the system gives out of, its first and last port."""
    first = int(given.split()[0])
    return first if first >= ENOUGH else USUAL


HIGHEST: Final = read_highest(GIVEN.read_text()) if GIVEN.exists() else USUAL


def find_free_ports(number: int) -> list[int]:
    """So many that nobody listens at, in any order."""
    found: list[int] = []
    for port in random.sample(range(LOWEST, HIGHEST), HIGHEST - LOWEST):
        if len(found) == number:
            break
        if is_free(port):
            found.append(port)
    return found


def find_free_port() -> int:
    """One."""
    return find_free_ports(1)[0]


def is_free(port: int) -> bool:
    """Whether a server can listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what was just closed does not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
