"""Context of a trace as messages carry it, in the form of the W3C: the parts that may travel. Pure.

Spans, and the context of the current one, are in `tracing`.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

_TRACEPARENT: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE: Final = re.compile(r"[\x20-\x7e]{1,512}")


def filter_context(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the parts of a given context that may travel: a valid `traceparent`, and its `tracestate`."""
    parent, state = given.get("traceparent"), given.get("tracestate")
    if not isinstance(parent, str) or not _TRACEPARENT.fullmatch(parent):
        return {}
    kept = {"traceparent": parent}
    if isinstance(state, str) and _TRACESTATE.fullmatch(state):
        kept["tracestate"] = state
    return kept


def trace_id_of(given: Mapping[str, Any]) -> str | None:
    """Return the id of the trace that a context belongs to, as 32 hexadecimal digits; None if malformed."""
    parent = given.get("traceparent")
    found = _TRACEPARENT.fullmatch(parent) if isinstance(parent, str) else None
    return found[1] if found else None
