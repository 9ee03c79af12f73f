"""Names of facts about calls, requests to LLMs and turns, for every writer and reader. Pure.

The page of the wire describes each fact, and `facts.validation` checks it. An agent's process makes them with
`calls.open_call` of the orchestrator.
"""

from typing import Final

TURN: Final = "turn"
"""Event: a turn has ended."""
USAGE: Final = "usage"
"""Event: a request to an LLM was answered; the fact has its usage."""
PROVIDER_ERROR: Final = "provider:error"
"""Event: a request to an LLM failed."""
TOOL_SELECTED: Final = "tool:selected"
"""Event: a call was let through, perhaps another one than the LLM's."""
TOOL_POST: Final = "tool:post"
"""Event: the call ran, and returned a result."""
TOOL_RESULT: Final = "tool:result"
"""Event: schedulers have ruled on what the call gave, before anybody saw it."""
TOOL_ERROR: Final = "tool:error"
"""Event: the call ran, or may have run, and failed."""
TOOL_UNUSED: Final = "tool:unused"
"""Event: the call was let through, but is not run after all."""
TOOL_WAITS: Final = "tool:waits"
"""Event: the call still waits for somebody."""
TOOL_PAUSED: Final = "tool:paused"
"""Event: the call waited while its agent was paused."""
TOOL_DEFERRED: Final = "tool:deferred"
"""Event: a decision waits for a person while no process waits for it; read as a decision, outcome `ask`."""
TOOL_ANSWERED: Final = "tool:answered"
"""Event: a person's answer resumes the decision, in the orchestrator that writes this."""

TOOL_ENDS: Final = frozenset((TOOL_POST, TOOL_ERROR, TOOL_UNUSED))
"""Events after which a call runs no longer, or never will."""
ENDS: Final = TOOL_ENDS | {USAGE, PROVIDER_ERROR}
"""The same events, and the ends of requests to LLMs, if they name a decision."""
LABELLED: Final = frozenset((TURN, USAGE))
"""Events without a decision to name the labels: they name the labels themselves."""
TOLD_AS_DECISION: Final = frozenset(("decision", TOOL_DEFERRED))
