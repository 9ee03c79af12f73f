"""Decisions that wait for a person, as one process claims them: a claim that it made stands, whatever the
server forgets.

A failover may set a server back behind a claim. Here it is known all the same: no second answer is taken in
this process, and once the bus is back each claim of the last minutes is made again. Another that was taken
meanwhile elsewhere is counted, and told of: that decision was gone on with twice.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from contextvars import Context
from typing import Final

from toolgate_bus.errors import TransportError
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import where
from toolgate_bus.telemetry.printable import printable
from toolgate_bus.transport.deferrals import Claim, Deferrals
from toolgate_bus.transport.ports import Store, override

MAX_CLAIMS: Final = 10_000
"""So many are known here, the newest."""
RECENT_S: Final = 300.0
"""Claims that are older than this are with all that could become the server."""
TRIES: Final = 5
AGAIN_S: Final = 1.0
_log = get_logger("toolgate.gate")


class StandingClaims(Deferrals):
    """What is kept of decisions in one namespace, and which of them this process has claimed."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(store)
        self._clock = clock
        self._made: OrderedDict[str, tuple[Claim, float]] = OrderedDict()
        """By decision: the claim that stands by what was seen here, and since when."""
        self._restoring: asyncio.Task[None] | None = None

    @override
    async def claim(self, decision: str, claim: Claim) -> Claim | None:
        """See `Deferrals.claim`."""
        made = self._made.get(decision)
        if made is not None and made[0] != claim:
            return made[0]
        standing = await super().claim(decision, claim)
        if standing == claim:
            self._made[decision] = claim, self._clock()
            while len(self._made) > MAX_CLAIMS:
                self._made.popitem(last=False)
        return standing

    def restore(self) -> None:
        """The bus is back: see that the server knows what was claimed here just before."""
        since = self._clock() - RECENT_S
        recent = [(decision, claim) for decision, (claim, at) in self._made.items() if at >= since]
        if recent:
            self.close()
            loop = asyncio.get_running_loop()
            self._restoring = loop.create_task(self._restore(recent), context=Context())

    def close(self) -> None:
        """Restore nothing more."""
        if self._restoring is not None:
            self._restoring.cancel()
            self._restoring = None

    async def _restore(self, recent: list[tuple[str, Claim]]) -> None:
        tries = TRIES
        while recent and tries:
            decision, claim = recent[-1]
            try:
                await self._restore_one(decision, claim)
            except TransportError:
                tries -= 1
                await asyncio.sleep(AGAIN_S)
                continue
            except Exception as error:  # noqa: BLE001 - a fault of ours: it is told, the others go on
                _log.error("a claim was not made again", decision=decision, error=where(error))
            recent.pop()

    async def _restore_one(self, decision: str, claim: Claim) -> None:
        if await self.find_claim(decision) == claim:
            return
        standing = await super().claim(decision, claim)
        if standing == claim:
            metrics.count(metrics.CLAIMS_LOST, "restored")
            _log.warning("the server had forgotten who took a person's answer", decision=decision)
        elif standing is not None and standing.answer == claim.answer == "allow":
            metrics.count(metrics.CLAIMS_LOST, "twice")
            _log.error(
                "a decision was gone on with twice: the server forgot the first answer, and took another",
                decision=decision,
                first=printable(claim.person),
                second=printable(standing.person),
            )
