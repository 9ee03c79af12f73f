"""Notes of the gate in the state of a run: tokens of open questions, and agents that handed over.

A RunState can be written as a string and resumed by any process. It keeps the words of refusals, and shows
them to no model. So each note is the refusal of a tool that does not exist.
"""

import json
from typing import Any, Final

from agents import ToolApprovalItem

NOTES: Final = "toolgate"


def keep(context: Any, agent: Any, key: str, words: str) -> None:
    """Keep a note of this run under its key, and replace an earlier one. `words` must not be empty."""
    context.reject_tool(_note(agent, key), rejection_message=words)


def read(context: Any, key: str) -> str:
    """Return the note of a key; empty if there is none."""
    return context.get_rejection_message(NOTES, f"{NOTES}-{key}") or ""


def drop(context: Any, agent: Any, key: str) -> None:
    """Forget the note of a key."""
    context.approve_tool(_note(agent, key))


def keep_lineage(context: Any, agent: Any, source: Any) -> None:
    """Keep that `source` handed over to the agent."""
    before = [name for name in (*lineage_of(context, source.name), source.name) if name != agent.name]
    keep(context, agent, f"from-{agent.name}", json.dumps(before))


def lineage_of(context: Any, agent: str) -> list[str]:
    """Return the names of the agents that handed over before this one got the run, in that order."""
    kept = json.loads(read(context, f"from-{agent}") or "[]")
    return [name for name in kept if isinstance(name, str)] if isinstance(kept, list) else []


def _note(agent: Any, key: str) -> ToolApprovalItem:
    raw = {"type": "function_call", "name": NOTES, "call_id": f"{NOTES}-{key}", "arguments": "{}"}
    return ToolApprovalItem(agent=agent, raw_item=raw, tool_name=NOTES)
