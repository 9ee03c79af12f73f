"""Calls that were let through and have no report yet. Pure.

Both tables are bounded, and no caller pushes out another's calls. A call that was pushed out can no longer be
reported. The ledger of budgets counts it as run after an hour, as it does if a caller or sidecar died: nobody
can know that it did not run.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from toolgate_orchestrator.calls.open_call import OpenCall
from toolgate_orchestrator.commands.serve.requests import PlaceBody
from toolgate_orchestrator.decision.tree_shares import TreeShares

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import Decision

    from toolgate_orchestrator.decision.question.call import Call

MAX_OPEN: Final = 50_000
MAX_CLOSED: Final = 50_000


def tree_of(asked: PlaceBody) -> str:
    """Return the root session of a request, or its agent if it names no session: bounds count by it."""
    return asked.root_session or asked.parent or asked.session or asked.agent or ""


class UnknownCall(Exception):  # noqa: N818 - it says what was found
    """No call of this decision id is known."""


class OtherReport(Exception):  # noqa: N818 - as above
    """Another outcome was reported before."""


class DecidedCall(NamedTuple):
    """A call that was let through, as schedulers are asked about its result."""

    call: "Call"
    decision: "Decision"


class OpenCalls:
    """Calls that wait for a report, by decision id, and reported ones, so that a report may be repeated."""

    def __init__(self, max_open: int = MAX_OPEN, max_closed: int = MAX_CLOSED) -> None:
        self._open: dict[str, OpenCall] = {}
        self._ruled: dict[str, DecidedCall] = {}
        self._shares: TreeShares[str] = TreeShares()
        self._closed: dict[str, str] = {}
        self._max_open, self._max_closed = max_open, max_closed

    def __len__(self) -> int:
        return len(self._open)

    def add(self, id_: str, call: OpenCall, ruled: DecidedCall | None = None) -> None:
        """Add a call that may run; if there are too many, forget the oldest of the caller with most calls."""
        caller = call.tree
        if len(self._open) >= self._max_open:
            self._take(self._shares.find_oldest(caller))
        self._open[id_] = call
        if ruled is not None:
            self._ruled[id_] = ruled
        self._shares.add(caller, id_)

    def find(self, id_: str) -> OpenCall | None:
        """Return the call with that id that waits for a report, if there is one."""
        return self._open.get(id_)

    def find_ruled(self, id_: str) -> DecidedCall | None:
        """Return the same call as it was ruled on, if there is one."""
        return self._ruled.get(id_)

    def close(self, id_: str, outcome: str) -> OpenCall | None:
        """Take the call that is reported; None if it was reported before.

        Raises UnknownCall, or OtherReport if another outcome was reported.
        """
        before = self._closed.get(id_)
        if before is not None:
            if before != outcome:
                raise OtherReport(before)
            return None
        try:
            call = self._take(id_)
        except KeyError:
            raise UnknownCall(id_) from None
        if len(self._closed) >= self._max_closed:
            del self._closed[next(iter(self._closed))]
        self._closed[id_] = outcome
        return call

    def _take(self, id_: str) -> OpenCall:
        call = self._open.pop(id_)
        self._ruled.pop(id_, None)
        self._shares.remove(call.tree, id_)
        return call
