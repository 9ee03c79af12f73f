"""Commands that only look: whoever has them cannot change the server, by mistake or otherwise."""

from collections.abc import Sequence
from typing import Any, Final

from toolgate_bus.errors import TransportError
from toolgate_bus.transport.ports import Arg, Commands, override

LOOKS: Final = frozenset(
    {
        *("PING", "TIME", "INFO", "PTTL", "SCAN", "GET", "MGET", "HGETALL", "HMGET", "SMEMBERS", "SCARD"),
        *("SRANDMEMBER", "ZRANGE", "XLEN", "XRANGE", "XREVRANGE", "XPENDING"),
    }
)
LOOKS_AT: Final = frozenset(
    {
        *(("XINFO", "STREAM"), ("XINFO", "GROUPS"), ("XINFO", "CONSUMERS"), ("CONFIG", "GET")),
        *(("MEMORY", "USAGE"), ("ACL", "WHOAMI"), ("ACL", "DRYRUN"), ("LATENCY", "LATEST")),
    }
)
TIDYING: Final = frozenset({"SREM"})
"""Commands by which readers remove stale names from sets; here they do nothing."""


class ReadOnlyCommands(Commands):
    """`Commands` that let only reads through; raises TransportError for anything else."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    @override
    async def execute(self, *command: Arg) -> Any:
        return 0 if not _looks(command) else await self._commands.execute(*command)

    @override
    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        run = [command for command in commands if _looks(command)]
        replies = iter(await self._commands.pipeline(run) if run else [])
        return [next(replies) if _looks(command) else 0 for command in commands]


def _looks(command: Sequence[Arg]) -> bool:
    """Return whether to run a command. Raises TransportError if it could change something."""
    name, *rest = (str(word).upper() for word in command[:2])
    if name in LOOKS or (name, *rest) in LOOKS_AT:
        return True
    if name not in TIDYING:
        raise TransportError(f"a check may only read, but {name} could change something")
    return False


def is_refusal(reply: Any) -> bool:
    """Return whether a reply or error says that this user lacks the right."""
    return isinstance(reply, Exception) and "no permissions" in str(reply).casefold()
