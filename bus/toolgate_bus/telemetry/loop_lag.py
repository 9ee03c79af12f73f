"""Measure how late the event loop is: its other work keeps a decision waiting."""

import asyncio
import time
from typing import Final

from toolgate_bus.telemetry import metrics

EVERY_S: Final = 0.25


async def watch_loop_lag(side: str) -> None:
    """Measure it four times a second until cancelled. `side` is the label: scheduler, orchestrator …"""
    while True:
        due = time.monotonic() + EVERY_S
        await asyncio.sleep(EVERY_S)
        metrics.observe(metrics.LOOP_LAG, max(0.0, time.monotonic() - due), side)
