"""The orchestrator side of Toolgate: the gate, and Amplifier loops that ask it before a tool runs.

`Guard` is for any program, `Gate` for one event loop of asyncio; both need the base install alone. The loops
and the other Amplifier modules are not imported here: Amplifier finds them by entry point (group
`amplifier.modules`). `current_call` is for tools that run under such a loop.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from toolgate_bus.errors import CallDenial, TurnStop
    from toolgate_bus.protocol.events import AskUser, Decision, ToolSelecting

    from toolgate_orchestrator.decision.config import RedactConfig, SchedulerLimits, ToolgateConfig
    from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
    from toolgate_orchestrator.decision.gate import Answer, Ask, Gate, LocalScheduler
    from toolgate_orchestrator.decision.question.call import Call, Caller
    from toolgate_orchestrator.guard.guard import Guard
    from toolgate_orchestrator.guard.ruling import Ruling
    from toolgate_orchestrator.guard.turns import AgentTurn
    from toolgate_orchestrator.turn.calls.tool_call import current_call

__all__ = [
    "AgentTurn",
    "Answer",
    "Ask",
    "AskUser",
    "Call",
    "CallDenial",
    "Caller",
    "Decision",
    "Gate",
    "Guard",
    "LocalScheduler",
    "PersonAnswer",
    "RedactConfig",
    "Ruling",
    "SchedulerLimits",
    "ToolSelecting",
    "ToolgateConfig",
    "TurnStop",
    "current_call",
]

_HERE: Final = {
    **dict.fromkeys(("Answer", "Ask", "Gate", "LocalScheduler"), "toolgate_orchestrator.decision.gate"),
    **dict.fromkeys(
        ("RedactConfig", "SchedulerLimits", "ToolgateConfig"), "toolgate_orchestrator.decision.config"
    ),
    **dict.fromkeys(("AskUser", "Decision", "ToolSelecting"), "toolgate_bus.protocol.events"),
    **dict.fromkeys(("CallDenial", "TurnStop"), "toolgate_bus.errors"),
    "Call": "toolgate_orchestrator.decision.question.call",
    "Caller": "toolgate_orchestrator.decision.question.call",
    "Guard": "toolgate_orchestrator.guard.guard",
    "PersonAnswer": "toolgate_orchestrator.decision.deferral.answer",
    "Ruling": "toolgate_orchestrator.guard.ruling",
    "AgentTurn": "toolgate_orchestrator.guard.turns",
    "current_call": "toolgate_orchestrator.turn.calls.tool_call",  # it brings amplifier-core
}


def __getattr__(name: str) -> Any:
    # Late: each name brings what it needs, and no more.
    if name not in _HERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HERE[name]), name)
    return found
