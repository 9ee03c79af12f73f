"""Tell `toolgate notify` of the calls that wait for approval. Changes nothing.

The entry-point group `toolgate.held_calls` names it. It tells caller and tool, but never arguments, and the
kind of an answer, but never its words.
"""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from toolgate_bus.commands.notify.judges import CallOnHold
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.state.notifications import RedisNotices
from toolgate_bus.telemetry.definitions import OTHER
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.storage.store import RedisStore

from toolgate_schedulers.shipped.approval.queue import ApprovalQueue, WaitingCall

LOOK_S: Final = 1.0
"""Seconds between two looks without a notice while calls wait: nothing announces an expiry."""
QUIET_S: Final = 10.0
"""Seconds between two looks at other times, as each look walks through the server's keys."""
MAX_LOOKS: Final = 16
_ENDS: Final = {"approve": "approved", "deny": "refused", "edit": "corrected"}


class HeldCallReader:
    """Reader of the calls that wait in one namespace."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        notices = RedisNotices(commands, commands, namespace)
        alive = FactsReader(commands, namespace).alive
        self._desk = ApprovalQueue(RedisStore(commands, namespace), notices, alive)
        self._after = "0-0"
        self._found: list[CallOnHold] = []
        self._looked = -math.inf

    async def list_waiting(self) -> Sequence[CallOnHold]:
        """Return the calls that wait now; read them anew after news, or if the last look is too old."""
        news = await self._read_news()
        now = time.monotonic()
        if news or now - self._looked >= (LOOK_S if self._found else QUIET_S):
            self._found = [as_call_on_hold(one) for one in await self._desk.list_waiting()]
            self._looked = now
        return self._found

    async def find_ends(self, ids: Collection[str]) -> Mapping[str, str]:
        """Return the ends of the calls that a person answered."""
        found = {}
        for id_ in ids:
            if (given := await self._desk.answer_to(id_)) is not None:
                found[id_] = _ENDS[given.action]
        return found

    async def _read_news(self) -> bool:
        heard = False
        for _ in range(MAX_LOOKS):
            came = await self._desk.news(self._after, 0.0)
            if not came:
                break
            heard, self._after = True, came[-1].id
        return heard


def as_call_on_hold(one: WaitingCall) -> CallOnHold:
    """Return the data of a call that may be told; a tool that the agent lacks gets a fixed name, as it may be
    any text."""
    call = one.approval.question
    tool = call.tool_name if call.tool_name in call.available_tools else OTHER
    return CallOnHold(
        one.approval.id, one.approval.scheduler, tool, call.agent or "", call.labels, one.seconds_left
    )
