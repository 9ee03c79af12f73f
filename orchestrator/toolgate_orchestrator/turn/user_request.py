"""The user's request, for the calls of a turn and of the sub-agents that work for it.

An LLM, not the user, wrote a sub-agent's prompt. So its calls bear the root's request, as long as both run in
one process. `Selection` passes it to the gate.
"""

from contextvars import ContextVar
from typing import Final

from toolgate_orchestrator.decision.question.call import Caller

_REQUEST: Final[ContextVar[str]] = ContextVar("toolgate_user_request", default="")


def request_of(place: Caller, prompt: str) -> str:
    """Return the request that the calls of this turn serve; empty for a sub-agent whose root is elsewhere."""
    if place.parent is None:
        _REQUEST.set(prompt)
    return _REQUEST.get()
