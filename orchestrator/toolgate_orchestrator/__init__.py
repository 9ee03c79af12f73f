"""The orchestrator side of Toolgate: the gate, and Amplifier loops that ask it before a tool runs.

`Gate` is for any asyncio program. The loops and the other Amplifier modules are not imported here:
Amplifier finds them by entry point (group `amplifier.modules`). `current_call` is for tools that run
under such a loop.
"""

from typing import TYPE_CHECKING, Any

from toolgate_orchestrator.gate.config import RedactConfig, SchedulerLimits, ToolgateConfig
from toolgate_orchestrator.gate.gate import Answer, Ask, Gate, LocalScheduler

if TYPE_CHECKING:
    from toolgate_orchestrator.turn.tool_call import current_call

__all__ = [
    "Answer",
    "Ask",
    "Gate",
    "LocalScheduler",
    "RedactConfig",
    "SchedulerLimits",
    "ToolgateConfig",
    "current_call",
]


def __getattr__(name: str) -> Any:
    # Late: it brings amplifier-core, which programs with a `Gate` do without.
    if name != "current_call":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from toolgate_orchestrator.turn.tool_call import current_call

    return current_call
