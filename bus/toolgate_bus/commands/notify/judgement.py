"""All judges together: what was read, and what is known, to what is told. Time is an argument.

It is given everything that was read at once, and either all of what it does is kept or nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from toolgate_bus.commands.notify import judges
from toolgate_bus.commands.notify.config import CauseSettings
from toolgate_bus.commands.notify.incident import Incident
from toolgate_bus.commands.notify.judges import BookBalances, CallOnHold, RosterState
from toolgate_bus.commands.notify.memory import NotifyMemory
from toolgate_bus.state.changes import PlacedChange


class FleetState(NamedTuple):
    """What one look found."""

    now: float
    """Seconds since the epoch by the server's clock."""
    held: Sequence[CallOnHold]
    ends: Mapping[str, str]
    """How calls ended that were known to wait."""
    roster: RosterState
    books: Sequence[BookBalances] | None
    """None where nobody looked."""
    changes: Sequence[PlacedChange]
    """Those that are new, each with its place."""


def judge_all(
    memory: NotifyMemory, facts: Sequence[Mapping[str, Any]], state: FleetState, causes: CauseSettings
) -> Iterator[Incident]:
    """Every incident that is new."""
    for fact in facts:
        yield from judges.judge_fact(memory.failing, fact, causes.failing_open)
    yield from judges.judge_quiet(memory.failing, state.now, causes.failing_open)
    yield from judges.judge_held(memory.held, state.held, state.ends, state.now, causes.held)
    yield from judges.judge_gone(memory.gone, state.roster, state.now, causes.gone)
    yield from judges.judge_revisions(memory.revisions, state.roster, state.now, causes.revisions)
    if state.books is not None:
        yield from judges.judge_budgets(memory.budgets, state.books, state.now, causes.budget)
    for place, change in state.changes:
        memory.changes = place
        yield from judges.judge_change(place, change, state.now, causes.change)
