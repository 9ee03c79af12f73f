"""Calls that were let through and of which nobody has said yet what became of them. Pure.

Both tables are bounded. What was pushed out can no longer be reported; the ledger of budgets counts it as run
once an hour is over, as it does where a caller or the sidecar died: nobody can know that it was not.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

MAX_OPEN: Final = 50_000
MAX_CLOSED: Final = 50_000


class OpenCall(NamedTuple):
    """A call that may run."""

    tool: str
    """What was let through: perhaps not what the LLM asked for."""
    who: Mapping[str, Any]
    """`session`, `root_session` and `agent`, as facts tell them."""
    labels: Mapping[str, str]
    call_id: str
    group: str
    iteration: int
    grants: Mapping[str, int]
    """The fencing numbers of what was given to it."""
    provider: str = ""
    """Of a request to an LLM: who is to answer."""
    model: str = ""
    since: float = 0.0
    """When it was let through, on a monotonic clock."""

    @property
    def session(self) -> str:
        """Id of its session."""
        return str(self.who["session"])


class UnknownCall(Exception):  # noqa: N818 - it says what was found
    """Nothing is known of such a decision."""


class OtherReport(Exception):  # noqa: N818 - as above
    """Something else was reported before."""


class OpenCalls:
    """What waits for a report, by decision id; and what was reported, so that it may be told twice."""

    def __init__(self, max_open: int = MAX_OPEN, max_closed: int = MAX_CLOSED) -> None:
        self._open: dict[str, OpenCall] = {}
        self._closed: dict[str, str] = {}
        self._max_open, self._max_closed = max_open, max_closed

    def __len__(self) -> int:
        return len(self._open)

    def add(self, id_: str, call: OpenCall) -> None:
        """A call may run; the oldest is forgotten where there are too many."""
        if len(self._open) >= self._max_open:
            del self._open[next(iter(self._open))]
        self._open[id_] = call

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
            call = self._open.pop(id_)
        except KeyError:
            raise UnknownCall(id_) from None
        if len(self._closed) >= self._max_closed:
            del self._closed[next(iter(self._closed))]
        self._closed[id_] = outcome
        return call
