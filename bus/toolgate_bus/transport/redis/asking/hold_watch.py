"""Checks that the holds for which an orchestrator waits are still stored, and finds questions to ask again.

A server that was emptied, or an older one that took over, has forgotten which scheduler holds a call: nobody
would ever answer, and the call would wait until its hold runs out. Times are arguments, in seconds of a
monotonic clock. Others publish a question again.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Commands, HoldPlace
from toolgate_bus.transport.redis.roster.roster_sets import Command

EVERY_S: Final = 2.0
"""Seconds between two looks, if nothing is missing and no connection was lost."""
MAX_COUNT: Final = 256
"""Maximum number of holds in one look; if there are more, the next look is at others."""
FIRST_AGAIN_S: Final = 2.0
LAST_AGAIN_S: Final = 30.0
"""Longest pause before one question is asked again, in seconds; each is twice the one before."""
_log = get_logger("toolgate.bus")


class HoldWatch:
    """Asks first how many of the holds are there; only if too few are, it asks which.

    An answered hold is deleted after its answer, which may be on its way here. So a missing hold counts as
    lost if it is still missing, and still waited for, at the next look.
    """

    def __init__(self, keys: Keys, held: Callable[[], Sequence[HoldPlace]]) -> None:
        self._keys, self._held = keys, held
        self._due = 0.0
        self._asked: Sequence[HoldPlace] = ()
        self._at = 0
        self._suspects: frozenset[HoldPlace] = frozenset()
        self._pauses: dict[HoldPlace, tuple[float, float]] = {}
        """Holds that were asked again, each with the earliest next time and the pause after that."""
        self._told = False

    def hurry(self) -> None:
        """Look with the next heartbeat: the connection was lost, and is back."""
        self._due = 0.0

    async def look(self, commands: Commands) -> list[HoldPlace]:
        """Ask, if it is time. Return the lost holds whose questions should be asked again."""
        if not (query := self.command(time.monotonic())):
            return []
        (found,) = await commands.pipeline(query)
        if not (queries := self.details(found)):
            return []
        return self.take(await commands.pipeline(queries), time.monotonic())

    def command(self, now: float) -> list[Command]:
        """Return the command that asks how many of the holds are there; none if it is not time."""
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
        """Return the commands that ask which holds are there, if the reply says that some are not."""
        if isinstance(reply, Exception):
            if not self._told:
                self._told = True
                _log.warning("it cannot be checked whether calls are still held", error=str(reply))
            return []
        if reply == len(self._asked):
            self._suspects = self._suspects.difference(self._asked)
            return []
        return [("EXISTS", self._key(one)) for one in self._asked]

    def take(self, replies: Sequence[Any], now: float) -> list[HoldPlace]:
        """Take the replies to `details`. Return the holds that are lost."""
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
