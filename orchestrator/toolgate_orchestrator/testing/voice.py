"""The scripted model's side: what it says next, and what it was told."""

import threading
from collections.abc import Iterable
from typing import NamedTuple

from toolgate_orchestrator.testing.script import LAST_WORDS, Actor, Speech


class ToolAnswer(NamedTuple):
    """What a request to the model says that a call gave."""

    id: str
    """Of the call, as the model named it."""
    tool: str
    """As the request names it; empty where the framework pairs by id alone."""
    text: str


class Voice:
    """What one actor's model says. The harness's scripted model asks it, once a request to it.

    It is the model's own ear, too: what the kit holds an adapter to is what stands in these requests.
    """

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.requests: list[tuple[ToolAnswer, ...]] = []
        """The results that stood in each request, in their order; the last is the whole."""
        self._lock = threading.Lock()

    def speak(self, told: Iterable[ToolAnswer] = ()) -> Speech:
        """What the model says to this request. `told` are all results of tools that stand in it."""
        with self._lock:
            said = len(self.requests)
            self.requests.append(tuple(told))
        return self.actor.script[said] if said < len(self.actor.script) else LAST_WORDS

    @property
    def told(self) -> tuple[ToolAnswer, ...]:
        """The results of tools that it was told, one for each call."""
        with self._lock:
            return self.requests[-1] if self.requests else ()

    def answer(self, call_id: str) -> ToolAnswer:
        """What it was told of this call; raises LookupError where that is nothing, or more than one thing."""
        found = [one for one in self.told if one.id == call_id]
        if len(found) != 1:
            raise LookupError(f"{self.actor.name} was told {len(found)} results of {call_id!r}: {self.told}")
        return found[0]
