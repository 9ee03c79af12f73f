"""Writes changes to a server's ledger again that the server may have forgotten; only those that it lacks."""

import secrets
from collections.abc import Sequence
from typing import Any, Final

from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.money.scripts import EPOCH, GIVING, RESTORING, check_words, commands_again
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Arg, Commands
from toolgate_bus.transport.redis.client.refusals import refusal_of

CHECKED: Final = 500
"""Number of changes that one command checks for being lacking."""
PART: Final = 100
"""Number of changes that one command writes again."""
_log = get_logger("toolgate.ledger")


class LedgerRecovery:
    """One recovery: everything that one writer changed lately, in one epoch.

    It goes in parts, so that others have their turn between them. Each part leaves a mark behind it, and the
    next part does not count without that mark: all parts are on one server, or on a copy that followed it.
    """

    def __init__(self, commands: Commands, prefix: str, epoch: str, writer: str) -> None:
        self._commands, self._prefix, self._epoch, self._writer = commands, prefix, epoch, writer
        self._mark = ""
        """Mark behind the part before."""

    async def write_again(self, steps: Sequence[Any], number: int) -> int:
        """Implement `EpochPort.write_again`. Changes that are there, nearly always all, are left alone."""
        await EPOCH.load(self._commands)
        lacking = list[Any]()
        for at in range(0, len(steps), CHECKED):
            found = await self._find_lacking(steps[at : at + CHECKED])
            if found is None:
                return 0
            lacking += found
        if lacking:
            for script in (RESTORING, GIVING):
                await script.load(self._commands)
        for at in range(0, len(lacking), PART):
            part = lacking[at : at + PART]
            asked = [command for step in part for command in commands_again(self._prefix, step, self._epoch)]
            if not await self._write_part(asked):
                return 0
        declared = await self._write_part([], number)
        if lacking and declared:
            _log.warning("the ledger lacked changes: they were written again", changes=len(lacking))
        return declared

    async def _find_lacking(self, part: Sequence[Any]) -> list[Any] | None:
        """Return the changes that the ledger lacks; None if it is another one, or lacks an earlier part."""
        words = [word for step in part for word in check_words(step)]
        asked = EPOCH.command(self._prefix, words=("lacks", "", *words, self._writer))
        found, made = await self._run([asked])
        if isinstance(found, Exception):
            raise refusal_of(asked, found)
        return [part[place] for place in found] if int(made) else None

    async def _write_part(self, asked: Sequence[tuple[Arg, ...]], number: int | str = "") -> int:
        """Write one part and declare the number of changes behind it. Return the reply, or 0 as above."""
        replies = await self._run(asked, number)
        errors = [
            refusal_of(command, reply)
            for command, reply in zip(asked, replies, strict=False)
            if isinstance(reply, Exception)
        ]
        for error in errors:
            if not isinstance(error, ConfigError):
                raise error
        if errors:  # somebody wrote over the keys of these changes: they fail for ever
            said = str(errors[0])
            _log.error("changes of the ledger cannot be written again", changes=len(errors), error=said)
        return int(replies[-1])

    async def _run(self, asked: Sequence[tuple[Arg, ...]], number: int | str = "") -> list[Any]:
        """Run the commands and the mark behind them, and return the replies. The last reply is the mark's."""
        before, self._mark = self._mark, secrets.token_hex(8)
        words = ("declare", self._epoch, number, before, self._mark, self._writer)
        declared = EPOCH.command(self._prefix, words=words)
        replies = await self._commands.pipeline([*asked, declared])
        if isinstance(replies[-1], Exception):
            raise refusal_of(declared, replies[-1])
        return replies
