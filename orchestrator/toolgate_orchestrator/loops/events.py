"""`loop-events`: the LLM chooses, schedulers may object (seed loop-events).

    LLM selects a tool ─▶ tool:selecting ─▶ schedulers respond ─▶ all continue:  the original call
                                                               ─▶ modify:        the scheduler's call
                                                               ─▶ deny:          the LLM is told why
                          ─▶ tool:selected ─▶ tool:pre ─▶ run ─▶ tool:post | tool:error

Calls run one after another. An error of the provider is told to the user and ends the turn.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import field_validator

from toolgate_orchestrator.turn.loop import LoopBase, mount_loop
from toolgate_orchestrator.turn.loop_config import LoopConfig
from toolgate_orchestrator.turn.messages import Call
from toolgate_orchestrator.turn.selection import TOOL_SELECTED, TOOL_SELECTING
from toolgate_orchestrator.turn.tool_call import Refusal
from toolgate_orchestrator.turn.turn import Turn

__all__ = ["EventsConfig", "LoopEvents", "mount"]

__amplifier_module_type__ = "orchestrator"


class EventsConfig(LoopConfig):
    """The config of `loop-events`."""

    parallel_tools: bool = False

    @field_validator("parallel_tools")
    @classmethod
    def _sequential(cls, value: bool) -> bool:
        if value:
            raise ValueError(
                "loop-events runs tool calls one after another; loop-basic runs them in parallel"
            )
        return value


class LoopEvents(LoopBase[EventsConfig]):
    """The event-driven orchestrator."""

    name: ClassVar[str] = "loop-events"
    config_model: ClassVar[type[LoopConfig]] = EventsConfig
    raises_provider_errors: bool = False
    own_events: ClassVar[tuple[str, ...]] = (TOOL_SELECTING, TOOL_SELECTED)

    async def run_calls(self, turn: Turn, calls: Sequence[Call]) -> None:
        """One call after another, each with its result before the next is looked at."""
        for call in calls:
            if turn.cancelled:
                return
            await turn.results.give(call, await self._result(turn, call))

    async def _result(self, turn: Turn, call: Call) -> Any:
        selected = await turn.selection.select(call)
        if isinstance(selected, Refusal):
            return str(selected)
        prepared = await turn.tools.before(selected)
        if isinstance(prepared, Call) and prepared is not selected:
            prepared = await turn.selection.select(prepared)  # a hook's change is a call nobody has judged
        return str(prepared) if isinstance(prepared, Refusal) else await turn.tools.run(prepared)


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> Callable[[], Awaitable[None]]:
    """Mount `loop-events` into a session (entry point `amplifier.modules`)."""
    return await mount_loop(LoopEvents, coordinator, config)
