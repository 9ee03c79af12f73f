"""Reads from a tool's failure what schedulers that limit concurrent calls need: `signal` and `retry_after`.

    raised: `.status_code`, `.status`, `.code` (also of its `.response`), a type that is a timeout,
            `.retry_after` or a header Retry-After; else the same of the exception's cause
    told:   `status_code`, `status`, `code`, `type`, `retry_after` in the `error` of its result

It reads numbers and short names only, never texts. The values come from foreign code: a strange value or an
error means no signal.
"""

import math
import re
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final

from toolgate_bus.facts.validation import MAX_SIGNAL, SIGNAL

from toolgate_orchestrator.turn.values.foreign_code import theirs

TIMEOUT: Final = "timeout"
MAX_RETRY_S: Final = 86_400.0
MAX_CAUSES: Final = 4
_STATUS: Final = ("status_code", "status", "code")
_TIMEOUTS: Final = re.compile(r"(?:Timeout|TimeoutError|TimeoutException|TimedOut|^timeout)$")
_STATUSES: Final = re.compile(r"[1-5][0-9][0-9]")
_MAX_TEXT: Final = 100


def signals_of(error: BaseException) -> dict[str, Any]:
    """Return the `signal` and `retry_after` (seconds) of an exception of a tool, as far as it has them."""
    one: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if one is None:
            break
        if found := _signals_of_one(one):
            return found
        one = one.__cause__
    return {}


def signals_in(error: Any) -> dict[str, Any]:
    """Return the same of the `error` in a result that reports a failure."""
    if type(error) is not dict:
        return {}
    kind = error.get("type")
    names = [kind[:_MAX_TEXT]] if type(kind) is str else []
    return _fields([error.get(name) for name in _STATUS], names, error.get("retry_after"))


def is_common(signal: Any) -> bool:
    """Return whether a signal tells nothing but an HTTP status or a timeout, and no words of the tool."""
    return signal == TIMEOUT or (type(signal) is str and _STATUSES.fullmatch(signal) is not None)


def read_retry_after(value: Any, now: float) -> float | None:
    """Return seconds from a number or from the HTTP header's value: seconds or a date. The maximum is a
    day."""
    if type(value) in (int, float):
        seconds = _seconds(value)
    elif type(value) is str and len(value) <= _MAX_TEXT:
        try:
            seconds = float(value)
        except ValueError:
            seconds = _seconds_until(value, now)
    else:
        return None
    return min(seconds, MAX_RETRY_S) if math.isfinite(seconds) and seconds >= 0 else None


def _signals_of_one(error: BaseException) -> dict[str, Any]:
    response = _attribute(error, "response")
    holders = (error, response) if response is not None else (error,)
    retry = _attribute(error, "retry_after")
    for one in holders if retry is None else ():
        retry = retry if retry is not None else _header(_attribute(one, "headers"))
    names = [type.__dict__["__name__"].__get__(kind)[:_MAX_TEXT] for kind in type.mro(type(error))]
    return _fields([_attribute(one, name) for one in holders for name in _STATUS], names, retry)


def _fields(codes: Sequence[Any], types: Sequence[str], retry: Any) -> dict[str, Any]:
    """Return the signal fields: an HTTP status comes first, then a timeout, then a code of the tool's own."""
    own = [str(one) if type(one) is int else one for one in codes]
    named = [one for one in own if type(one) is str and len(one) <= MAX_SIGNAL and SIGNAL.fullmatch(one)]
    statuses = [one for one in named if _STATUSES.fullmatch(one)]
    timeouts = [TIMEOUT] if any(map(_TIMEOUTS.search, types)) else []
    words = [one for one in named if not one.isdecimal()]
    signal = next(iter(statuses + timeouts + words), None)
    seconds = read_retry_after(retry, time.time())
    fields: dict[str, Any] = {} if signal is None else {"signal": signal}
    return fields if seconds is None else {**fields, "retry_after": seconds}


def _attribute(value: Any, name: str) -> Any:
    try:
        found = getattr(value, name, None)
        return int(found) if isinstance(found, int) else found
    except BaseException as error:
        if not theirs(error):
            raise
        return None


def _header(headers: Any) -> Any:
    try:
        return headers.get("retry-after") or headers.get("Retry-After")
    except BaseException as error:
        if not theirs(error):
            raise
        return None


def _seconds(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _seconds_until(date: str, now: float) -> float:
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now)
    except (ValueError, OverflowError, IndexError, TypeError):
        return math.nan
