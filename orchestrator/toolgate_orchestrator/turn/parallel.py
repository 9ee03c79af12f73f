"""Runs the calls of one response side by side, or one after another (seed loop-basic).

Results are stored in the order of the calls either way. A graceful cancellation lets what runs
finish and begins nothing new; an immediate one cancels all that runs, and none is left behind.
"""

import asyncio
from collections.abc import Sequence

from toolgate_orchestrator.turn.messages import Call
from toolgate_orchestrator.turn.results import Results
from toolgate_orchestrator.turn.turn import Turn

__all__ = ["in_order", "side_by_side"]


async def in_order(turn: Turn, calls: Sequence[Call], results: Results) -> None:
    """One after another; the result of each is stored before the next begins."""
    for call in calls:
        if turn.cancelled:
            return
        await _run(turn, call, results)


async def side_by_side(turn: Turn, calls: Sequence[Call], results: Results) -> None:
    """All at once."""
    if turn.cancelled:
        return
    try:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(_run(turn, call, results), name=f"toolgate-{call.id}")
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None  # the context's own error, as if it stood alone


async def _run(turn: Turn, call: Call, results: Results) -> None:
    ran = await turn.run(await turn.select(call))
    await results.give(call, ran.content)
