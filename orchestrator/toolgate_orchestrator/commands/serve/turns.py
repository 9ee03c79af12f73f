"""The turns of sessions at a sidecar: `toolgate agents` shows them and stops them.

A turn lasts for its lease: each request or report of its session renews it. Times are seconds of a monotonic
clock.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final

from toolgate_bus.protocol.agents import MAX_AGENTS_COUNT, LiveAgent

from toolgate_orchestrator.commands.serve.problems import Problem
from toolgate_orchestrator.commands.serve.requests import TurnRequest
from toolgate_orchestrator.decision.link.live_session import LiveSession

MAX_TURNS: Final = MAX_AGENTS_COUNT
MAX_EACH: Final = MAX_TURNS // 4
"""Limit for one root session, once half of all turns are taken."""
Enter = Callable[[LiveSession], Callable[[], None]]
"""Shows a session to operators; returns the function that ends that (`Gate.enter`)."""


class OpenTurn:
    """A session whose turn runs."""

    def __init__(self, asked: TurnRequest, agent: str, enter: Enter, clock: Callable[[], float]) -> None:
        who = LiveAgent(
            asked.session, asked.root_session or asked.session, asked.parent, agent, tuple(asked.lineage)
        )
        self.who = who
        self.since = self.last_heard = clock()
        self.lease = asked.lease_s
        self.request = asked.request
        self.changed = asyncio.Event()
        """Set once an operator stops it, or it ends."""
        self.on_stop: set[Callable[[str], None]] = set()
        """Functions that end what is being decided for it."""
        self.presence = LiveSession(who, self._on_stop, None, clock)
        self._ends = ExitStack()
        self._ends.callback(enter(self.presence))
        self._ends.enter_context(self.presence.turn())

    @property
    def stop(self) -> dict[str, Any] | None:
        """Order of an operator to end it; None while it may go on."""
        return self.presence.order

    def _on_stop(self, _now: bool) -> None:
        self.changed.set()
        for end in tuple(self.on_stop):
            end("stopped")

    def end(self) -> None:
        """Stop showing it to operators."""
        self.changed.set()
        self._ends.close()


class OpenTurns:
    """All turns that run, by session."""

    def __init__(self, enter: Enter, clock: Callable[[], float], drop: Callable[[str], None]) -> None:
        """`drop` ends the turn of a session that makes room for another."""
        self._enter, self._clock, self._drop = enter, clock, drop
        self._turns: dict[str, OpenTurn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def get(self, session: str) -> OpenTurn | None:
        """Return the running turn of a session, and renew its lease."""
        turn = self._turns.get(session) if session else None
        if turn is not None:
            turn.last_heard = self._clock()
        return turn

    def begin(self, asked: TurnRequest, agent: str) -> OpenTurn:
        """Begin a turn, or go on with the running one. Raises Problem if one root has too many.

        If all are taken, the quietest turn of the root with the most of them makes room.
        """
        turn = self.get(asked.session)
        if turn is not None:
            turn.lease = asked.lease_s
            turn.request = asked.request or turn.request
            return turn
        root = asked.root_session or asked.session
        own = (one.who.root == root for one in self._turns.values())
        if len(self._turns) >= MAX_TURNS // 2 and sum(own) >= MAX_EACH:  # nobody may fill it alone
            words = (
                f"{MAX_EACH} turns of one root session run through this sidecar already; end some (do: end)"
            )
            raise Problem(429, words, {"retry-after": "5"})
        if len(self._turns) >= MAX_TURNS:
            self._drop(self._find_quietest())
        turn = self._turns[asked.session] = OpenTurn(asked, agent, self._enter, self._clock)
        return turn

    def _find_quietest(self) -> str:
        each = Counter(turn.who.root for turn in self._turns.values())
        most = max(each.values())
        found = {session: turn for session, turn in self._turns.items() if each[turn.who.root] == most}
        return min(found, key=lambda session: found[session].last_heard)

    def find_request(self, *sessions: str | None) -> str:
        """Return the user's request in the first of these sessions whose turn has one; root first."""
        if self._turns:
            for session in sessions:
                turn = self._turns.get(session) if session else None
                if turn is not None and turn.request:
                    return turn.request
        return ""

    def end(self, session: str) -> OpenTurn | None:
        """End a turn and return it; None if none ran."""
        turn = self._turns.pop(session, None)
        if turn is not None:
            turn.end()
        return turn

    def find_overdue(self, now: float) -> list[str]:
        """Return the sessions that were silent for longer than their lease."""
        return [name for name, turn in self._turns.items() if now - turn.last_heard > turn.lease]

    def close(self) -> None:
        """End all turns."""
        for session in tuple(self._turns):
            self.end(session)


def turn_body(session: str, turn: OpenTurn | None) -> Mapping[str, Any]:
    """Return the state of a session's turn as an answer."""
    if turn is None:
        return {"session": session, "busy": False, "stop": None, "paused": False}
    return {
        "session": session,
        "busy": turn.presence.busy,
        "stop": turn.stop,
        "paused": turn.presence.pause is not None,
    }
