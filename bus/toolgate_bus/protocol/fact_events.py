"""Names of facts about calls, requests to LLMs and turns, for every writer and reader. Pure.

The page of the wire describes each fact, and `facts.validation` checks it. An agent's process makes them with
`calls.open_call` of the orchestrator.
"""

from typing import Final

TURN: Final = "turn"
"""A turn has ended."""
USAGE: Final = "usage"
"""A request to an LLM was answered; the fact has its usage."""
PROVIDER_ERROR: Final = "provider:error"
"""A request to an LLM failed."""
TOOL_SELECTED: Final = "tool:selected"
"""A call was let through, perhaps another one than the LLM's."""
TOOL_POST: Final = "tool:post"
"""The call ran, and returned a result."""
TOOL_ERROR: Final = "tool:error"
"""The call ran, or may have run, and failed."""
TOOL_UNUSED: Final = "tool:unused"
"""The call was let through, and is not run after all."""
TOOL_WAITS: Final = "tool:waits"
"""The call still waits for somebody."""
TOOL_PAUSED: Final = "tool:paused"
"""The call waited while its agent was paused."""
TOOL_DEFERRED: Final = "tool:deferred"
"""A decision waits for a person while no process waits for it. It reads as a decision of outcome `ask`."""
TOOL_ANSWERED: Final = "tool:answered"
"""A person's answer goes on with the decision, in the orchestrator that writes this."""

TOOL_ENDS: Final = frozenset((TOOL_POST, TOOL_ERROR, TOOL_UNUSED))
"""Events after which a call runs no longer, or never will."""
ENDS: Final = TOOL_ENDS | {USAGE, PROVIDER_ERROR}
"""The same events, and the ends of requests to LLMs, if they name a decision."""
LABELLED: Final = frozenset((TURN, USAGE))
"""Events without a decision to name the labels: they name the labels themselves."""
TOLD_AS_DECISION: Final = frozenset(("decision", TOOL_DEFERRED))
