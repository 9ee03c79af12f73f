"""What orchestrators and schedulers share: the events, the wire, the ruling, the bus.

No logic lives here, and nothing in this package imports `toolgate_orchestrator` or
`toolgate_schedulers`. `ARCHITECTURE.md` shows which module may import which.
"""

from toolgate_bus.errors import (
    BusDown,
    CodecError,
    ConfigError,
    NoServer,
    OutcomeUnknown,
    ToolgateError,
    TransportError,
)
from toolgate_bus.events import (
    AskUser,
    Continue,
    Decision,
    Deny,
    Heard,
    Hold,
    Modify,
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
    "Heard",
    "Hold",
    "Modify",
    "NoServer",
    "OutcomeUnknown",
    "ToolSelecting",
    "ToolgateError",
    "TransportError",
    "Verdict",
]
