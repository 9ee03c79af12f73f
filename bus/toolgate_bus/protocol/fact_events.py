"""The names of facts about calls, requests to LLMs and turns, whoever tells them. Pure.

What each tells is said on the page of the wire, and checked by `facts.validation`; an agent's process makes
it by `calls.open_call` of the orchestrator.
"""

from typing import Final

TURN: Final = "turn"
"""A turn has ended."""
USAGE: Final = "usage"
"""One request to an LLM was answered, and what it used."""
PROVIDER_ERROR: Final = "provider:error"
"""One came to nothing."""
TOOL_SELECTED: Final = "tool:selected"
"""A call was let through, perhaps another than the LLM's."""
TOOL_POST: Final = "tool:post"
"""It ran, and gave something."""
TOOL_ERROR: Final = "tool:error"
"""It ran, or may have, and failed."""
TOOL_UNUSED: Final = "tool:unused"
"""It was let through, and is not run after all."""
TOOL_WAITS: Final = "tool:waits"
"""It waits for somebody still."""
TOOL_PAUSED: Final = "tool:paused"
"""It waited while its agent was paused."""
TOOL_DEFERRED: Final = "tool:deferred"
"""A decision that waits for a person while no process waits for it: told as one, of outcome `ask`."""
TOOL_ANSWERED: Final = "tool:answered"
"""A person's answer goes on with it, in the orchestrator that tells this."""

TOOL_ENDS: Final = frozenset((TOOL_POST, TOOL_ERROR, TOOL_UNUSED))
"""The call runs no longer, or never will."""
ENDS: Final = TOOL_ENDS | {USAGE, PROVIDER_ERROR}
"""The same, of requests to LLMs too, where they name a decision."""
LABELLED: Final = frozenset((TURN, USAGE))
"""They belong to no decision, which would tell the labels."""
TOLD_AS_DECISION: Final = frozenset(("decision", TOOL_DEFERRED))
