"""Calls that were let through and of which nobody has said yet what became of them. Pure.

Both tables are bounded, and no caller pushes out the calls of another. What was pushed out can no longer be
reported. The ledger of budgets counts it as run once an hour is over, as it does where a caller or sidecar
died: nobody can know that it was not.
"""

from typing import Final

from toolgate_orchestrator.calls.open_call import OpenCall
from toolgate_orchestrator.commands.serve.requests import PlaceBody
from toolgate_orchestrator.decision.tree_shares import TreeShares

MAX_OPEN: Final = 50_000
MAX_CLOSED: Final = 50_000


def tree_of(asked: PlaceBody) -> str:
    """Return the root session of a request, or its agent where no session is told: bounds go by it."""
    return asked.root_session or asked.parent or asked.session or asked.agent or ""


class UnknownCall(Exception):  # noqa: N818 - it says what was found
    """Nothing is known of such a decision."""


class OtherReport(Exception):  # noqa: N818 - as above
    """Something else was reported before."""


class OpenCalls:
    """What waits for a report, by decision id; and what was reported, so that it may be told twice."""

    def __init__(self, max_open: int = MAX_OPEN, max_closed: int = MAX_CLOSED) -> None:
        self._open: dict[str, OpenCall] = {}
        self._shares: TreeShares[str] = TreeShares()
        self._closed: dict[str, str] = {}
        self._max_open, self._max_closed = max_open, max_closed

    def __len__(self) -> int:
        return len(self._open)

    def add(self, id_: str, call: OpenCall) -> None:
        """A call may run; where there are too many, the oldest of whoever has the most is forgotten."""
        caller = call.tree
        if len(self._open) >= self._max_open:
            self._take(self._shares.find_oldest(caller))
        self._open[id_] = call
        self._shares.add(caller, id_)

    def find(self, id_: str) -> OpenCall | None:
        """The call that waits for a report by that id, if there is one."""
        return self._open.get(id_)

    def close(self, id_: str, outcome: str) -> OpenCall | None:
        """Take the call of which this is told; None where it was told before.

        Raises UnknownCall, or OtherReport where another outcome was told.
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
        self._shares.remove(call.tree, id_)
        return call
