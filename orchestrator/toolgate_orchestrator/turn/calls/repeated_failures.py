"""Tells the LLM that a call keeps failing in the same way.

A call with the same arguments and the same error fails again, however often it is made. Only equal failures
count: polling, and a retry after something else was mended, give another result.
"""

import hashlib
import json
from collections import OrderedDict
from typing import Final

from toolgate_orchestrator.turn.values.jsonable import jsonable
from toolgate_orchestrator.turn.values.messages import ToolCall

THRESHOLD: Final = 3
"""Number of equal failures of a call from which on the LLM is told."""
MAX_KEPT: Final = 512
"""Maximum number of different failures that are remembered."""
_NOTE: Final = (
    "\n\n[This call of {tool} has now failed {count} times with the same arguments and the same error. "
    "Repeating it will not help: go about it in a different way, or say what prevents it.]"
)


class RepeatedFailures:
    """Counts equal failures of one session."""

    def __init__(self) -> None:
        self._counts: OrderedDict[bytes, int] = OrderedDict()

    def note(self, call: ToolCall, error: tuple[str, str]) -> str:
        """Count a failure; return the note for the LLM, or an empty text as long as it is not due."""
        told = json.dumps([call.name, jsonable(call.arguments), *error], sort_keys=True)
        key = hashlib.blake2b(told.encode(), digest_size=16).digest()
        count = self._counts[key] = self._counts.pop(key, 0) + 1
        if len(self._counts) > MAX_KEPT:
            self._counts.popitem(last=False)
        return _NOTE.format(tool=call.name, count=count) if count >= THRESHOLD else ""
