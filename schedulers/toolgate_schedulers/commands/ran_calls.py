"""Finds the calls that ran and succeeded: in the record's facts, and in recorded runs.

A call counts in the form in which it ran, with its arguments as they are recorded. Denied, failed and unused
calls are left out. A call that was let through and whose end nobody reported counts as one that ran: programs
need not report ends.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolgate_bus.facts.recorded_message import RAW
from toolgate_bus.facts.recording import RunArchive
from toolgate_bus.protocol.fact_events import TOOL_ENDS, TOOL_POST, TOOL_UNUSED
from toolgate_bus.protocol.names import RESERVED_PREFIXES

from toolgate_schedulers.shipped.policy.suggestions.suggestions import SeenCall

OPEN: Final = 10_000
"""Maximum number of calls whose end is awaited. It was not reported if so many further calls came first."""
_ALLOWED: Final = ("continue", "modify")
_ERROR: Final = "error"


class RanCalls:
    """Calls that ran, out of facts in their order."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, SeenCall] = OrderedDict()
        self.left_out: Counter[str] = Counter()
        """Number of calls that did not run, or failed, by reason."""
        self.unended = 0
        """Number of calls whose end nobody reported."""

    def take(self, fact: Mapping[str, Any]) -> SeenCall | None:
        """Return the call that is known to have run by this fact; None if there is none."""
        event = fact["event"]
        if event == "decision":
            return self._begin(fact)
        if event not in TOOL_ENDS:
            return None
        call = self._open.pop(str(fact.get("decision_id")), None)
        if call is None:
            return None
        if event == TOOL_POST and fact.get("success") is not False:
            return call
        self.left_out["not run" if event == TOOL_UNUSED else "failed"] += 1
        return None

    def finish(self) -> Iterator[SeenCall]:
        """Give the calls whose end was not reported."""
        self.unended += len(self._open)
        yield from self._open.values()
        self._open.clear()

    def _begin(self, fact: Mapping[str, Any]) -> SeenCall | None:
        tool, arguments = fact.get("final_tool"), fact.get("final_input")
        if str(fact.get("tool_name")).startswith(RESERVED_PREFIXES):
            return None
        if fact.get("outcome") not in _ALLOWED or not isinstance(tool, str):
            self.left_out["denied" if fact.get("outcome") == "deny" else "not decided"] += 1
            return None
        if not isinstance(arguments, Mapping):
            self.left_out["recorded without arguments"] += 1
            return None
        session = str(fact.get("root_session") or fact.get("session") or "")
        self._open[fact["id"]] = SeenCall(tool, arguments, session)
        if len(self._open) <= OPEN:
            return None
        self.unended += 1
        return self._open.popitem(last=False)[1]


def calls_of_runs(archive: RunArchive, left_out: Counter[str]) -> Iterator[SeenCall]:
    """Give the calls of recorded runs. A result that begins with "Error" is a failure. Count the others."""
    for run in archive.runs:
        for call in run.calls:
            if call.result is None:
                left_out["recorded without a result"] += 1
            elif RAW in call.arguments or call.result.lstrip()[: len(_ERROR)].lower() == _ERROR:
                left_out["failed"] += 1
            else:
                yield SeenCall(call.tool, call.arguments, str(run.number))
