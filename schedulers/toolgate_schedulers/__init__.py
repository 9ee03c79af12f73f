"""Write a scheduler: a function from a tool call to a verdict, run by `toolgate scheduler run`.

`docs/write-a-scheduler.md` leads through it; `author/forms` says which forms there are.
"""

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import AskUser, Continue, Deny, Hold, Modify, ToolSelecting, Verdict

    from toolgate_schedulers.author.forms import scheduler
    from toolgate_schedulers.author.hook_adapter import HookResult
    from toolgate_schedulers.author.scheduler import HeldQuestion, Holds, Scheduler, SchedulerContext
    from toolgate_schedulers.worker.worker import Worker

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
    "HeldQuestion": "toolgate_schedulers.author.scheduler",
    "Holds": "toolgate_schedulers.author.scheduler",
    "HookResult": "toolgate_schedulers.author.hook_adapter",
    "Scheduler": "toolgate_schedulers.author.scheduler",
    "SchedulerContext": "toolgate_schedulers.author.scheduler",
    "Worker": "toolgate_schedulers.worker.worker",
    "scheduler": "toolgate_schedulers.author.forms",
}


def __getattr__(name: str) -> Any:
    # Late: every module in here passes by, and each name brings what it needs, up to amplifier-core.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # What is loaded stays: there is nothing to collect in it, now or at the end, and looking takes long.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        found = globals()[name] = getattr(
            import_module(_HERE.get(name, "toolgate_bus.protocol.events")), name
        )
    finally:
        if not gc.get_stats()[2]["collections"]:  # a program that begins: nobody else's garbage is kept
            gc.freeze()
        if was_enabled:
            gc.enable()
    return found
