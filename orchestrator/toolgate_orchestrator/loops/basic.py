"""`loop-basic`: prompt, LLM, its tool calls in parallel, and again, until it answers (seed loop-basic).

Responses are delivered whole. An error of the provider is emitted and raised. Results are stored in
the order of the calls, whichever ends first. A graceful cancellation lets running calls finish and starts
no new ones; an immediate one cancels all running calls and leaves none behind.
"""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from toolgate_orchestrator.turn.calls.order import is_sequence, run_in_order
from toolgate_orchestrator.turn.loop import LoopBase, mount_of
from toolgate_orchestrator.turn.loop_config import LoopConfig, ParallelConfig
from toolgate_orchestrator.turn.turn import Turn
from toolgate_orchestrator.turn.values.messages import ToolCall
from toolgate_orchestrator.turn.values.results import Results

__amplifier_module_type__ = "orchestrator"


class LoopBasic(LoopBase[ParallelConfig]):
    """The plain orchestrator."""

    name: ClassVar[str] = "loop-basic"
    config_model: ClassVar[type[LoopConfig]] = ParallelConfig

    async def run_calls(self, turn: Turn, calls: Sequence[ToolCall], results: Results) -> None:
        """Run all calls of a response at once, unless the config says one after another."""

        async def run(call: ToolCall) -> None:
            ran = await turn.run(await turn.select(call))
            await results.give(call, ran.content)

        if not self.settings.parallel_tools or is_sequence(calls):
            await run_in_order(turn, calls, results)
            return
        if turn.cancelled:
            return
        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    group.create_task(run(call), name=f"toolgate-{call.id}")
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None  # raise the context's error without the group


mount = mount_of(LoopBasic)
config_model = LoopBasic.config_model
