"""Makes a world in which something breaks as small as it can be: fewer faults, agents, calls, schedulers.

Delta debugging over the faults first (halves, then ever smaller parts), then over everything else. What stays
is a plan in which the same still breaks, though perhaps of another decision.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from simulation_plan import Fault, Plan
from simulation_world import WorldResult, simulate

MOST_RUNS = 300
"""So many worlds are tried at most."""


def shrink(broken: WorldResult, run: Callable[[Plan], WorldResult] = simulate) -> WorldResult:
    """The smallest broken world that was found."""
    best, runs, smaller = broken, 0, True
    while smaller and runs < MOST_RUNS:
        smaller = False
        for plan in _smaller(best.plan):
            runs += 1
            tried = run(plan)
            if _kind_of(tried) == _kind_of(broken):
                best, smaller = tried, True
                break
            if runs >= MOST_RUNS:
                break
    return best


def _kind_of(result: WorldResult) -> str | None:
    """What broke, whichever decision it was and whatever amounts."""
    return result.broken and re.sub(r"\b[0-9a-f]{8}\b|[0-9.]+", "…", result.broken.partition(":")[0])


def _smaller(plan: Plan) -> Iterator[Plan]:
    for faults in _fewer(plan.faults):
        yield plan.without_faults(faults)
    if plan.agents > 1:
        yield replace(plan, agents=plan.agents - 1)
    for calls in (plan.calls // 2, plan.calls - 1):
        if 0 < calls < plan.calls:
            yield replace(plan, calls=calls)
    if plan.together > 1:
        yield replace(plan, together=1)
    for at, one in enumerate(plan.schedulers):
        yield replace(plan, schedulers=plan.schedulers[:at] + plan.schedulers[at + 1 :])
        if one.replicas > 1:
            fewer = replace(one, replicas=1)
            yield replace(plan, schedulers=(*plan.schedulers[:at], fewer, *plan.schedulers[at + 1 :]))
    if plan.changes:
        yield replace(plan, changes=plan.changes[:-1])
    if plan.signed:
        yield replace(plan, signed=False)


def _fewer(faults: tuple[Fault, ...]) -> Iterator[tuple[Fault, ...]]:
    """Without halves of them, then without ever smaller parts."""
    size = len(faults)
    while size:
        for at in range(0, len(faults), size):
            yield faults[:at] + faults[at + size :]
        size //= 2
