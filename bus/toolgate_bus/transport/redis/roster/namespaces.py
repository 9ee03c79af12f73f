"""A bounded look for other namespaces in which schedulers are alive, in case a namespace is misspelled.

Users under ACL rules usually may not list keys. The server refuses them.
"""

import asyncio
import difflib
import re
from typing import Any, Final

from toolgate_bus.protocol.names import NAME_PATTERN
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_bus.transport.redis.roster.roster_sets import KINDS

PATTERN: Final = "tg:{*}:roster:schedulers:*"
PAGE: Final = 1000
MAX_PAGES: Final = 100
"""Pages of the server's keys that are read. Where it has more keys, some namespaces are not found."""
MAX_FOUND: Final = 1000
MAX_NAMESPACES: Final = 16
"""Namespaces whose rosters are read: those with the names most like one's own."""
_KEY: Final = re.compile(r"tg:\{([^{}:]+)\}:roster:schedulers:\d+")
_NAME: Final = re.compile(NAME_PATTERN)


async def find_namespaces(commands: Commands, own: str) -> dict[str, frozenset[str]]:
    """Return the names of the schedulers that are alive in other namespaces; raises ToolgateError."""
    cursor: Any = "0"
    names: set[str] = set()
    for _ in range(MAX_PAGES):
        cursor, page = await commands.execute("SCAN", cursor, "MATCH", PATTERN, "COUNT", PAGE)
        for key in page:
            found = _KEY.fullmatch(key.decode("utf-8", "replace"))
            if found and found[1] != own and _NAME.fullmatch(found[1]):
                names.add(found[1])
        if cursor in (b"0", "0", 0) or len(names) >= MAX_FOUND:
            break
    shown = sorted(names, key=lambda name: (-difflib.SequenceMatcher(None, own, name).ratio(), name))[
        :MAX_NAMESPACES
    ]
    views = await asyncio.gather(*(Roster(commands, name, (KINDS["s"],)).read() for name in shown))
    return {
        name: frozenset(member.name for member in view.members)
        for name, view in zip(shown, views, strict=True)
        if view.members
    }
