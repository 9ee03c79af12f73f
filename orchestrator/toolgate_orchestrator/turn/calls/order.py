"""Runs calls one after another: if the config says so, or if a provider marks calls as a sequence.

A call that a provider gives `_amplifier_execution_mode = "sequential"` (actions on one screen, say) runs
after those before it in its response, and each result is stored before the next call begins. A sequence ends
with the first call that fails or is refused. The calls behind it rest on it, and get a result that says so.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolgate_orchestrator.turn.values.messages import ToolCall
from toolgate_orchestrator.turn.values.results import Results

if TYPE_CHECKING:
    from toolgate_orchestrator.turn.turn import Turn


def is_sequence(calls: Sequence[ToolCall]) -> bool:
    """Return whether a response's calls build on one another."""
    return any(call.sequential for call in calls)


def explain_skip(failed: str) -> str:
    """Return why a call of a sequence did not run; `failed` is the call before it, or its id."""
    return f"it was not run: {failed}, before it in the same sequence, failed"


async def run_in_order(turn: "Turn", calls: Sequence[ToolCall], results: Results) -> None:
    """Run the calls of one response one after another, until the session is cancelled."""
    broken, is_strict = "", is_sequence(calls)
    for call in calls:
        if turn.cancelled:
            return
        if broken:
            await results.give(call, f"Error: Skipped: {explain_skip(broken)}")
            continue
        ran = await turn.run(await turn.select(call))
        await results.give(call, ran.content)
        if is_strict and (ran.error is not None or ran.refused is not None):
            broken = f"{call.name} ({call.id})"
