"""Looks up the names of servers: one lookup at a time for each name.

A lookup that waits for a name server holds a thread for seconds, and an event loop has few (uvloop: four).
Without this, connections to one dead server would leave no thread for the names of others.
"""

import asyncio
import ipaddress
import socket
from typing import Any
from weakref import WeakKeyDictionary

_lookups: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Future[Any]]]" = WeakKeyDictionary()


async def look_up(host: str) -> None:
    """Wait until it is known that a host has an address. Raises OSError if it has none."""
    if _is_address(host):
        return
    loop = asyncio.get_running_loop()
    lookups = _lookups.setdefault(loop, {})
    lookup = lookups.get(host)
    if lookup is None:
        lookup = asyncio.ensure_future(loop.getaddrinfo(host, None, type=socket.SOCK_STREAM))
        lookups[host] = lookup

        def end(ended: "asyncio.Future[Any]") -> None:
            lookups.pop(host, None)
            if not ended.cancelled():
                ended.exception()  # perhaps nobody waits any longer

        lookup.add_done_callback(end)
    await asyncio.shield(lookup)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
