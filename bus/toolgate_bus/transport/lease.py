"""The clock by which a heartbeat that was read counts, and for how long.

A process that stood still, or a machine that slept, must not take an old heartbeat for a new one. So the
clock goes on while the machine sleeps, where there is such a clock.
"""

import time
from typing import Final

LEASE_S: Final = 1.5
"""Seconds for which a heartbeat that was read counts: as long as it stays on the server."""
_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Return the time in seconds, since an arbitrary moment."""
    return time.clock_gettime(_BOOT)
