"""Waits for the kernel's threads before the interpreter ends.

In amplifier-core 2.0.2, a thread that still uses the interpreter at its end aborts the process
("PyGILState_Release: thread state … must be current when releasing", signal 6). This happens about once in a
hundred short programs. A short sleep, in which this thread does not hold the interpreter, lets those threads
finish.
"""

import time

_MOMENT_S = 0.05


def let_kernel_threads_go() -> None:
    """Sleep for a moment. Call it once, after the last session of a command, outside any event loop."""
    time.sleep(_MOMENT_S)
