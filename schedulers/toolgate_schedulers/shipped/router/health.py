"""Which targets of a route, tools or agents, fail too often at present. Pure: time is an argument.

    closed ──`after` failures, and `share` of the calls, within `within_s`──▶ open
    open ──`for_s` later──▶ half-open: one call in `for_s` is let through
    half-open ──a success──▶ closed        half-open ──a failure──▶ open

Every replica of a scheduler reads the same facts and keeps this by itself; so does each route, since
routes may differ in what is too often.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import Field, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.ruling.conditions.arguments import Arguments, Name

MAX_CALLS: Final = 1000
"""So many calls of one tool are remembered; the window is as much shorter."""
_DELEGATED: Final = ("delegate:agent_completed", "delegate:error")
UNDONE: Final = ("incomplete", "budget_exhausted", "error", "failed")
"""How a delegation ended whose work is not done: the agent's LLM failed, or went on for too long."""
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False, strict=True)]


class Fallback(StrictModel):
    """When a target is left alone for a while, and what runs instead."""

    after: Annotated[int, Field(ge=1, le=MAX_CALLS, strict=True)] = 3
    """Failures …"""
    within_s: Seconds = 60
    """… in so many seconds …"""
    share: Annotated[float, Field(gt=0, le=1, strict=True)] = 0.5
    """… which are at least this part of the tool's calls in that time, are too many: the target gets no
    calls"""
    for_s: Seconds = 30
    """For so many seconds; then one call tries it: it is back after a success, and left alone as long again
    after a failure."""
    to: Name | None = None
    """Runs when all targets fail; without it, or when it fails as well, the LLM's own call stands."""
    arguments: Arguments | None = None
    """Of the tool that this `to` names."""
    agent: Name | None = None
    """With `to`, for a delegation: the agent to ask."""

    @model_validator(mode="after")
    def _consistent(self) -> "Fallback":
        given = [field for field in ("arguments", "agent") if getattr(self, field) is not None]
        if given and self.to is None:
            raise ValueError(f"{given[0]}: goes with to")
        return self


def agent_key(agent: str) -> str:
    """What an agent's health is kept under: no tool has a name with a space in it."""
    return f"agent {agent}"


def outcome_of(fact: Mapping[str, Any]) -> tuple[str, bool] | None:
    """The tool or agent (`agent_key`) that a fact tells of, and whether it did its work; None for all others.

    A call that was cancelled says nothing about its tool. Facts come off a wire: anything may be in them.
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
    """What is known of one tool."""

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
    """How the targets of one route fare; without a `Fallback` they are always well."""

    def __init__(self, rule: Fallback | None, tools: Iterable[str]) -> None:
        self._rule = rule
        self._tools = {tool: _Tool() for tool in tools} if rule is not None else {}

    @property
    def tools(self) -> frozenset[str]:
        """Those that it wants to be told of."""
        return frozenset(self._tools)

    def record_result(self, tool: str, well: bool, now: float) -> None:
        """A tool ran, well or not."""
        known = self._tools.get(tool)
        if known is None or self._rule is None:
            return
        if known.open_until is None:
            known.add(well, now, self._rule.within_s)
            if known.failures >= max(self._rule.after, self._rule.share * len(known.calls)):
                self._open(known, now, self._rule)
        elif now >= known.open_until:  # what began before it was left alone says nothing new
            if well:
                known.close()
            else:
                self._open(known, now, self._rule)

    def usable(self, tool: str, now: float) -> bool:
        """Whether calls may go there: it is well, or it is time to try it."""
        known = self._tools.get(tool)
        if known is None or known.open_until is None or self._rule is None:
            return True
        trying = known.tried is not None and now - known.tried < self._rule.for_s
        return now >= known.open_until and not trying

    def record_call(self, tool: str, now: float) -> None:
        """A call goes there: if it is being tried, this is the one call."""
        known = self._tools.get(tool)
        if known is not None and known.open_until is not None:
            known.tried = now

    @staticmethod
    def _open(known: _Tool, now: float, rule: Fallback) -> None:
        known.close()
        known.open_until = now + rule.for_s
