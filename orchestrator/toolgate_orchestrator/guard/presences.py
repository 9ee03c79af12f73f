"""The turns of a guard's agents as operators see them; owned by the gate's event loop, as its facts are.

One entry a session, from the start of its turn to the end; turns of one session that overlap share it.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, Protocol

from toolgate_orchestrator.decision.question.caller import Caller

if TYPE_CHECKING:
    from toolgate_bus.protocol.pauses import Pause

    from toolgate_orchestrator.decision.gate import Gate


class Stoppable(Protocol):
    """A turn, as operators end it."""

    request: str
    """What the user asked for in it."""

    @property
    def raises(self) -> bool:
        """Whether it ends by what the next call that is asked about raises."""

    def stop(self, now: bool) -> None:
        """End it, at once or after the tools that run; must not block."""


class _Entry:
    """One session that is shown."""

    def __init__(self, at: Caller) -> None:
        from toolgate_bus.protocol.agents import LiveAgent  # late: the gate has loaded them by now

        from toolgate_orchestrator.decision.link.live_session import LiveSession

        who = LiveAgent(at.session, at.root, at.parent, at.agent, at.lineage)
        self.presence = LiveSession(who, self._stop)
        self.presence.labels = at.labels
        self.turns: list[Stoppable] = []
        self.ends = ExitStack()

    def _stop(self, now: bool) -> None:
        for turn in list(self.turns):
            turn.stop(now)


class Presences:
    """All of them. Its methods are called in the gate's loop, `stop_of` anywhere."""

    def __init__(self) -> None:
        self._seen: dict[str, _Entry] = {}

    def enter(self, gate: "Gate", at: Caller, turn: Stoppable) -> None:
        """A turn begins."""
        seen = self._seen.get(at.session)
        if seen is None:
            seen = self._seen[at.session] = _Entry(at)
            seen.ends.callback(gate.enter(seen.presence))
            seen.ends.enter_context(seen.presence.turn())
        seen.turns.append(turn)

    def leave(self, at: Caller, turn: Stoppable) -> None:
        """It has ended."""
        seen = self._seen.get(at.session)
        if seen is None or turn not in seen.turns:
            return
        seen.turns.remove(turn)
        if not seen.turns:
            del self._seen[at.session]
            seen.ends.close()

    def stop_of(self, at: Caller) -> "tuple[Literal['raise', 'deny'], Pause | None] | None":
        """Return how this session's turn, or one above it, is ended, and the stop that stands, if any."""
        found = [self._seen.get(session) for session in (at.session, *at.above)]
        stopped = [seen for seen in found if seen and seen.turns and seen.presence.is_stopping]
        if not stopped:
            return None
        raises = any(turn.raises for seen in stopped for turn in list(seen.turns))
        stop = next((one for seen in stopped if (one := seen.presence.stopped) is not None), None)
        return "raise" if raises else "deny", stop

    def request_of(self, at: Caller) -> str:
        """What the user asked for: of the outermost turn that says so, as what an LLM writes is no user's."""
        for session in (*at.above, at.session):
            seen = self._seen.get(session)
            if seen is not None and seen.turns and seen.turns[0].request:
                return seen.turns[0].request
        return ""

    def start_decision(self, at: Caller, call: str, tool: str) -> None:
        """It is ruled on a call."""
        if (seen := self._seen.get(at.session)) is not None:
            seen.presence.start_decision(call, tool)

    def deny(self, at: Caller, call: str) -> None:
        """It may not run."""
        if (seen := self._seen.get(at.session)) is not None:
            seen.presence.count_denial(call)

    def run(self, at: Caller, call: str, tool: str, arguments: dict[str, Any]) -> None:
        """It is run, as this one."""
        if (seen := self._seen.get(at.session)) is not None:
            seen.presence.start_call(call, tool, arguments)

    def end(self, at: Caller, call: str) -> None:
        """It was withdrawn, waits for a person, or has ended."""
        if (seen := self._seen.get(at.session)) is not None:
            seen.presence.end_call(call)

    def note(self, at: Caller, fact: Mapping[str, Any], ended: str | None) -> None:
        """A fact of this session: what it cost, and that a call has ended."""
        if (seen := self._seen.get(at.session)) is not None:
            seen.presence.add_cost(fact)
            if ended is not None:
                seen.presence.end_call(ended)
