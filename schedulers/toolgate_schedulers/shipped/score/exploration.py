"""Try another alternative than the best one now and then, for a share of calls and a sum of money. Pure.

Whether a call is one of the share depends on its decision's id alone: replicas agree, and a replay repeats
it. What such calls cost is counted from the facts, so each replica knows what all of them have spent.
"""

import hashlib
from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field
from toolgate_bus.config.check import StrictModel

MARK: Final = "explored: "
"""Beginning of the words about such a call, in a verdict's reason."""
MAX_SHARE: Final = 0.5
MAX_CALLS: Final = 10_000
"""Number of such calls in a window that are counted; beyond it none is made."""
_ALL: Final = 2**64


class Exploration(StrictModel):
    """Bounds of exploration."""

    share: Annotated[float, Field(gt=0, le=MAX_SHARE, strict=True)]
    """Share of the calls with a choice for which the alternative is tried of which least is known, from 0 to
    0.5."""


class Explorer:
    """What one replica knows of explored calls. Times are seconds on any one clock."""

    def __init__(self, share: float = 0.0, limit: float | None = None, window_s: float = 0.0) -> None:
        self._share, self._limit, self._window_s = share, limit, window_s
        self._costs: dict[str, float] = {}
        """Expected cost of a call of each alternative, as it was ranked last."""
        self._spent: deque[tuple[float, float]] = deque()
        self._sum = 0.0
        self._counted: dict[str, None] = {}
        self.calls: deque[str] = deque(maxlen=MAX_CALLS)
        """Alternatives of the calls that this replica explored; whoever counts them takes them out."""

    def draws(self, decision: str) -> bool:
        """Return whether a call is one of the share."""
        if not self._share:
            return False
        drawn = int.from_bytes(hashlib.sha256(f"explore {decision}".encode()).digest()[:8], "big")
        return drawn < self._share * _ALL

    def allows(self, key: str, cost: float, now: float) -> bool:
        """Return whether there is money left in this window for a call of an alternative."""
        self._costs[key] = cost
        if self._limit is None:
            return True
        self._forget(now)
        return len(self._spent) < MAX_CALLS and self._sum + cost <= self._limit

    def record(self, decision: str, key: str, now: float) -> None:
        """Count an explored call of this replica, at its verdict."""
        if self._count(decision, key, now):
            self.calls.append(key)

    def hear(self, decision: str, key: str, fact: Mapping[str, Any], now: float) -> None:
        """Count an explored call of any replica, from the fact of its decision, which may hold anything."""
        if self._limit is not None and self.draws(decision) and _is_explored(fact):
            self._count(decision, key, now)

    def _count(self, decision: str, key: str, now: float) -> bool:
        if decision in self._counted:
            return False
        self._counted[decision] = None
        if len(self._counted) > MAX_CALLS:
            del self._counted[next(iter(self._counted))]
        if self._limit is not None and len(self._spent) < MAX_CALLS:
            cost = self._costs.get(key, max(self._costs.values(), default=0.0))
            self._spent.append((now, cost))
            self._sum += cost
        return True

    def _forget(self, now: float) -> None:
        while self._spent and now - self._spent[0][0] >= self._window_s:
            self._sum -= self._spent.popleft()[1]
        if not self._spent:
            self._sum = 0.0


def _is_explored(fact: Mapping[str, Any]) -> bool:
    verdicts = fact.get("verdicts")
    reasons = (
        one.get("reason")
        for one in (verdicts if isinstance(verdicts, list | tuple) else ())
        if isinstance(one, Mapping)
    )
    return any(isinstance(reason, str) and MARK in reason for reason in reasons)
