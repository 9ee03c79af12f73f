"""Makes the calls of cases at a door, and asks the oracle of each that ran whether it was to run."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from cases import Case, World, worlds
from doors import Door, GateDoor
from meanings import Past, Written
from readings import Call
from toolgate_bus.errors import ConfigError

__all__ = ["Found", "besiege"]

IN_FLIGHT = 32
"""Cases of one world at a time."""
MAX_IDLE = 2_000
"""Worlds in a row with no case of the kinds in question: there are none."""
AT_ONCE = 8
"""Worlds at a time: one that ends waits for a moment."""
SHOWN = 3
Open = Callable[[Written], AbstractAsyncContextManager[Door]]


@dataclass
class Found:
    """What came of a siege: counts by kind, and the first examples."""

    cases: Counter[str] = field(default_factory=Counter)
    let_through: Counter[str] = field(default_factory=Counter)
    forbidden: Counter[str] = field(default_factory=Counter)
    """Cases with a call that is not to run."""
    honest: Counter[str] = field(default_factory=Counter)
    """Cases told plainly that are to run."""
    refused: Counter[str] = field(default_factory=Counter)
    """Of those, the ones that did not: false alarms."""
    unread: Counter[str] = field(default_factory=Counter)
    """Cases whose configuration was refused."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def total(self) -> int:
        """How many cases there were."""
        return self.cases.total()

    def add(self, other: "Found") -> None:
        """Take in what another process found."""
        for name in ("cases", "let_through", "forbidden", "honest", "refused", "unread"):
            getattr(self, name).update(getattr(other, name))
        for kind, texts in other.examples.items():
            self.note(kind, texts)
        self.seconds = max(self.seconds, other.seconds)

    def note(self, kind: str, texts: list[str]) -> None:
        """Keep examples, a few of each kind."""
        kept = self.examples.setdefault(kind, [])
        kept += texts[: SHOWN - len(kept)]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        kinds = {
            kind: {
                "cases": self.cases[kind],
                "forbidden": self.forbidden[kind],
                "let_through": self.let_through[kind],
                "honest": self.honest[kind],
                "false_alarms": self.refused[kind],
                "unread": self.unread[kind],
                "examples": self.examples.get(kind, []),
            }
            for kind in sorted(self.cases)
        }
        sums = {
            "cases": self.total,
            "let_through": self.let_through.total(),
            "false_alarms": self.refused.total(),
        }
        return {**sums, "unread": self.unread.total(), "seconds": round(self.seconds, 1), "kinds": kinds}


async def besiege(
    seed: int,
    cases: int,
    *,
    families: Collection[str] = (),
    only: Callable[[str], bool] = lambda kind: True,
    part: tuple[int, int] = (0, 1),
    tell: Callable[[int], None] = lambda done: None,
    open_door: Open = GateDoor.open,
) -> Found:
    """Try so many cases, or as many of the kinds in `only`; `part` (n, of) is every of-th world from n on."""
    found, began, planned, idle = Found(), time.monotonic(), 0, 0
    turns = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for world in islice(worlds(seed, families), part[0], None, part[1]):
            chosen = [case for case in world.cases if only(case.kind)][: cases - planned]
            planned += len(chosen)
            idle = 0 if chosen else idle + 1
            await turns.acquire()
            done = group.create_task(_try_world(world, chosen, open_door, found))
            done.add_done_callback(lambda _: turns.release())
            tell(found.total)
            if planned >= cases or idle > MAX_IDLE:
                break
    found.seconds = time.monotonic() - began
    return found


async def _try_world(world: World, chosen: list[Case], open_door: Open, found: Found) -> None:
    if not chosen:
        return
    try:
        async with open_door(world.written) as door:
            turns = asyncio.Semaphore(IN_FLIGHT)

            async def attempt(case: Case) -> None:
                async with turns:
                    await _try_case(door, world.written, case, found)

            async with asyncio.TaskGroup() as group:
                for case in chosen:
                    group.create_task(attempt(case))
    except ConfigError as error:
        for case in chosen:
            found.cases[case.kind] += 1
            found.unread[case.kind] += 1
            found.note(case.kind, [f"{world.written.document()} is refused: {error}"])


async def _try_case(door: Door, written: Written, case: Case, found: Found) -> None:
    """Make the calls, each judged as it ran: a caller may have changed it, or a scheduler replaced it."""
    ran: list[Call] = []
    made: list[Call] = []
    is_forbidden = is_through = is_refused = False
    for call in case.calls:
        if not door.can_carry(call):
            return
        before = Past(tuple(ran), tuple(made))
        intended = written.may_run(call, before)
        received = await door.run(call)
        made.append(call)
        if received is not None:
            runs = call._replace(tool=received.tool, arguments=dict(received.arguments))
            is_through |= not written.may_run(runs, before)
            ran.append(runs)
        is_forbidden |= not intended or bool(call.rewrites)
        is_refused |= intended and received is None and not call.is_approved
    found.cases[case.kind] += 1
    found.forbidden[case.kind] += is_forbidden
    if is_through:
        found.let_through[case.kind] += 1
        found.note(case.kind, [describe(written, case)])
    if case.is_honest and not is_forbidden:
        found.honest[case.kind] += 1
        found.refused[case.kind] += is_refused
        if is_refused:
            found.note(f"false alarm, {case.kind}", [describe(written, case)])


def describe(written: Written, case: Case) -> str:
    """A case, ready to be pasted into a test."""
    calls = [call for at, call in enumerate(case.calls) if at < 2 or at == len(case.calls) - 1]
    told = "\n    ".join(_show(call) for call in calls)
    kept = f", the gate with redact={dict(written.redact)}" if written.redact else ""
    return f"{written.scheduler}: {written.document()}{kept}\n    {told}"


def _show(call: Call) -> str:
    parts: Iterator[str] = (
        f"{name}={value!r}"
        for name, value in call._asdict().items()
        if value and not (name == "who" and value == type(value)())
    )
    text = f"Call({', '.join(parts)})"
    return text if len(text) <= 400 else f"{text[:250]} … {text[-100:]}"
