"""One call of a tool, as a program asks about it."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from toolgate_orchestrator.gate.capabilities import ALL
from toolgate_orchestrator.guard.place import At

if TYPE_CHECKING:
    from toolgate_orchestrator.gate.deferral import PersonAnswer


class Call(NamedTuple):
    """May this tool run, with these arguments?"""

    tool: str
    arguments: Mapping[str, Any] = {}
    tools: Sequence[str] | Mapping[str, Mapping[str, Any] | None] = ()
    """The tools that there are: names, or JSON Schemas by name, which a replacement is checked by. Empty:
    this one alone.
    """
    at: At | None = None
    """Who calls (`Guard.at`); None: the agent whose turn this is."""
    id: str = ""
    """The call's id, as the LLM gave it."""
    group: str = ""
    """What calls of one response have in common."""
    iteration: int = 0
    """Which request to the LLM of its turn it comes from, from 1."""
    can: Collection[str] = ALL
    """What can be done with an answer: `arguments`, `tool`, `ask`. What cannot denies the call."""
    answer: "PersonAnswer | None" = None
    """The answer to a question that was put off: this call's own ruling goes on with it."""
    available_agents: Sequence[str] | None = None
    """Whom it may hand work to, where it is a call that does; a ruling may name another of them."""
    agent_target: str | None = None
    """Whom it hands work to. None: whom of these its argument `agent` or `agent_name` names."""
    trace: Mapping[str, str] = {}
    """The trace context that it belongs to (`traceparent`, `tracestate`); empty: the current span."""
