"""Whether the holds that an orchestrator waits for are still stored, and whose question to ask again.

A server that was emptied, or that a failover made of an older one, has forgotten who holds: nobody would ever
answer, and the call would wait until its hold runs out. Times are seconds of a monotonic clock, and are
arguments. Publishing a question again is others' affair.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Commands, HoldPlace
from toolgate_bus.transport.redis.roster.roster_sets import Command

EVERY_S: Final = 2.0
"""Seconds between two looks, where nothing is missing and no connection was lost."""
MAX_COUNT: Final = 256
"""Holds of one look; where there are more, the next look is at others."""
FIRST_AGAIN_S: Final = 2.0
LAST_AGAIN_S: Final = 30.0
"""Seconds between two times that one question is asked again: each pause is twice the one before."""
_log = get_logger("toolgate.bus")


class HoldWatch:
    """Asks in two steps: how many of them are there, and only where that is too few, which.

    An answered hold is deleted behind its answer, which may be on its way to us: what is missing counts as
    lost when it is still missing, and still waited for, at the look after.
    """

    def __init__(self, keys: Keys, held: Callable[[], Sequence[HoldPlace]]) -> None:
        self._keys, self._held = keys, held
        self._due = 0.0
        self._asked: Sequence[HoldPlace] = ()
        self._at = 0
        self._suspects: frozenset[HoldPlace] = frozenset()
        self._pauses: dict[HoldPlace, tuple[float, float]] = {}
        """Of each that was asked again: not before when it is the next time, and the pause after that."""
        self._told = False

    def hurry(self) -> None:
        """Look with the next heartbeat: the connection was lost, and is back."""
        self._due = 0.0

    async def look(self, commands: Commands) -> list[HoldPlace]:
        """Ask, where it is time; gives the holds that are lost, and whose questions are to be asked again."""
        if not (query := self.command(time.monotonic())):
            return []
        (found,) = await commands.pipeline(query)
        if not (queries := self.details(found)):
            return []
        return self.take(await commands.pipeline(queries), time.monotonic())

    def command(self, now: float) -> list[Command]:
        """What asks how many of the holds are there, where it is time; else nothing."""
        if now < self._due:
            return []
        self._due = now + EVERY_S
        held = sorted(self._held())
        self._at = self._at if self._at < len(held) else 0
        self._asked = held[self._at : self._at + MAX_COUNT]
        self._at += MAX_COUNT
        self._suspects = self._suspects.intersection(held)
        self._pauses = {one: pause for one, pause in self._pauses.items() if one in self._suspects}
        if not self._asked:
            return []
        return [("EXISTS", *map(self._key, self._asked))]

    def details(self, reply: Any) -> list[Command]:
        """What asks which of them are there, where the reply says that not all are."""
        if isinstance(reply, Exception):
            if not self._told:
                self._told = True
                _log.warning("it cannot be seen whether calls are still held", error=str(reply))
            return []
        if reply == len(self._asked):
            self._suspects = self._suspects.difference(self._asked)
            return []
        return [("EXISTS", self._key(one)) for one in self._asked]

    def take(self, replies: Sequence[Any], now: float) -> list[HoldPlace]:
        """The replies to `details`; gives the holds that are lost."""
        missing = frozenset(one for one, reply in zip(self._asked, replies, strict=True) if reply == 0)
        lost = [one for one in self._asked if one in missing & self._suspects and self._may_ask(one, now)]
        if missing - self._suspects:
            self._due, self._at = 0.0, self._at - MAX_COUNT
        self._suspects = self._suspects.difference(self._asked) | missing
        return lost

    def _may_ask(self, one: HoldPlace, now: float) -> bool:
        at, pause = self._pauses.get(one, (now, FIRST_AGAIN_S))
        if now < at:
            return False
        self._pauses[one] = (now + pause, min(LAST_AGAIN_S, pause * 2))
        return True

    def _key(self, one: HoldPlace) -> str:
        return self._keys.hold(*one)
