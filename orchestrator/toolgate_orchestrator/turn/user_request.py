"""What the user asked for, for the calls of a turn and of the sub-agents that work for it.

A sub-agent's prompt was written by an LLM, and is no user's: its calls go with the request of the root, as
long as both run in one process. `Selection` hands it to the gate.
"""

from contextvars import ContextVar
from typing import Final

from toolgate_orchestrator.decision.question.call import Caller

_REQUEST: Final[ContextVar[str]] = ContextVar("toolgate_user_request", default="")


def request_of(place: Caller, prompt: str) -> str:
    """The request that the calls of this turn serve; empty for a sub-agent whose root is elsewhere."""
    if place.parent is None:
        _REQUEST.set(prompt)
    return _REQUEST.get()
