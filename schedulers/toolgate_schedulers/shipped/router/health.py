"""Find the targets of a route, tools or agents, that fail too often at present. Pure: time is an argument.

A target is ejected after `after` failures, and `share` of its calls, within `within_s`. `score.ejection`
says how it comes back. Every replica of a scheduler reads the same facts and keeps this state by itself.
Each route has its own state, since routes may differ in their limits.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.ruling.conditions.arguments import Arguments, Name

from toolgate_schedulers.shipped.score.ejection import Ejection
from toolgate_schedulers.shipped.score.outcomes import Seconds

MAX_CALLS: Final = 1000
"""Maximum number of calls of one tool that are remembered; more calls shorten the window."""


class Fallback(StrictModel):
    """Condition for sending no calls to a target for a while, and the tool that runs instead."""

    after: Annotated[int, Field(ge=1, le=MAX_CALLS, strict=True)] = 3
    """Number of failures within `within_s` after which a target gets no calls, if they also reach `share`."""
    within_s: Seconds = 60
    """Seconds in which failures and calls are counted."""
    share: Annotated[float, Field(gt=0, le=1, strict=True)] = 0.5
    """Smallest part of the target's calls within `within_s` that must have failed."""
    for_s: Seconds = 30
    """Seconds without calls. Then one call tries the target: after a success it is back, after a failure it
    gets no calls for twice as long, at most for eight times as long."""
    to: Name | None = None
    """Tool that runs when all targets fail. Without it, or when it fails as well, the LLM's own call
    stands."""
    arguments: Arguments | None = None
    """Arguments for the tool that this `to` names."""
    agent: Name | None = None
    """Agent to ask, for a delegation. Only with `to`."""

    @model_validator(mode="after")
    def _consistent(self) -> "Fallback":
        given = [field for field in ("arguments", "agent") if getattr(self, field) is not None]
        if given and self.to is None:
            raise ValueError(f"{given[0]}: goes with to")
        return self


@dataclass(slots=True)
class _Target:
    """Recent results of one target."""

    calls: deque[tuple[float, bool]] = field(default_factory=deque)
    failures: int = 0
    ejection: Ejection = field(default_factory=Ejection)

    def add(self, well: bool, now: float, within_s: float) -> None:
        self.calls.append((now, well))
        self.failures += not well
        while len(self.calls) > MAX_CALLS or self.calls[0][0] < now - within_s:
            self.failures -= not self.calls.popleft()[1]

    def eject(self, now: float, for_s: float) -> None:
        self.calls.clear()
        self.failures = 0
        self.ejection.eject(now, for_s)


class TargetHealth:
    """Health of one route's targets; without a `Fallback` they always count as well."""

    def __init__(self, rule: Fallback | None, tools: Iterable[str]) -> None:
        self._rule = rule
        self._targets = {tool: _Target() for tool in tools} if rule is not None else {}

    @property
    def tools(self) -> frozenset[str]:
        """Targets whose results it must be told."""
        return frozenset(self._targets)

    def record_result(self, tool: str, well: bool, now: float) -> None:
        """Record the result of a call: `well` or not."""
        known, rule = self._targets.get(tool), self._rule
        if known is None or rule is None:
            return
        if known.ejection.until is not None:
            known.ejection.record_result(well, now, rule.for_s)
            return
        known.add(well, now, rule.within_s)
        if known.failures >= max(rule.after, rule.share * len(known.calls)):
            known.eject(now, rule.for_s)

    def usable(self, tool: str, now: float) -> bool:
        """Return whether calls may go to a target: it is well, or it is time to try it."""
        known = self._targets.get(tool)
        return known is None or self._rule is None or known.ejection.is_usable(now, self._rule.for_s)

    def record_call(self, tool: str, now: float) -> None:
        """Record that a call goes to a target; if the target is being tried, this is the one call."""
        known = self._targets.get(tool)
        if known is not None:
            known.ejection.record_call(now)
