"""One call of a tool, as every door asks about it."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.names import is_reserved_tool

from toolgate_orchestrator.decision.question.caller import Caller
from toolgate_orchestrator.decision.question.capabilities import ALL

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.deferral.answer import PersonAnswer


class Call(NamedTuple):
    """May this tool run, with these arguments?"""

    tool: str
    arguments: Mapping[str, Any] = {}
    tools: Sequence[str] | Mapping[str, Mapping[str, Any] | None] = ()
    """Tools that exist: their names, or JSON Schemas by name, which check a replacement. Empty, for a guard:
    this tool alone.
    """
    at: Caller | None = None
    """Agent and session that call (`Guard.at`); None: for a guard, the agent whose turn this is."""
    id: str = ""
    """Id of the call, as the LLM gave it."""
    group: str = ""
    """Id that all calls of one response share."""
    iteration: int = 0
    """Number of the request to the LLM, within its turn, that made the call; from 1."""
    can: Collection[str] = ALL
    """Answers that the caller can follow: `arguments`, `tool`, `ask`. Any other answer denies the call."""
    answer: "PersonAnswer | None" = None
    """Answer to a question that was deferred: its decision goes on."""
    available_agents: Sequence[str] | None = None
    """Agents to which the call may hand work, if it is one that does; an answer may name another of them."""
    agent_target: str | None = None
    """Agent to which it hands work. None: the one that its argument `agent` or `agent_name` names."""
    trace: Mapping[str, str] = {}
    """Trace context that it belongs to (`traceparent`, `tracestate`); empty: the current span."""
    request: str = ""
    """Words in which the user asked; redacted, and told only to schedulers that ask for them."""
    is_request: bool = False
    """True for a request to an LLM, which alone may have the name `llm:request`."""

    @property
    def is_reserved(self) -> bool:
        """Whether no tool may have this name."""
        return is_reserved_tool(self.tool) and not (self.is_request and self.tool == LLM_REQUEST)
