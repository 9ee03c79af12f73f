"""What orchestrators and schedulers share: the events, the wire, the ruling, the bus.

No logic lives here, and nothing in this package imports `toolgate_orchestrator` or
`toolgate_schedulers`. `ARCHITECTURE.md` shows which module may import which.
"""

from typing import TYPE_CHECKING, Any

from toolgate_bus.errors import (
    BusDown,
    CodecError,
    ConfigError,
    NoServer,
    OutcomeUnknown,
    ToolgateError,
    TransportError,
)

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import (
        AskUser,
        Continue,
        Decision,
        Deny,
        Hold,
        Modify,
        ReceivedVerdict,
        ToolSelecting,
        Verdict,
    )

__all__ = [
    "AskUser",
    "BusDown",
    "CodecError",
    "ConfigError",
    "Continue",
    "Decision",
    "Deny",
    "Hold",
    "Modify",
    "NoServer",
    "OutcomeUnknown",
    "ReceivedVerdict",
    "ToolSelecting",
    "ToolgateError",
    "TransportError",
    "Verdict",
]


def __getattr__(name: str) -> Any:
    # Late: they are pydantic's, which half of the commands do without, and every module in here passes by.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from toolgate_bus.protocol import events

    return getattr(events, name)
