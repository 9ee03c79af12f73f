"""How a pool's limit follows the errors of its tool: halved on a signal, raised by one again. Pure.

    a signal of a call that began after the last cut ─▶ half of what is in use, at least `min`
    as many calls as the cap ended well, all in use, `climb_s` after the last change ─▶ one more
    the tool said Retry-After ─▶ nothing is given until then (`pause_s` at most), nor is the cap raised

A burst counts once: calls that ran already when the last cut was made say nothing new. Facts come off a
wire: anything may be in them.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.queues.queue import Cap

from toolgate_schedulers.shipped.slots.config import Adaptive

MAX_RETRY_S: Final = 3600.0
"""Longer no tool keeps its cap from being raised."""
SLACK_S: Final = 1.0
"""A later end of a pause that is no more than so much later is the same."""
FORGET_S: Final = 3600.0
_WELL: Final = ("tool:post", "usage")
_FAILED: Final = ("tool:error", "tool:post", "provider:error")


class CallEnd(NamedTuple):
    """What a fact tells of its call."""

    well: bool
    """It did its work."""
    signals: tuple[str, ...] = ()
    """What its failure is called: a status, `timeout`, the type of the error."""
    retry_after: float = 0.0


def outcome_of(fact: Mapping[str, Any]) -> CallEnd | None:
    """Of a fact; None for one that tells of no end, or of one that says nothing about its tool."""
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
    """Whether it tells that there were too many."""
    return not outcome.well and (outcome.retry_after > 0 or not set(signals).isdisjoint(outcome.signals))


def cut(
    rule: Adaptive, limit: int, cap: Cap | None, in_use: int, fence: int, retry_s: float, now: float
) -> Cap | None:
    """The cap after a signal of a call with this fence, `in_use` when it was told; None: it stays.

    Whoever sets it puts the fence of that moment into it.
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
    """Whether it keeps calls waiting for longer."""
    return cap.open_at > other.open_at + SLACK_S or cap.climb_at > other.climb_at + SLACK_S


def climb(rule: Adaptive, cap: Cap, good: int, now: float) -> Cap | None:
    """The cap after so many calls that ended well while all was in use; None: it stays."""
    if good < cap.most or now < cap.climb_at or cap.open_at:
        return None
    return Cap(max(rule.min, cap.most + 1), 0.0, now + rule.climb_s, cap.cut)


def age(cap: Cap, now: float) -> Cap | None:
    """The cap as time goes: pauses end, and what did not change for long is forgotten (None)."""
    if cap.open_at and cap.open_at <= now:
        return cap._replace(open_at=0.0)
    return None if cap.climb_at < now - FORGET_S else cap


def clamp(rule: Adaptive, cap: Cap, now: float) -> Cap:
    """A cap that somebody else left, whose clock may have been another."""
    return cap._replace(
        open_at=min(cap.open_at, now + rule.pause_s),
        climb_at=min(cap.climb_at, now + max(rule.climb_s, MAX_RETRY_S)),
    )
