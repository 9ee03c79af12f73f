"""Interface of schedulers that can be rehearsed on recorded calls, at the times of the record. Pure.

A scheduler that goes by the clock has little to say if calls are put to it as fast as they are read. Its
rehearsal gets every event with its time, in order, and reads no clock: the replay keeps the time. The
entry-point group `toolgate.rehearsals` contributes it, under the scheduler's name: a function from the path
of a configuration to a `Rehearsal`, or to None if that configuration does not go by the clock.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Protocol

from toolgate_bus.protocol.events import Phase, ToolSelecting, Verdict

GROUP: Final = "toolgate.rehearsals"


class Rehearsal(Protocol):
    """One configuration, from the first recorded call to the last. Times are seconds, and never go back."""

    phases: ClassVar[Sequence[Phase]]
    """Phases in which it rules."""
    priority: int
    """Priority of its verdicts."""
    left_out: str
    """Sentence about the parts of its configuration that it does not rehearse; empty if there are none."""

    def ask(self, call: ToolSelecting, now: float) -> Verdict:
        """Return its verdict on a call. After a hold, `tell` returns the final one."""

    def begin(self, call: ToolSelecting, now: float) -> None:
        """Note that the call was let through by all, and runs."""

    def end(self, id_: str, now: float, success: bool | None) -> None:
        """Note that a call has ended, well or not. None means that it did not run, and will not."""

    def tell(self, now: float) -> list[tuple[str, Verdict]]:
        """Return the final verdicts on held calls that are due now, with their ids; each only once."""

    def find_due(self) -> float:
        """Return the next time at which `tell` may have a verdict without any event; infinity for never."""

    def report(self) -> list[dict[str, Any]]:
        """Return figures of its own, one row each, for a table and for scripts, such as one for each pool."""
