"""What a scheduler may offer so that it can be rehearsed on recorded calls at the times of the record. Pure.

A scheduler that goes by the clock says little to calls that are put before it as fast as they are read. Its
rehearsal is told everything at its time, in order, and reads no clock: whoever replays keeps the time.
Contributed by the entry-point group `toolgate.rehearsals`, under the scheduler's name: a function from the
path of a configuration to a `Rehearsal`, or to None where that configuration does not go by the clock.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Protocol

from toolgate_bus.protocol.events import Phase, ToolSelecting, Verdict

GROUP: Final = "toolgate.rehearsals"


class Rehearsal(Protocol):
    """One configuration, from the first recorded call to the last. Times are seconds, and never go back."""

    phases: ClassVar[Sequence[Phase]]
    """When it rules."""
    priority: int
    """Of its verdicts."""
    left_out: str
    """What it does not rehearse of its configuration, in a sentence; nothing where it does all."""

    def ask(self, call: ToolSelecting, now: float) -> Verdict:
        """What it says of a call; of one that it holds, `tell` says more."""

    def begin(self, call: ToolSelecting, now: float) -> None:
        """The call was let through by all, and runs."""

    def end(self, id_: str, now: float, success: bool | None) -> None:
        """A call has ended, well or not; None: it does not run, and did not."""

    def tell(self, now: float) -> list[tuple[str, Verdict]]:
        """Of calls that it held, by id, what is said now: each once, and the last word."""

    def find_due(self) -> float:
        """When it may have something to tell though nothing happens; infinity: never."""

    def report(self) -> list[dict[str, Any]]:
        """Figures of its own, one row each, for a table and for scripts: a pool and what became of it."""
