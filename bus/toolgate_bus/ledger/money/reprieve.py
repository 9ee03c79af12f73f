"""Keeps reservations of calls that wait for a person while no process waits for them.

Such a reservation lives as long as the kept decision (`transport.deferrals`), not as long as its owner's
heartbeat. It is handed over to the orchestrator that claims the decision. When its time is over, the keeper
claims the decision itself, so that nobody can go on with it, and releases the reservation: nothing has run.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolgate_bus.ledger.money.ledger import Ledger, OpenReservation, Step
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.deferrals import Claim, Deferrals
from toolgate_bus.transport.ports import Store

MAX_ID: Final = 64
LOOK_S: Final = 60.0
"""Longest time between two looks at a waiting decision, in seconds."""
MAX_KNOWN: Final = 100_000
_log = get_logger("toolgate.ledger")


class Reprieve:
    """The deferred decisions that a keeper of a ledger knows."""

    def __init__(self, ledger: Ledger, store: Store, clock: Callable[[], float]) -> None:
        self._ledger, self._kept, self._clock = ledger, Deferrals(store), clock
        self._until: dict[str, float] = {}
        """Time of the next look at each decision."""

    async def hand_over(self, fact: Mapping[str, Any]) -> None:
        """Move a decision's reservation to the orchestrator that goes on with it, if it holds the claim."""
        decision, by = fact.get("decision_id"), fact.get("orchestrator")
        if not isinstance(decision, str) or not isinstance(by, str) or not 0 < len(decision) <= MAX_ID:
            return
        found, claim = await self._kept.find(decision), await self._kept.find_claim(decision)
        if found is not None and claim is not None and claim.by == by:
            await self._move(decision, found.owner, by)

    async def take_over(self, decision: str, by: str) -> bool:
        """Move a deferred decision's reservation to `by`. Return whether `by` may go on with it."""
        found, claim = await self._kept.find(decision), await self._kept.find_claim(decision)
        if found is None or claim is None or claim.by != by or claim.answer != "allow":
            return False
        return await self._move(decision, found.owner, by)

    async def waits(self, one: OpenReservation) -> bool:
        """Return whether a reservation is no orphan, although its owner is gone or silent for long.

        True if it waits for a person, or if this call has released it or handed it over.
        """
        now = self._clock()
        if now < self._until.get(one.decision, now):
            return True
        self._until.pop(one.decision, None)
        found = await self._kept.find(one.decision)
        if found is None:
            return False
        claim = await self._kept.find_claim(one.decision)
        if claim is None and found.left_s > 0:
            if len(self._until) >= MAX_KNOWN:
                self._until.clear()
            self._until[one.decision] = now + min(found.left_s, LOOK_S)
            return True
        if claim is None:
            claim = await self._kept.claim(one.decision, Claim("", "expired", "", secrets.token_hex(16)))
        if claim is None:
            return False
        if claim.answer != "allow":
            await self._ledger.take([Step("release", one.decision)])
            _log.info("a call waited for a person in vain", decision=one.decision, ended=claim.answer)
            return True
        return claim.by != one.owner and await self._move(one.decision, found.owner, claim.by)

    async def _move(self, decision: str, owner: str, by: str) -> bool:
        moved = await self._ledger.claim(decision, owner, by)
        if moved:
            await self._ledger.take([Step("renew", decision, by=by)])
        return moved
