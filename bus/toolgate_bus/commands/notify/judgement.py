"""Run all judges on what was read and what is remembered. Time is an argument.

The caller keeps all changes of the memory and all incidents, or nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from toolgate_bus.commands.notify import judges
from toolgate_bus.commands.notify.config import CauseSettings
from toolgate_bus.commands.notify.incident import Incident
from toolgate_bus.commands.notify.judges import CallOnHold, RosterState
from toolgate_bus.commands.notify.memory import NotifyMemory
from toolgate_bus.fleet.books import Book
from toolgate_bus.state.changes import PlacedChange


class FleetState(NamedTuple):
    """State of the fleet at one look."""

    now: float
    """Server's time, in seconds since the epoch."""
    held: Sequence[CallOnHold]
    ends: Mapping[str, str]
    """End of each call that was known to wait and waits no longer, by id."""
    roster: RosterState
    books: Sequence[Book] | None
    """Balances of the ledgers; None if they were not read."""
    changes: Sequence[PlacedChange]
    """New changes of rules, each with its place."""


def judge_all(
    memory: NotifyMemory, facts: Sequence[Mapping[str, Any]], state: FleetState, causes: CauseSettings
) -> Iterator[Incident]:
    """Give every incident that is new."""
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
