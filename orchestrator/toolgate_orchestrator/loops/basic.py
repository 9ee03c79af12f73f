"""`loop-basic`: prompt, LLM, its tool calls in parallel, and again, until it answers (seed loop-basic).

Responses are delivered whole. An error of the provider is emitted and raised. Results are stored in
the order of the calls, whoever is done first. A graceful cancellation lets what runs finish and begins
nothing new; an immediate one cancels all that runs, and none is left behind.
"""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from toolgate_orchestrator.turn.loop import LoopBase, mount_of
from toolgate_orchestrator.turn.loop_config import LoopConfig, ParallelConfig
from toolgate_orchestrator.turn.messages import ToolCall
from toolgate_orchestrator.turn.results import Results
from toolgate_orchestrator.turn.turn import Turn

__amplifier_module_type__ = "orchestrator"


class LoopBasic(LoopBase[ParallelConfig]):
    """The plain orchestrator."""

    name: ClassVar[str] = "loop-basic"
    config_model: ClassVar[type[LoopConfig]] = ParallelConfig

    async def run_calls(self, turn: Turn, calls: Sequence[ToolCall], results: Results) -> None:
        """All calls of a response at once, unless the config says one after another."""
        run = side_by_side if self.settings.parallel_tools else in_order
        await run(turn, calls, results)


mount = mount_of(LoopBasic)
config_model = LoopBasic.config_model


async def in_order(turn: Turn, calls: Sequence[ToolCall], results: Results) -> None:
    """One after another; the result of each is stored before the next begins."""
    for call in calls:
        if turn.cancelled:
            return
        await _run(turn, call, results)


async def side_by_side(turn: Turn, calls: Sequence[ToolCall], results: Results) -> None:
    """All at once."""
    if turn.cancelled:
        return
    try:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(_run(turn, call, results), name=f"toolgate-{call.id}")
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None  # the context's own error, as if it stood alone


async def _run(turn: Turn, call: ToolCall, results: Results) -> None:
    ran = await turn.run(await turn.select(call))
    await results.give(call, ran.content)
