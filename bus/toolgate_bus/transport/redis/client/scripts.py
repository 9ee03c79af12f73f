"""Lua scripts that the packages bring as files, and how the server runs them.

Every script can be repeated: one whose outcome is unknown is simply sent again.
"""

import hashlib
import pkgutil
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

from toolgate_bus.errors import OutcomeUnknown, TransportError
from toolgate_bus.transport.ports import Arg, Commands

ATTEMPTS: Final = 3


def is_not_loaded(reply: Any) -> bool:
    """Return whether a reply says that the server does not have the script."""
    return isinstance(reply, Exception) and ("NOSCRIPT" in str(reply) or "No matching script" in str(reply))


class Script:
    """A script in the folder `lua` of one package: its files in order, read when it first runs."""

    def __init__(self, package: str, *files: str, header: str = "", by_text: bool = False) -> None:
        """`header` is the first line, if a script needs one; `by_text` is for users who may not load any."""
        self._package, self._files, self._header, self._by_text = package, files, header, by_text

    @cached_property
    def text(self) -> str:
        """Text of the script, as the server gets it."""
        parts = [pkgutil.get_data(self._package, f"lua/{file}") or b"" for file in self._files]
        return self._header + b"".join(parts).decode()

    @cached_property
    def sha(self) -> str:
        """Name of the script on the server: the SHA-1 of its text."""
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def command(self, *keys: str, words: tuple[Arg, ...] = ()) -> tuple[Arg, ...]:
        """Return the command that runs it, for a pipeline; the reply is an error if it is not loaded."""
        how = ("EVAL", self.text) if self._by_text else ("EVALSHA", self.sha)
        return (*how, len(keys), *keys, *words)

    async def load(self, commands: Commands) -> None:
        """Load the script into the server. Raises TransportError."""
        await commands.execute("SCRIPT", "LOAD", self.text)

    async def run(
        self,
        commands: Commands,
        *keys: str,
        words: tuple[Arg, ...] = (),
        unknown: Callable[[], None] | None = None,
    ) -> Any:
        """Run the script and return its reply. Raises TransportError if it does not run.

        `unknown` is called each time that it may have run without a reply.
        """
        for attempt in range(ATTEMPTS):
            try:
                return await commands.execute(*self.command(*keys, words=words))
            except OutcomeUnknown:
                if unknown is not None:
                    unknown()
                if attempt == ATTEMPTS - 1:
                    raise
            except TransportError as error:
                if not is_not_loaded(error):
                    raise
                await self.load(commands)
        raise TransportError("the script does not stay loaded")
