"""Claims of one process on decisions that wait for a person. A claim stands, even if the server forgets it.

A failover may set a server back to a time before a claim. This process still knows the claim and takes no
second answer. Once the bus is back, it makes each claim of the last minutes again. If another process took
an answer meanwhile, that is counted and logged: the decision was resumed twice.
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
"""Number of claims that are remembered, the newest."""
RECENT_S: Final = 300.0
"""Age of a claim in seconds from which every server that may become the primary has it."""
TRIES: Final = 5
AGAIN_S: Final = 1.0
_log = get_logger("toolgate.gate")


class StandingClaims(Deferrals):
    """The deferred decisions of one namespace, and the claims that this process has made on them."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(store)
        self._clock = clock
        self._made: OrderedDict[str, tuple[Claim, float]] = OrderedDict()
        """Claim of each decision that stands as far as this process saw, and the time it was made."""
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
        """Make the recent claims again, now that the bus is back, if the server lacks them."""
        since = self._clock() - RECENT_S
        recent = [(decision, claim) for decision, (claim, at) in self._made.items() if at >= since]
        if recent:
            self.close()
            loop = asyncio.get_running_loop()
            self._restoring = loop.create_task(self._restore(recent), context=Context())

    def close(self) -> None:
        """Stop restoring claims."""
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
            except Exception as error:  # noqa: BLE001 - a fault of ours: log it, and restore the others
                _log.error(
                    "a claim on a decision could not be made again", decision=decision, error=where(error)
                )
            recent.pop()

    async def _restore_one(self, decision: str, claim: Claim) -> None:
        if await self.find_claim(decision) == claim:
            return
        standing = await super().claim(decision, claim)
        if standing == claim:
            metrics.count(metrics.CLAIMS_LOST, "restored")
            _log.warning("the server had forgotten which process took a person's answer", decision=decision)
        elif standing is not None and standing.answer == claim.answer == "allow":
            metrics.count(metrics.CLAIMS_LOST, "twice")
            _log.error(
                "a decision was resumed twice: the server forgot the first answer, and took another",
                decision=decision,
                first=printable(claim.person),
                second=printable(standing.person),
            )
