"""Operators' pauses and stops on the server: the state that lasts, and the notices to look at it.

The state is written first, and orchestrators are told after it. One that does not hear of it looks by itself:
at its start, after each reconnection and every few seconds. `pause_watch` is the orchestrator's side.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.agents import Stop
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.pauses import (
    MARK,
    MAX_PAUSES,
    MAX_STOPS,
    Pause,
    StandingPauses,
    decode_pauses,
    encode_notice,
    encode_pause,
    make_stop,
)
from toolgate_bus.transport.ports import Arg, Commands
from toolgate_bus.transport.redis.client.scripts import Script
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_bus.transport.redis.roster.roster_sets import OLD
from toolgate_bus.transport.redis.storage.agent_directory import ORDERS_KEPT_MS
from toolgate_bus.transport.redis.storage.reads import ask_all, read_hash, read_time

CHANGE: Final = Script(__package__, "change_pauses.lua", by_text=True)
REMEMBERED_MS: Final = 7 * 86_400_000
"""Milliseconds that the time of the last change is remembered after the last pause has ended."""


async def read_pauses(commands: Commands, keys: Keys) -> StandingPauses:
    """Return all pauses and stops that stand. Raises TransportError."""
    now = await read_time(commands)
    return decode_pauses(await read_hash(commands, keys.pauses), int(now * 1000))


class PauseBoard:
    """The pauses and stops of one namespace, as operators change them."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands, self._keys = commands, Keys(namespace)
        self._roster = Roster(commands, namespace, ("orchestrators", OLD))

    async def read(self) -> StandingPauses:
        """Return all that stand. Raises TransportError."""
        return await read_pauses(self._commands, self._keys)

    async def add(self, pause: Pause, for_s: float | None) -> tuple[Pause, int]:
        """Let a pause stand from now on, for `for_s` seconds. Return it with its times, and the mark.

        A pause with a known id is written again. Raises ConfigError if too many stand, and TransportError.
        """
        now = int(await read_time(self._commands) * 1000)
        until = None if for_s is None else now + int(for_s * 1000)
        made = replace(pause, since_ms=now, until_ms=until)
        return made, await self._change((), made)

    async def stop(self, order: Stop) -> tuple[Pause, int]:
        """Let a stop stand from now on, until somebody lifts it. Return it, and the change's mark.

        A stop that means the same is renewed. Raises ConfigError if too many stand, and TransportError.
        """
        standing = (await self.read()).pauses
        return await self.add(make_stop(order, standing, secrets.token_hex(4)), None)

    async def remove(self, ids: Collection[str]) -> int:
        """End these pauses and stops. Return the change's mark. Raises TransportError."""
        return await self._change(ids)

    async def tell(self, order: str, mark: int) -> frozenset[str]:
        """Tell every living orchestrator to look, and to report that under this id. Return those told.

        Raises TransportError.
        """
        orchestrators = sorted((await self._roster.read()).orchestrators)
        frame = encode_notice(order, mark)
        commands: list[Sequence[Arg]] = []
        for one in orchestrators:
            key = self._keys.control(one)
            commands += [
                ("XADD", key, "*", "event", "pauses", "frame", frame),
                ("PEXPIRE", key, ORDERS_KEPT_MS),
            ]
        await ask_all(self._commands, commands)
        return frozenset(orchestrators)

    async def _change(self, gone: Collection[str], made: Pause | None = None) -> int:
        put: tuple[Arg, ...] = () if made is None else (made.id, encode_pause(made))
        is_stop = made is not None and made.stop
        most = MAX_STOPS if is_stop else MAX_PAUSES
        words: tuple[Arg, ...] = (MARK, most, REMEMBERED_MS, len(gone), *sorted(gone), *put)
        mark = int(await CHANGE.run(self._commands, self._keys.pauses, words=words))
        if not mark:
            what, do = ("stops", "lift") if is_stop else ("pauses", "resume")
            raise ConfigError(f"{most} {what} stand already: {do} some (`toolgate agents resume` lists them)")
        return mark
