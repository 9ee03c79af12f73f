"""What the state of a run keeps for the gate: tokens of open questions, and who handed over to whom.

A RunState goes to a string and back, to be resumed by any process. What the SDK keeps in it of its own
accord, and shows to no model, are the words of refusals: so notes are refusals of a tool that there is not.
"""

import json
from typing import Any, Final

from agents import ToolApprovalItem

NOTES: Final = "toolgate"


def keep(context: Any, agent: Any, key: str, words: str) -> None:
    """Keep something of this run by its key, in place of what was there; `words` are not empty."""
    context.reject_tool(_note(agent, key), rejection_message=words)


def read(context: Any, key: str) -> str:
    """What was kept; empty for nothing."""
    return context.get_rejection_message(NOTES, f"{NOTES}-{key}") or ""


def drop(context: Any, agent: Any, key: str) -> None:
    """Keep it no longer."""
    context.approve_tool(_note(agent, key))


def keep_lineage(context: Any, agent: Any, source: Any) -> None:
    """The agent took over from that one."""
    before = [name for name in (*lineage_of(context, source.name), source.name) if name != agent.name]
    keep(context, agent, f"from-{agent.name}", json.dumps(before))


def lineage_of(context: Any, agent: str) -> list[str]:
    """Who handed over before this agent had the run, in that order."""
    kept = json.loads(read(context, f"from-{agent}") or "[]")
    return [name for name in kept if isinstance(name, str)] if isinstance(kept, list) else []


def _note(agent: Any, key: str) -> ToolApprovalItem:
    raw = {"type": "function_call", "name": NOTES, "call_id": f"{NOTES}-{key}", "arguments": "{}"}
    return ToolApprovalItem(agent=agent, raw_item=raw, tool_name=NOTES)
