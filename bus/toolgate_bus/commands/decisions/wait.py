"""Say in words how a decision waited for a person while no process waited for it. Pure; times in seconds.

A wait whose time is over counts as ended wherever it is read: no process has to write that down.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolgate_bus.telemetry.printable import format_duration

_ANSWERS: Final = {"allow": "allowed", "refuse": "refused", "expired": "ended without an answer"}


def describe_wait(decision: Mapping[str, Any], now: float) -> Iterator[str]:
    """Give the state of the wait, and who answered. Give nothing for a decision that did not wait."""
    answer, after, within = (decision.get(name) for name in ("answer", "answered_after", "answer_within"))
    by = decision.get("answered_by") or "a person"
    waited = f" after {format_duration(after)}" if isinstance(after, int | float) else ""
    if decision.get("outcome") != "ask":
        if isinstance(answer, str) and answer == "denied":
            yield "pending → a scheduler objected before anybody had answered"
        elif isinstance(answer, str):
            words = _ANSWERS.get(answer, answer)
            yield (
                f"pending → {words}{waited}" if answer == "expired" else f"pending → {words} by {by}{waited}"
            )
        return
    if isinstance(answer, str):
        words = _ANSWERS.get(answer, answer)
        yield f"{words} by {by}{waited}; the process that resumed it has not reported an outcome"
        return
    at = decision.get("at")
    left = at + within - now if isinstance(at, int | float) and isinstance(within, int | float) else None
    if left is not None and left <= 0:
        yield "nobody answered in time: the call is denied, even if somebody answers now"
    else:
        within_words = f", within {format_duration(left)}" if left is not None else ""
        yield f"waits for a person's answer{within_words}"
