"""Find the targets of a route, tools or agents, that fail too often at present. Pure: time is an argument.

    closed ──`after` failures, and `share` of the calls, within `within_s`──▶ open
    open ──`for_s` later──▶ half-open: one call in `for_s` is let through
    half-open ──a success──▶ closed        half-open ──a failure──▶ open

Every replica of a scheduler reads the same facts and keeps this state by itself. Each route has its own
state, since routes may differ in their limits.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import Field, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.ruling.conditions.arguments import Arguments, Name

MAX_CALLS: Final = 1000
"""Maximum number of calls of one tool that are remembered; more calls shorten the window."""
_DELEGATED: Final = ("delegate:agent_completed", "delegate:error")
UNDONE: Final = ("incomplete", "budget_exhausted", "error", "failed")
"""Statuses of delegations whose work is not done: the agent's LLM failed, or went on for too long."""
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False, strict=True)]


class Fallback(StrictModel):
    """Condition for sending no calls to a target for a while, and the tool that runs instead."""

    after: Annotated[int, Field(ge=1, le=MAX_CALLS, strict=True)] = 3
    """Number of failures within `within_s` after which a target gets no calls, if they also reach `share`."""
    within_s: Seconds = 60
    """Seconds in which failures and calls are counted."""
    share: Annotated[float, Field(gt=0, le=1, strict=True)] = 0.5
    """Smallest part of the target's calls within `within_s` that must have failed."""
    for_s: Seconds = 30
    """Seconds without calls. Then one call tries the target: after a success it is back, after a failure the
    time starts again."""
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


def agent_key(agent: str) -> str:
    """Return the key of an agent's health; it is no tool's, as no tool has a space in its name."""
    return f"agent {agent}"


def outcome_of(fact: Mapping[str, Any]) -> tuple[str, bool] | None:
    """Return the tool or agent (`agent_key`) of a fact, and whether it did its work; None for other facts.

    A cancelled call says nothing about its tool. Facts come from the network and may hold anything.
    """
    tool, event, agent = fact.get("tool"), fact.get("event"), fact.get("agent_target")
    if isinstance(agent, str) and event in _DELEGATED:
        return agent_key(agent), event == _DELEGATED[0] and fact.get("status") not in UNDONE
    if not isinstance(tool, str) or event not in ("tool:post", "tool:error"):
        return None
    if fact.get("error") == "CancelledError":
        return None
    return tool, event == "tool:post" and fact.get("success") is not False


@dataclass(slots=True)
class _Tool:
    """Recent results of one target."""

    calls: deque[tuple[float, bool]] = field(default_factory=deque)
    failures: int = 0
    open_until: float | None = None
    tried: float | None = None

    def add(self, well: bool, now: float, within_s: float) -> None:
        self.calls.append((now, well))
        self.failures += not well
        while len(self.calls) > MAX_CALLS or self.calls[0][0] < now - within_s:
            self.failures -= not self.calls.popleft()[1]

    def close(self) -> None:
        self.calls.clear()
        self.failures = 0
        self.open_until = self.tried = None


class TargetHealth:
    """Health of one route's targets; without a `Fallback` they always count as well."""

    def __init__(self, rule: Fallback | None, tools: Iterable[str]) -> None:
        self._rule = rule
        self._tools = {tool: _Tool() for tool in tools} if rule is not None else {}

    @property
    def tools(self) -> frozenset[str]:
        """Targets whose results it must be told."""
        return frozenset(self._tools)

    def record_result(self, tool: str, well: bool, now: float) -> None:
        """Record the result of a call: `well` or not."""
        known = self._tools.get(tool)
        if known is None or self._rule is None:
            return
        if known.open_until is None:
            known.add(well, now, self._rule.within_s)
            if known.failures >= max(self._rule.after, self._rule.share * len(known.calls)):
                self._open(known, now, self._rule)
        elif now >= known.open_until:  # a call from before the target was closed off says nothing new
            if well:
                known.close()
            else:
                self._open(known, now, self._rule)

    def usable(self, tool: str, now: float) -> bool:
        """Return whether calls may go to a target: it is well, or it is time to try it."""
        known = self._tools.get(tool)
        if known is None or known.open_until is None or self._rule is None:
            return True
        trying = known.tried is not None and now - known.tried < self._rule.for_s
        return now >= known.open_until and not trying

    def record_call(self, tool: str, now: float) -> None:
        """Record that a call goes to a target; if the target is being tried, this is the one call."""
        known = self._tools.get(tool)
        if known is not None and known.open_until is not None:
            known.tried = now

    @staticmethod
    def _open(known: _Tool, now: float, rule: Fallback) -> None:
        known.close()
        known.open_until = now + rule.for_s
