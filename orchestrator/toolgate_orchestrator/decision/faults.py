"""Faults of the gate itself, and of who listens to it: each counted, and told once. None lifts a ruling."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, Final, Literal

from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import where

Part = Literal["rule", "verdict", "ask", "record", "subscriber", "span"]
BROKEN: Final = (Exception, asyncio.CancelledError)
"""What somebody's plain function may raise: nobody cancels one, so that is a fault as any other."""
MAX_REPORTS: Final = 256

_log = get_logger("toolgate.gate")
_told: set[Hashable] = set()


def note_fault(part: Part, error: BaseException, whose: Hashable = None) -> None:
    """Count it; log it, unless this part (of this one) has failed in the same way before."""
    metrics.count(metrics.GATE_FAULTS, part)
    key = (part, whose, type(error))
    if key not in _told and len(_told) < MAX_REPORTS:
        _told.add(key)
        _log.error("a fault in the gate, told once; what was ruled stands", part=part, error=where(error))


def call_guarded(callback: Callable[..., object], *told: Any) -> None:
    """Tell one subscriber; whatever it raises is its own affair."""
    try:
        callback(*told)
    except BROKEN as error:
        note_fault("subscriber", error, id(callback))
