"""Lua scripts that the packages bring as files, and how the server runs them.

All of them may be repeated: one whose outcome is unknown is simply sent again.
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
    """Whether the server says that it has no such script."""
    return isinstance(reply, Exception) and ("NOSCRIPT" in str(reply) or "No matching script" in str(reply))


class Script:
    """A script of one package's folder `lua`: its files in a row, read when it is first run."""

    def __init__(self, package: str, *files: str, header: str = "", by_text: bool = False) -> None:
        """`header` is the first line of a script that needs one; `by_text` is for users who may load none."""
        self._package, self._files, self._header, self._by_text = package, files, header, by_text

    @cached_property
    def text(self) -> str:
        """What the server is given."""
        parts = [pkgutil.get_data(self._package, f"lua/{file}") or b"" for file in self._files]
        return self._header + b"".join(parts).decode()

    @cached_property
    def sha(self) -> str:
        """What the server calls it."""
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def command(self, *keys: str, words: tuple[Arg, ...] = ()) -> tuple[Arg, ...]:
        """What runs it, for a pipeline; where the server has it not, the reply is an error."""
        how = ("EVAL", self.text) if self._by_text else ("EVALSHA", self.sha)
        return (*how, len(keys), *keys, *words)

    async def load(self, commands: Commands) -> None:
        """Have the server know it; raises TransportError."""
        await commands.execute("SCRIPT", "LOAD", self.text)

    async def run(
        self,
        commands: Commands,
        *keys: str,
        words: tuple[Arg, ...] = (),
        unknown: Callable[[], None] | None = None,
    ) -> Any:
        """What it replies; raises TransportError where it does not run.

        `unknown` is called each time that it may have run, and nobody knows.
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
