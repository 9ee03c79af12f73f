"""Ports for servers that tests start by themselves, and that must be had again after a kill.

They lie below those that the system gives to whoever connects: one of those may be a client's by the time its
server begins, or comes back, and a client that calls where nobody is may be connected to itself. Whoever
found one keeps it from other processes, also while its server is down: by a socket for datagrams, which is
gone with the process.
"""

import random
import socket
from collections import deque
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


KEPT: Final = 400
"""So many are kept from others, the latest ones; each takes a descriptor."""
_kept: deque[socket.socket] = deque()
HIGHEST: Final = read_highest(GIVEN.read_text()) if GIVEN.exists() else USUAL


def find_free_ports(number: int) -> list[int]:
    """So many that nobody listens at, in any order; no other process finds them while this one lives."""
    found: list[int] = []
    for port in random.sample(range(LOWEST, HIGHEST), HIGHEST - LOWEST):
        if len(found) == number:
            break
        if is_free(port) and _keep(port):
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


def _keep(port: int) -> bool:
    """Keep a port from other processes; whether none of them has it."""
    keeper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        keeper.bind(("127.0.0.1", port))
    except OSError:
        keeper.close()
        return False
    _kept.append(keeper)
    while len(_kept) > KEPT:
        _kept.popleft().close()
    return True
