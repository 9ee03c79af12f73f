"""Write a scheduler: a function from a tool call to a verdict, run by `toolgate scheduler run`.

`schedulers/README.md` leads through it; `api` says which forms there are.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from toolgate_bus.events import AskUser, Continue, Deny, Hold, Modify, ToolSelecting, Verdict

    from toolgate_schedulers.api import HeldQuestion, Holds, Scheduler, SchedulerContext, scheduler
    from toolgate_schedulers.hooks import HookResult
    from toolgate_schedulers.worker import Worker

__all__ = [
    "AskUser",
    "Continue",
    "Deny",
    "HeldQuestion",
    "Hold",
    "Holds",
    "HookResult",
    "Modify",
    "Scheduler",
    "SchedulerContext",
    "ToolSelecting",
    "Verdict",
    "Worker",
    "scheduler",
]

_HERE: Final = {
    "HeldQuestion": "toolgate_schedulers.api",
    "Holds": "toolgate_schedulers.api",
    "HookResult": "toolgate_schedulers.hooks",
    "Scheduler": "toolgate_schedulers.api",
    "SchedulerContext": "toolgate_schedulers.api",
    "Worker": "toolgate_schedulers.worker",
    "scheduler": "toolgate_schedulers.api",
}


def __getattr__(name: str) -> Any:
    # Late: every module in here passes by, and each name brings what it needs, up to amplifier-core.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HERE.get(name, "toolgate_bus.events")), name)
