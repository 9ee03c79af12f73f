"""End the replicas of a supervisor that was killed, also those that hang.

    supervisor ──stdin: `+PID`, `-PID` a line──▶ survivor

In whatever way the supervisor dies, the kernel closes the pipe. Replicas then get SIGTERM (on Linux already
from the kernel), and those left after a while are killed: a replica that is stopped, or in an endless call of
its author's C code, reacts to no other signal and runs no thread. An isolated interpreter runs this file as a
script, so it uses the standard library only, and nothing of Toolgate.
"""

import contextlib
import os
import signal
import sys
import time

_LOOK_S = 0.1


class LivingReplicas:
    """The living replicas, each held by a descriptor if the system has these, as process ids are reused."""

    def __init__(self) -> None:
        self._living: dict[int, int | None] = {}

    def take(self, line: bytes) -> None:
        """Read one line from the supervisor."""
        pid = int(line[1:])
        if line[:1] == b"+":
            with contextlib.suppress(ProcessLookupError):
                self._living[pid] = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        elif (handle := self._living.pop(pid, None)) is not None:
            os.close(handle)

    def send(self, sent: int) -> bool:
        """Send a signal to all living replicas, or only look with 0. Return whether any is left."""
        for pid, handle in list(self._living.items()):
            try:
                if handle is None:
                    os.kill(pid, sent)
                else:
                    signal.pidfd_send_signal(handle, sent)
            except OSError:
                del self._living[pid]
        return bool(self._living)


def main(grace_s: float) -> None:
    """Follow the supervisor until it is gone; then give its replicas `grace_s` seconds to end."""
    replicas = LivingReplicas()
    for line in sys.stdin.buffer:
        replicas.take(line)
    replicas.send(signal.SIGTERM)
    until = time.monotonic() + grace_s
    while replicas.send(0):
        if time.monotonic() >= until:
            replicas.send(signal.SIGKILL)
            return
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main(float(sys.argv[1]))
