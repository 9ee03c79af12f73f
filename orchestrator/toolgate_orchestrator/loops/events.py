"""`loop-events`: the LLM chooses, schedulers may object (seed loop-events).

    LLM selects a tool ─▶ tool:selecting ─▶ schedulers respond ─▶ all continue:  the original call
                                                               ─▶ modify:        the scheduler's call
                                                               ─▶ deny:          the LLM is told why
                          ─▶ tool:selected ─▶ tool:pre ─▶ run ─▶ tool:post | tool:error

Calls run one after another. The user is told of an error of the provider, and the turn ends.
"""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import field_validator
from toolgate_bus.protocol.fact_events import TOOL_SELECTED

from toolgate_orchestrator.turn.calls.order import run_in_order
from toolgate_orchestrator.turn.calls.selection import TOOL_SELECTING
from toolgate_orchestrator.turn.loop import LoopBase, mount_of
from toolgate_orchestrator.turn.loop_config import AskingConfig, LoopConfig
from toolgate_orchestrator.turn.turn import Turn
from toolgate_orchestrator.turn.values.messages import ToolCall
from toolgate_orchestrator.turn.values.results import Results

__amplifier_module_type__ = "orchestrator"


class EventsConfig(AskingConfig):
    """Configuration of `loop-events`."""

    parallel_tools: bool = False

    @field_validator("parallel_tools")
    @classmethod
    def _sequential(cls, value: bool) -> bool:
        if value:
            raise ValueError(
                "loop-events runs tool calls one after another, so that schedulers know the result of "
                "each before they rule on the next; loop-basic and loop-streaming run them in parallel"
            )
        return value


class LoopEvents(LoopBase[EventsConfig]):
    """The event-driven orchestrator."""

    name: ClassVar[str] = "loop-events"
    config_model: ClassVar[type[LoopConfig]] = EventsConfig
    raises_provider_errors: bool = False
    streams: bool = True
    own_events: ClassVar[tuple[str, ...]] = (TOOL_SELECTING, TOOL_SELECTED)

    async def run_calls(self, turn: Turn, calls: Sequence[ToolCall], results: Results) -> None:
        """Run one call after another: the selected call runs, or the LLM is told the reason why none does."""
        await run_in_order(turn, calls, results)


mount = mount_of(LoopEvents)
config_model = LoopEvents.config_model
