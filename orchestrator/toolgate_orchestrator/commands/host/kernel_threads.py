"""Lets the kernel's threads go before the interpreter ends.

A thread of amplifier-core 2.0.2 that still holds on to the interpreter while it ends aborts the
process ("PyGILState_Release: thread state … must be current when releasing", signal 6), about once
in a hundred short programs. A moment without our holding the interpreter lets them finish.
"""

import time

_MOMENT_S = 0.05


def let_kernel_threads_go() -> None:
    """Wait a moment; call it once, after the last session of a command, outside any event loop."""
    time.sleep(_MOMENT_S)
