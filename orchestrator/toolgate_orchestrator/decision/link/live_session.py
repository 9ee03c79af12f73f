"""One live session as operators see it: what it does now, and how its turn is stopped.

The turn engine writes it, and every heartbeat reads it. Times are seconds of a monotonic clock.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from toolgate_bus.protocol.agents import LiveAgent, name_session
from toolgate_bus.protocol.money import MAX_AMOUNT, is_amount, micro
from toolgate_bus.protocol.pauses import Pause
from toolgate_bus.ruling.delegation import target_of
from toolgate_bus.telemetry import metrics

from toolgate_orchestrator.decision.faults import call_guarded

AGENT_STOP: Final = "agent:stop"
"""Event: an operator ends a session's turn."""
AGENT_PAUSE: Final = "agent:pause"
"""Event: an operator makes a session's next calls wait."""
AGENT_RESUME: Final = "agent:resume"
"""Event: the calls of a session wait no longer."""


def _ignore(*_: Any) -> None:
    """Ignore the event: nobody listens."""


class LiveSession:
    """A session from the mount of its loop to its end."""

    __slots__ = (
        "_agents",
        "_clock",
        "_ended",
        "_note",
        "_now",
        "_paused_at",
        "_since",
        "_stop",
        "_stopping",
        "_who",
        "calls",
        "cost",
        "labels",
        "pause",
        "stopped",
        "stopped_by",
        "turns",
        "vetoes",
    )

    def __init__(
        self,
        who: LiveAgent,
        stop: Callable[[bool], None],
        agents: Collection[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a session; `who` describes it, `stop` ends its turn at once or after the running tools."""
        self._who, self._stop, self._agents, self._clock = who, stop, agents, clock
        self._since = clock()
        self._now: dict[str, str] = {}
        self._stopping = 0
        self._note: Callable[[str, Mapping[str, Any]], None] = _ignore
        self._ended: Callable[[], None] = _ignore
        self.turns = self.calls = self.vetoes = self.cost = 0
        self.labels: Mapping[str, str] = {}
        """Labels that its questions bear."""
        self.pause: Pause | None = None
        """Pause for which its calls wait."""
        self.stopped: Pause | None = None
        """Stop for which its calls are denied and its turns end."""
        self.stopped_by = ""
        """Name of the operator who ended its last turn."""
        self._paused_at = 0.0

    @property
    def session(self) -> str:
        """Id of the session."""
        return self._who.session

    @property
    def root(self) -> str:
        """Id of the session at the root of its tree."""
        return self._who.root

    @property
    def parent(self) -> str | None:
        """Id of the session for which it works."""
        return self._who.parent

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the agents from the root down to this one."""
        return self._who.lineage or (self._who.agent,)

    @property
    def busy(self) -> bool:
        """True while a turn runs."""
        return bool(self._now)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Mark a turn, from its start to its end."""
        self.turns += 1
        self._stopping = 0
        self._now[""] = "llm"
        try:
            yield
        finally:
            self._now.clear()
            if self._stopping:
                self._ended()

    def listen(self, note: Callable[[str, Mapping[str, Any]], None], ended: Callable[[], None]) -> None:
        """Set who takes the fact of a stop, and who is told when a stopped turn has ended."""
        self._note, self._ended = note, ended

    def start_decision(self, call: str, tool: str) -> None:
        """Show that a call is being decided."""
        self.calls += 1
        self._now[call] = f"deciding {tool}"

    def count_denial(self, call: str) -> None:
        """Count a call that is not run. Without a name, it is one that is no longer shown."""
        self.vetoes += 1
        self.end_call(call)

    def start_call(self, call: str, tool: str, arguments: dict[str, Any]) -> None:
        """Show that a call runs."""
        agent = target_of(arguments, self._agents)
        self._now[call] = f"delegating {agent}" if agent else f"tool {tool}"

    def end_call(self, call: str) -> None:
        """Stop showing a call. The empty name is that of the turn, which goes on."""
        if call:
            self._now.pop(call, None)

    def add_cost(self, fact: Mapping[str, Any]) -> None:
        """Add the cost that a fact reports: micro-units for a tool, or the currency for an LLM."""
        told = fact.get("cost")
        cost = told if is_amount(told) else micro(fact.get("cost_usd")) or 0
        self.cost = min(self.cost + cost, MAX_AMOUNT)

    def stop(self, *, now: bool, by: str = "") -> None:
        """End the running turn, if there is one. `by` names who ordered it."""
        if not self.busy:
            return
        urgency = 2 if now else 1
        if urgency > self._stopping:  # orders are repeated
            who = {"session": self.session, "root_session": self.root, "agent": self._who.agent}
            self._note(AGENT_STOP, {**who, "by": by, "now": now})
            self._stopping, self.stopped_by = urgency, by
        call_guarded(self._stop, now)

    def set_pause(self, pause: Pause | None) -> None:
        """Set the pause that covers the session, if any. A change is recorded as a fact."""
        before, self.pause = self.pause, pause
        if (before and before.id) == (pause and pause.id):
            return
        now, who = self._clock(), {"session": self.session, "root_session": self.root}
        for event, one in ((AGENT_RESUME, before), (AGENT_PAUSE, pause)):
            if one is not None:
                told = {**who, "agent": self._who.agent, "by": one.by, "pause": one.id}
                lasted = {"seconds": now - self._paused_at} if one is before else {}
                self._note(event, {**told, **lasted})
        self._paused_at = now
        metrics.add_paused(agents=(pause is not None) - (before is not None))

    def set_stop(self, stop: Pause | None) -> bool:
        """Set the stop that covers the session, if any. Return whether that ends a turn."""
        before, self.stopped = self.stopped, stop
        if stop is None:
            if before is not None:
                self._stopping = 0
            return False
        if before is not None and (before.id, before.now) == (stop.id, stop.now):
            return False
        self.stop(now=stop.now, by=stop.by)
        return self.busy

    @property
    def is_stopping(self) -> bool:
        """True if its turn was told to end, or none may begin."""
        return self._stopping > 0 or self.stopped is not None

    @property
    def order(self) -> dict[str, Any] | None:
        """Order to end the turn, as callers receive it; None while the turn may go on."""
        if not self.is_stopping:
            return None
        if self._stopping or self.stopped is None:
            return {"now": self._stopping > 1, "by": self.stopped_by}
        return {"now": self.stopped.now, "by": self.stopped.by}

    def tell(self) -> LiveAgent:
        """Return the session's present state."""
        doing = next(reversed(self._now.values()), "idle")
        who = self._who
        return LiveAgent(
            name_session(who.session),
            name_session(who.root),
            who.parent if who.parent is None else name_session(who.parent),
            who.agent,
            who.lineage,
            f"stopping: {doing}" if self._stopping and self._now else doing,
            self.turns,
            self.calls,
            self.vetoes,
            self.cost,
            round(self._clock() - self._since, 1),
            "" if self.pause is None else self.pause.id,
            "" if self.stopped is None else self.stopped.id,
        )
