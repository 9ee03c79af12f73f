"""Calls that somebody holds: what the asker is told of one, and who is to be told that nobody waits. Pure."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from toolgate_bus.protocol.events import Heard, Phase

__all__ = ["HeldCall", "OnHold", "holders"]


class HeldCall(NamedTuple):
    """A call that waits for somebody's answer."""

    decision: str
    """The decision's id; people may answer by its first digits."""
    tool: str
    phase: Phase
    scheduler: str
    """Who holds it."""
    reason: str | None
    seconds: float
    """So long it waits from now on at the most; then it is denied."""


OnHold = Callable[[HeldCall], None]
"""Told of each hold that is waited for, once; must not block."""


def holders(heard: Iterable[Heard]) -> list[str]:
    """Whose last word in a round is a hold, waited for or not: once it is over they hold in vain.

    A shadow's hold is its own affair: nobody waits for it, ever.
    """
    last = {one.scheduler: one.verdict.action for one in heard if not one.shadow}
    return [name for name, action in last.items() if action == "hold"]
