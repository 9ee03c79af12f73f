"""Write a scheduler: a function from a tool call to a verdict, run by `toolgate scheduler run`.

`schedulers/README.md` leads through it; `api` says which forms there are.
"""

from typing import TYPE_CHECKING, Any

from toolgate_bus.events import AskUser, Continue, Deny, Hold, Modify, ToolSelecting, Verdict

from toolgate_schedulers.api import HeldQuestion, Holds, Scheduler, SchedulerContext, scheduler

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    # Late: the one imports amplifier-core where that is installed, the other what a process needs.
    if name == "HookResult":
        from toolgate_schedulers import hooks

        return hooks.HookResult
    if name == "Worker":
        from toolgate_schedulers import worker

        return worker.Worker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
