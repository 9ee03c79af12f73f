"""Play the scripted model: give its next answer, and record the results that it was told."""

import threading
from collections.abc import Iterable
from typing import NamedTuple

from toolgate_orchestrator.testing.script import LAST_WORDS, Actor, Speech


class ToolAnswer(NamedTuple):
    """Result of a call, as a request to the model has it."""

    id: str
    """Id of the call, as the model named it."""
    tool: str
    """Name of the tool in the request; empty if the framework pairs by id alone."""
    text: str


class Voice:
    """Voice of one actor's model. The harness's scripted model asks it once for each request.

    It also records the requests: the kit tests an adapter by the results that stand in them.
    """

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.requests: list[tuple[ToolAnswer, ...]] = []
        """Results in each request, in their order; the last request has all of them."""
        self._lock = threading.Lock()

    def speak(self, told: Iterable[ToolAnswer] = ()) -> Speech:
        """Return the model's answer to a request; `told` are all results of tools in the request."""
        with self._lock:
            said = len(self.requests)
            self.requests.append(tuple(told))
        return self.actor.script[said] if said < len(self.actor.script) else LAST_WORDS

    @property
    def told(self) -> tuple[ToolAnswer, ...]:
        """Results of tools that the model was told, one for each call."""
        with self._lock:
            return self.requests[-1] if self.requests else ()

    def answer(self, call_id: str) -> ToolAnswer:
        """Return the result that the model was told of this call; raise LookupError unless there is exactly
        one."""
        found = [one for one in self.told if one.id == call_id]
        if len(found) != 1:
            raise LookupError(f"{self.actor.name} was told {len(found)} results of {call_id!r}: {self.told}")
        return found[0]
