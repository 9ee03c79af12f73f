"""Write a scheduler: a function from a tool call to a verdict, run by `toolgate scheduler run`.

`docs/write-a-scheduler.md` is the guide; `author/forms` lists the forms that a scheduler may have.
"""

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import (
        AskUser,
        Continue,
        Deny,
        Hold,
        Mask,
        MaskedPart,
        Modify,
        Replace,
        ToolSelecting,
        Verdict,
    )

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
    "Mask",
    "MaskedPart",
    "Modify",
    "Replace",
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
    # Import late: every module of this package runs this file, and some names load much (amplifier-core).
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Loaded modules stay for good: a collection would find nothing in them, and takes long.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        found = globals()[name] = getattr(
            import_module(_HERE.get(name, "toolgate_bus.protocol.events")), name
        )
    finally:
        if not gc.get_stats()[2]["collections"]:  # a program at its start: no garbage of others is frozen
            gc.freeze()
        if was_enabled:
            gc.enable()
    return found
