"""Adapt a pool's limit to the errors of its tool: halve it on a signal, then raise it one by one. Pure.

    a signal of a call that began after the last cut ─▶ half of what is in use, at least `min`
    as many calls as the cap ended well, all in use, `climb_s` after the last change ─▶ one more
    the tool said Retry-After ─▶ nothing is given until then (`pause_s` at most), nor is the cap raised

A burst counts once: calls that already ran at the last cut say nothing new. Facts come from the network and
may hold anything.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.ledger.slots.queue import Cap

from toolgate_schedulers.shipped.slots.config import Adaptive

MAX_RETRY_S: Final = 3600.0
"""Longest time, in seconds, that a tool's Retry-After keeps its cap from being raised."""
SLACK_S: Final = 1.0
"""Largest difference, in seconds, between two ends of a pause that count as the same."""
FORGET_S: Final = 3600.0
_WELL: Final = ("tool:post", "usage")
_FAILED: Final = ("tool:error", "tool:post", "provider:error")


class CallEnd(NamedTuple):
    """End of a call, as a fact tells it."""

    well: bool
    """True if the call did its work."""
    signals: tuple[str, ...] = ()
    """Names of its failure: a status, `timeout`, the type of the error."""
    retry_after: float = 0.0


def outcome_of(fact: Mapping[str, Any]) -> CallEnd | None:
    """Return the end that a fact tells; None for facts that tell no end, or nothing about the tool."""
    event = fact.get("event")
    if event in _WELL and fact.get("success") is not False:
        return CallEnd(well=True)
    if event not in _FAILED or fact.get("error") == "CancelledError":
        return None
    names = tuple(
        str(name) for name in (fact.get("signal"), fact.get("error")) if isinstance(name, str | int)
    )
    return CallEnd(False, names, _seconds(fact.get("retry_after")))


def _seconds(retry: Any) -> float:
    try:
        seconds = float(retry)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(seconds, MAX_RETRY_S) if seconds > 0 else 0.0


def is_signal(outcome: CallEnd, signals: Collection[str]) -> bool:
    """Return whether the failure means that too many calls ran at a time."""
    return not outcome.well and (outcome.retry_after > 0 or not set(signals).isdisjoint(outcome.signals))


def cut(
    rule: Adaptive, limit: int, cap: Cap | None, in_use: int, fence: int, retry_s: float, now: float
) -> Cap | None:
    """Return the cap after a signal of a call with this fence; None if the cap stays.

    `in_use` is the number of calls in the pool at the signal. The setter of the cap adds the current fence.
    """
    pause = min(retry_s, rule.pause_s)
    open_at = now + pause if pause > 0 else 0.0
    if cap is not None and fence <= cap.cut:
        later = cap._replace(open_at=max(cap.open_at, open_at), climb_at=max(cap.climb_at, now + retry_s))
        return later if retry_s > 0 and is_later(later, cap) else None
    most = min(limit, cap.most) if cap is not None else limit
    return Cap(
        min(limit, max(rule.min, min(most, in_use) // 2)),
        max(open_at, cap.open_at if cap is not None else 0.0),
        now + max(rule.climb_s, retry_s),
    )


def is_later(cap: Cap, other: Cap) -> bool:
    """Return whether a cap keeps calls waiting for longer than the other."""
    return cap.open_at > other.open_at + SLACK_S or cap.climb_at > other.climb_at + SLACK_S


def climb(rule: Adaptive, cap: Cap, good: int, now: float) -> Cap | None:
    """Return the cap after `good` calls that ended well while all slots were in use; None if the cap
    stays."""
    if good < cap.most or now < cap.climb_at or cap.open_at:
        return None
    return Cap(max(rule.min, cap.most + 1), 0.0, now + rule.climb_s, cap.cut)


def age(cap: Cap, now: float) -> Cap | None:
    """Return the cap without a pause that is over; None for a cap without a change in a long time."""
    if cap.open_at and cap.open_at <= now:
        return cap._replace(open_at=0.0)
    return None if cap.climb_at < now - FORGET_S else cap


def clamp(rule: Adaptive, cap: Cap, now: float) -> Cap:
    """Return a cap of another replica with its times bounded, as that replica's clock may differ."""
    return cap._replace(
        open_at=min(cap.open_at, now + rule.pause_s),
        climb_at=min(cap.climb_at, now + max(rule.climb_s, MAX_RETRY_S)),
    )
