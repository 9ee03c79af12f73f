"""Faults of the gate itself and of its subscribers: each is counted, and logged once. None lifts a ruling."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, Final, Literal

from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import where

Part = Literal["rule", "table", "labels", "verdict", "ask", "record", "result", "subscriber", "span"]
BROKEN: Final = (Exception, asyncio.CancelledError)
"""Exceptions that a plain function may raise. Nobody cancels it, so CancelledError is a fault as well."""
MAX_REPORTS: Final = 256

_log = get_logger("toolgate.gate")
_told: set[Hashable] = set()


def note_fault(part: Part, error: BaseException, whose: Hashable = None) -> None:
    """Count a fault. Log it, unless this part (of this owner) has failed in the same way before."""
    metrics.count(metrics.GATE_FAULTS, part)
    key = (part, whose, type(error))
    if key not in _told and len(_told) < MAX_REPORTS:
        _told.add(key)
        _log.error("the gate has a fault, logged once; its rulings stand", part=part, error=where(error))


def call_guarded(callback: Callable[..., object], *told: Any) -> None:
    """Call one subscriber. An exception of it is counted, and goes no further."""
    try:
        callback(*told)
    except BROKEN as error:
        note_fault("subscriber", error, id(callback))
