"""`loop-basic`: prompt, LLM, its tool calls in parallel, and again, until it answers (seed loop-basic).

Responses are delivered whole. An error of the provider is emitted and raised. Results are stored in
the order of the calls, whoever is done first.
"""

from collections.abc import Sequence
from typing import ClassVar

from toolgate_orchestrator.turn.loop import LoopBase, mount_of
from toolgate_orchestrator.turn.loop_config import LoopConfig, ParallelConfig
from toolgate_orchestrator.turn.messages import Call
from toolgate_orchestrator.turn.parallel import in_order, side_by_side
from toolgate_orchestrator.turn.results import Results
from toolgate_orchestrator.turn.turn import Turn

__all__ = ["LoopBasic", "mount"]

__amplifier_module_type__ = "orchestrator"


class LoopBasic(LoopBase[ParallelConfig]):
    """The plain orchestrator."""

    name: ClassVar[str] = "loop-basic"
    config_model: ClassVar[type[LoopConfig]] = ParallelConfig

    async def run_calls(self, turn: Turn, calls: Sequence[Call], results: Results) -> None:
        """All calls of a response at once, unless the config says one after another."""
        run = side_by_side if self.settings.parallel_tools else in_order
        await run(turn, calls, results)


mount = mount_of(LoopBasic)
