"""The facts of one turn: each says whose it is, and goes to the gate for whoever reads the record.

Which facts there are, and what stands in them, is told in `docs/reference/wire.md`. Where there is no gate,
they are counted and not kept.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.definitions import OTHER

from toolgate_orchestrator.gate.gate import Gate
from toolgate_orchestrator.turn.session_tree import place_of

__all__ = ["TOOL_UNUSED", "TURN", "USAGE", "Facts", "Note", "took"]

Note = Callable[[str, dict[str, Any]], None]
"""Takes a fact: event name and data."""

TURN: Final = "turn"
"""A turn has ended."""
USAGE: Final = "usage"
"""One request to an LLM was answered, and what it used."""
TOOL_UNUSED: Final = "tool:unused"
"""A call that was let through is not run after all."""

_LABELLED: Final = (TURN, USAGE)
"""They belong to no decision, which would tell the labels."""


def took(started: float) -> dict[str, float]:
    """`seconds` since a moment of `time.monotonic`."""
    return {"seconds": time.monotonic() - started}


class Facts:
    """Whose facts they are, and where they go; `gate` comes with the turn's start."""

    def __init__(
        self,
        coordinator: Any,
        agent: str,
        tools: Mapping[str, Any],
        paid: Callable[[Mapping[str, Any]], None],
    ) -> None:
        place = place_of(coordinator)
        self.place, self.agent = place, agent
        self.gate: Gate | None = None
        self._who = {"session": place.session, "root_session": place.root, "agent": agent}
        self._tools, self._paid = tools, paid

    def note(self, event: str, data: dict[str, Any]) -> None:
        """One fact; a tool that is not mounted is named `other`: an LLM may name anything."""
        fact = {**data, **self._who}
        if "tool" in data and data["tool"] not in self._tools:
            fact["tool"] = OTHER
        self._paid(data)
        gate = self.gate
        if gate is None:
            metrics.told({**fact, "event": event})
            return
        if event in _LABELLED:
            fact["labels"] = gate.config.labels
        gate.note(event, fact)

    def turn(self, loop: str, status: str, iterations: int, started: float, trace: str | None) -> None:
        """How a turn ended: `status` is that of execution:end, `trace` its traceparent."""
        told = {"loop": loop, "status": status, "iterations": iterations, **took(started)}
        if self.place.parent:
            told |= {"parent": self.place.parent, "lineage": list(self.place.lineage)}
        self.note(TURN, told | ({"trace": trace} if trace else {}))
