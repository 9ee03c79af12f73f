"""Checks facts: all facts written by others come in through here. Pure.

Readers of facts (listings, archive, exporter, console, the keeper of budgets) rely on this: a fact is plain
JSON within bounds, its numbers are finite, and fields of a known event have their types. Any other fact is
refused as a whole, and its reader counts it. Unknown fields are kept. A number that JSON cannot express
becomes Python's text for it: an LLM may write one into its arguments, and must not hide its call from the
record that way.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolgate_bus.errors import CodecError
from toolgate_bus.facts.sequence import MAX_VALUE
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.fact_events import (
    PROVIDER_ERROR,
    TOLD_AS_DECISION,
    TOOL_ANSWERED,
    TOOL_ENDS,
    TOOL_PAUSED,
    TOOL_RESULT,
    TOOL_SELECTED,
    TOOL_WAITS,
    TURN,
    USAGE,
)
from toolgate_bus.protocol.money import dollars, is_amount
from toolgate_bus.protocol.names import MAX_GRANTS

Check = type | Callable[[Any], bool]
"""Exact type of a value, or a function that checks the value."""

_encode: Final = json.JSONEncoder(allow_nan=False, check_circular=False).encode
MAX_DEPTH: Final = packing.MAX_DEPTH + 8
MAX_NODES: Final = 100_000
MAX_ID: Final = 128
MAX_SECONDS: Final = 1e9
LATEST: Final = 1e11
"""Latest time of a fact, in seconds since the epoch: the year 5138."""

MAX_SIGNAL: Final = 64
SIGNAL: Final = re.compile(r"[A-Za-z0-9_.-]+")
"""Name of a tool's failure: an HTTP status, `timeout`, or a code of the tool's own."""


def _texts(value: Any) -> bool:
    return type(value) is list and all(type(one) is str for one in value)


def _seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= MAX_SECONDS


def _number_or_text(value: Any) -> bool:
    return type(value) in (int, float, str)


def _words(value: Any) -> bool:
    return type(value) is dict and all(type(one) is str for one in value.values())


def _id(value: Any) -> bool:
    return type(value) is str and 0 < len(value) <= MAX_ID


def _number(value: Any) -> bool:
    return type(value) is int and 0 < value <= MAX_VALUE


def _verdicts(value: Any) -> bool:
    return type(value) is list and all(type(one) is dict and _fits(one, _SAID) for one in value)


def _masks(value: Any) -> bool:
    """Return whether a value is places of masks, each a path, a span that may be missing, and a name."""
    return type(value) is list and all(
        type(one) is list
        and len(one) == 4
        and type(one[0]) is type(one[3]) is str
        and all(at is None or _count(at) for at in one[1:3])
        for one in value
    )


def _labels(value: Any) -> bool:
    return type(value) is dict and all(_texts(one) for one in value.values())


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_VALUE


def _grants(value: Any) -> bool:
    return (
        type(value) is dict
        and len(value) <= MAX_GRANTS
        and all(type(name) is str and _count(fence) for name, fence in value.items())
    )


_SAID: Final[Mapping[str, Check]] = {
    **dict.fromkeys(("scheduler", "action", "phase", "reason", "prompt", "problem", "tool"), str),
    **dict.fromkeys(("agent_target", "revision", "rule_name"), str),
    "priority": int,
    "fence": _count,
    "seconds": _seconds,
    **dict.fromkeys(("late", "shadow", "capped", "again", "replaced"), bool),
    "said": dict,
    "masks": _masks,
    "session_labels": _labels,
}
"""Fields of one verdict. Its arguments may be a text that says that they were cut."""
_WHOSE: Final[Mapping[str, Check]] = {
    **dict.fromkeys(("session", "root_session", "agent", "parent", "tool", "tool_call_id"), str),
    **dict.fromkeys(("parallel_group_id", "agent_target"), str),
    "decision_id": _id,
    "labels": _words,
    "lineage": _texts,
    "iteration": int,
    "seconds": _seconds,
    "trace": lambda value: type(value) is str or _words(value),
}
_ANSWER: Final[Mapping[str, Check]] = {
    **dict.fromkeys(("prompt", "answer", "answered_by", "asker"), str),
    **dict.fromkeys(("answer_within", "answered_after"), _seconds),
}
"""Fields of a deferred question to a person."""
_DECISION: Final[Mapping[str, Check]] = {
    **_WHOSE,
    **_ANSWER,
    "id": _id,
    **dict.fromkeys(("outcome", "why", "tool_name", "reason", "scheduler", "final_tool", "final_agent"), str),
    "request": str,
    **dict.fromkeys(("tool_input", "final_input"), dict),
    "verdicts": _verdicts,
    **dict.fromkeys(("asked", "silent", "passed_over", "overruled", "disagreeing"), _texts),
    **dict.fromkeys(("available_tools", "available_agents"), _texts),
    "failed_open": _words,
    "waited": _seconds,
    **dict.fromkeys(("asked_user", "truncated", "cut"), bool),
}
_FAILURE: Final[Mapping[str, Check]] = dict.fromkeys(("signal", "retry_after"), _number_or_text)
"""Fields that the runner of a tool reports, perhaps copied from a header. Check them before use."""
_CALL: Final[Mapping[str, Check]] = {
    **_WHOSE,
    **dict.fromkeys(("tool_name", "original_tool", "source", "error", "digest"), str),
    "success": bool,
    "cost": is_amount,
    "grants": _grants,
    **_FAILURE,
}
_REQUEST: Final[Mapping[str, Check]] = {
    **_WHOSE,
    **dict.fromkeys(("provider", "model", "error"), str),
    **dict.fromkeys((f"{kind}_tokens" for kind in ("total", "input", "output", "reasoning")), _count),
    **dict.fromkeys(("cache_read_tokens", "cache_write_tokens"), _count),
    "cost_usd": lambda value: dollars(value) is not None,
    **_FAILURE,
}
_TURN: Final[Mapping[str, Check]] = {**_WHOSE, "loop": str, "status": str, "iterations": _count}
_DELEGATION: Final[Mapping[str, Check]] = {**_WHOSE, "sub_session_id": str, "status": str}
_PAUSED: Final[Mapping[str, Check]] = {**_WHOSE, "by": str, "pause": str, "status": str}
_EVENTS: Final[Mapping[str, Mapping[str, Check]]] = {
    **dict.fromkeys(TOLD_AS_DECISION, _DECISION),
    TOOL_ANSWERED: {**_WHOSE, **_ANSWER},
    "verdict": {**_SAID, "id": _id, "agent": str, "tool_label": str, "disagreeing": _texts},
    **dict.fromkeys((TOOL_SELECTED, *TOOL_ENDS, TOOL_WAITS), _CALL),
    TOOL_RESULT: {
        **_CALL,
        **dict.fromkeys(("outcome", "why", "reason", "scheduler"), str),
        **dict.fromkeys(("size", "cut"), _count),
        "verdicts": _verdicts,
        **dict.fromkeys(("silent", "disagreeing"), _texts),
        "failed_open": _words,
    },
    **dict.fromkeys((USAGE, PROVIDER_ERROR), _REQUEST),
    TURN: _TURN,
    "agent:stop": {**_WHOSE, "by": str, "now": bool},
    "agent:unlabel": {**_WHOSE, **dict.fromkeys(("by", "label", "value"), str)},
    **dict.fromkeys(("agent:pause", "agent:resume", TOOL_PAUSED), _PAUSED),
    **dict.fromkeys(("delegate:agent_spawned", "delegate:agent_resumed", "delegate:error"), _DELEGATION),
    **dict.fromkeys(("delegate:agent_completed", "delegate:agent_cancelled"), _DELEGATION),
}
_TELLS: Final = ("id", "outcome", "why", "tool_name", "tool_input", "verdicts", "seconds", "seq", "at")
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(TOLD_AS_DECISION, _TELLS),
    "verdict": ("id", "scheduler"),
}


def check_fact(fact: dict[str, Any]) -> dict[str, Any]:
    """Return a fact that all readers can rely on. Raises CodecError (malformed) for any other."""
    event = fact.get("event")
    if not isinstance(event, str):
        raise CodecError("malformed", "a fact is a map with an event")
    seq, at = fact.get("seq"), fact.get("at")
    if not (seq is None or _number(seq)) or not (
        at is None or (type(at) in (int, float) and 0 <= at <= LATEST)
    ):
        raise CodecError("malformed", "a fact's number or time")
    fact = _plain(fact)
    for name in _NEEDED.get(event, ()):
        if fact.get(name) is None:
            raise CodecError("malformed", f"{event} needs {name}")
    if not _fits(fact, _EVENTS.get(event, {})):
        raise CodecError("malformed", f"a field of {event[:64]} is of another type, or out of bounds")
    return fact


def _plain(fact: dict[str, Any]) -> dict[str, Any]:
    """Return a fact as JSON within bounds. Raises CodecError. Small facts, nearly all, are not walked."""
    try:
        text = _encode(fact)
        if text.count("{") + text.count("[") < MAX_DEPTH:
            return fact
        odd = False
    except ValueError:
        odd = True
    except (TypeError, RecursionError) as error:
        raise CodecError("malformed", type(error).__name__) from None
    if not packing.within_bounds(fact, MAX_DEPTH, MAX_NODES):
        raise CodecError("malformed", "a fact is plain JSON within bounds")
    return _sayable(fact) if odd else fact


def _fits(fields: Mapping[str, Any], checks: Mapping[str, Check]) -> bool:
    """Return whether all fields that are present, and not null, are of their types."""
    for name, value in fields.items():
        check = checks.get(name)
        if check is None or value is None or check is type(value):
            continue
        if isinstance(check, type) or not check(value):
            return False
    return True


def _sayable(value: Any) -> Any:
    if type(value) is dict:
        return {key: _sayable(child) for key, child in value.items()}
    if type(value) is list:
        return [_sayable(child) for child in value]
    return str(value) if type(value) is float and not math.isfinite(value) else value
