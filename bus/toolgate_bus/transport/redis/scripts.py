"""Runs a Lua script on the server by its digest, and loads it where it is not there yet.

For scripts that may be repeated: one whose outcome is unknown is simply sent again.
"""

import hashlib
from functools import cache
from typing import Any, Final

from toolgate_bus.errors import OutcomeUnknown, TransportError
from toolgate_bus.transport.ports import Commands

__all__ = ["run_script"]

ATTEMPTS: Final = 3


@cache
def _digest(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


async def run_script(commands: Commands, script: str, prefix: str, *words: str | int | bytes) -> Any:
    """What the script replies, with `prefix` as its key; raises TransportError where it does not run."""
    tail = (1, prefix, *words)
    for attempt in range(ATTEMPTS):
        try:
            return await commands.execute("EVALSHA", _digest(script), *tail)
        except OutcomeUnknown:
            if attempt == ATTEMPTS - 1:
                raise
        except TransportError as error:
            if "NOSCRIPT" not in str(error) and "No matching script" not in str(error):
                raise
            await commands.execute("SCRIPT", "LOAD", script)
    raise TransportError("the script does not stay loaded")
