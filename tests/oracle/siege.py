"""Makes the calls of cases at three doors each, asks the oracle of each that ran whether it was to run, and
holds the doors to each other."""

import asyncio
import contextlib
import copy
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import readings
from cases import Case, World, worlds
from doors import ALL, DOORS, PYTHON, Door
from meanings import Past, Written
from readings import Call
from station import Outcome, Station
from toolgate_bus.errors import ConfigError

__all__ = ["Chosen", "Found", "besiege", "plan"]

DOORS_OF_A_CASE = 3
MAX_IDLE = 2_000
"""Worlds in a row with no case of the kinds in question: there are none."""
AT_ONCE = 8
"""Worlds at a time: one that ends waits for a moment."""
SHOWN = 3
_COUNTS = (
    "cases",
    "let_through",
    "forbidden",
    "honest",
    "refused",
    "unread",
    "visited",
    "disagreed",
    "faults",
)


@dataclass
class Found:
    """What came of a siege: counts by kind, and the first examples.

    What went wrong at a door is counted by the kind and the door: `policy denies: list at mcp`.
    """

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
    visited: Counter[str] = field(default_factory=Counter)
    """Cases at a door."""
    disagreed: Counter[str] = field(default_factory=Counter)
    """Cases that one door treats otherwise than the others, by the odd ones."""
    faults: Counter[str] = field(default_factory=Counter)
    """Errors of doors that their callers do not expect."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def total(self) -> int:
        """Number of cases."""
        return self.cases.total()

    @property
    def doors(self) -> dict[str, int]:
        """Cases at each door, by its name."""
        counts: Counter[str] = Counter()
        for kind, count in self.visited.items():
            counts[kind.rpartition(" at ")[2]] += count
        return dict(sorted(counts.items()))

    @property
    def wins(self) -> dict[str, Counter[str]]:
        """Counts of all that must not be."""
        return {
            "let through": self.let_through,
            "disagreement": self.disagreed,
            "fault": self.faults,
            "false alarm": self.refused,
            "unread": self.unread,
        }

    def add(self, other: "Found") -> None:
        """Take in what another process found."""
        for name in _COUNTS:
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
            kind: {"cases": count, "forbidden": self.forbidden[kind], "honest": self.honest[kind]}
            for kind, count in sorted(self.cases.items())
        }
        wins = {
            what.replace(" ", "_"): {
                kind: {"cases": count, "examples": self.examples.get(f"{what}: {kind}", [])}
                for kind, count in sorted(counted.items())
                if count
            }
            for what, counted in self.wins.items()
        }
        sums = {
            "cases": self.total,
            "seconds": round(self.seconds, 1),
            "doors": self.doors,
        }
        return {**sums, **wins, "kinds": kinds}


Chosen = list[tuple[Case, list[str]]]
"""Cases of one world, each with its doors."""


def plan(
    seed: int,
    cases: int,
    *,
    families: Collection[str] = (),
    only: Callable[[str], bool] = lambda kind: True,
    part: tuple[int, int] = (0, 1),
    doors: Collection[str] = tuple(DOORS),
    every: int = 1,
) -> Iterator[tuple[World, Chosen]]:
    """Worlds with so many cases in all, or as many as there are of the kinds in `only`.

    `part` (n, of) is every of-th world from n on; `every` takes one case of so many.
    """
    planned = idle = 0
    turns, visits = itertools.count(), Counter[str]()
    for number, world in itertools.islice(enumerate(worlds(seed, families)), part[0], None, part[1]):
        drawn = _draw(random.Random(f"doors {seed} {number}"), doors, visits)
        chosen = [
            (case, carriers)
            for case in world.cases
            if only(case.kind)
            and next(turns) % every == 0
            and (carriers := _carriers(drawn, case, world.written))
        ][: cases - planned]
        planned += len(chosen)
        visits.update(name for _, carriers in chosen for name in carriers)
        idle = 0 if chosen else idle + 1
        if chosen:
            yield world, chosen
        if planned >= cases or idle > MAX_IDLE:
            return


async def besiege(
    planned: Iterable[tuple[World, Chosen]], tell_progress: Callable[[int], None] = lambda done: None
) -> Found:
    """Try what was planned; what came of it."""
    found, began = Found(), time.monotonic()
    turns = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for world, chosen in planned:
            await turns.acquire()
            done = group.create_task(_try_world(world, chosen, found))
            done.add_done_callback(lambda _: turns.release())
            tell_progress(found.total)
    found.seconds = time.monotonic() - began
    return found


def _draw(dice: random.Random, doors: Collection[str], visits: Mapping[str, int]) -> list[str]:
    """Return doors in the order in which cases take them: those for Python last, but for one.

    Every other time those come first that were visited least.
    """
    outside = sorted(name for name in doors if name not in PYTHON)
    inside = sorted(name for name in doors if name in PYTHON)
    dice.shuffle(outside)
    dice.shuffle(inside)
    if dice.random() < 0.5:
        outside.sort(key=lambda name: visits[name])
    outside[dice.randint(0, DOORS_OF_A_CASE) : 0] = inside[:1]
    return [*outside, *inside[1:]]


def _carriers(drawn: Sequence[str], case: Case, written: Written) -> list[str]:
    """The first doors that carry all calls of a case."""
    able = (name for name in drawn if all(ALL[name].carries(call, written) for call in case.calls))
    return list(itertools.islice(able, DOORS_OF_A_CASE))


async def _try_world(world: World, chosen: Chosen, found: Found) -> None:
    opened: dict[str, tuple[Station, Door]] = {}
    async with contextlib.AsyncExitStack() as stack:
        for case, names in chosen:
            try:
                for name in names:
                    if name not in opened:
                        station = await stack.enter_async_context(Station.open(world.written))
                        door = await stack.enter_async_context(DOORS[name].open(station))
                        stack.push_async_callback(station.end)
                        opened[name] = station, door
            except ConfigError as error:
                found.cases[case.kind] += 1
                found.unread[case.kind] += 1
                text = f"{world.written.document()} is refused: {error}"
                found.note(f"unread: {case.kind}", [text])
                continue
            await _try_case({name: opened[name] for name in names}, world.written, case, found)


async def _try_case(
    doors: dict[str, tuple[Station, Door]], written: Written, case: Case, found: Found
) -> None:
    """Try a case at each of its doors, and compare them."""
    found.cases[case.kind] += 1
    outcomes: dict[str, list[Outcome]] = {}
    is_forbidden = False
    for name, (station, door) in doors.items():
        found.visited[f"{case.kind} at {name}"] += 1
        outcomes[name], against = await _try_door(station, door, written, case, found)
        is_forbidden |= against
    found.forbidden[case.kind] += is_forbidden
    found.honest[case.kind] += case.is_honest and not is_forbidden
    if odd := _odd_doors(case.calls, outcomes):
        kind = f"{case.kind} at {' + '.join(odd)}"
        found.disagreed[kind] += 1
        found.note(f"disagreement: {kind}", [f"{describe(written, case)}\n    {_tell(case.calls, outcomes)}"])


async def _try_door(
    station: Station, door: Door, written: Written, case: Case, found: Found
) -> tuple[list[Outcome], bool]:
    """Make the calls, each judged as it ran: a caller may have changed it, or a scheduler replaced it.

    Gives what became of each, and whether one of them was not to run.
    """
    kind = f"{case.kind} at {door.name}"
    ran: list[Call] = []
    made: list[Call] = []
    outcomes: list[Outcome] = []
    is_forbidden = is_through = is_refused = False
    for given in case.calls:
        call = given._replace(arguments=copy.deepcopy(given.arguments)) if given.rewrites else given
        before = Past(tuple(ran), tuple(made))
        intended = written.may_run(call, before)
        outcome = await station.attempt(door.make, call)
        outcomes.append(outcome)
        made.append(call)
        if outcome.received is not None:
            tool, arguments = outcome.received
            runs = call._replace(tool=tool, arguments=dict(arguments))
            is_through |= not written.may_run(runs, before)
            ran.append(runs)
        if outcome.fault:
            found.faults[kind] += 1
            found.note(f"fault: {kind}", [f"{describe(written, case)}\n    {outcome.fault}"])
        is_forbidden |= not intended or bool(call.rewrites)
        is_refused |= intended and outcome.received is None and not call.is_approved
    if is_through:
        found.let_through[kind] += 1
        found.note(f"let through: {kind}", [describe(written, case)])
    if case.is_honest and not is_forbidden and is_refused:
        found.refused[kind] += 1
        found.note(f"false alarm: {kind}", [describe(written, case)])
    return outcomes, is_forbidden


# ---------------------------------------------------------------------- whether doors agree


def _odd_doors(calls: Sequence[Call], outcomes: Mapping[str, Sequence[Outcome]]) -> list[str]:
    """The doors that treat calls otherwise than most; all of them where there is no majority."""
    against = dict.fromkeys(outcomes, 0)
    for one, other in itertools.combinations(outcomes, 2):
        can = DOORS[one].can & DOORS[other].can
        if [_view(*each, can) for each in zip(calls, outcomes[one], strict=False)] != [
            _view(*each, can) for each in zip(calls, outcomes[other], strict=False)
        ]:
            against[one] += 1
            against[other] += 1
    most = max(against.values(), default=0)
    return sorted(name for name, count in against.items() if most and count == most)


def _view(call: Call, outcome: Outcome, can: frozenset[str]) -> tuple[Any, ...]:
    """An outcome, as a door sees it that can do no more than this."""
    runs = outcome.received
    if outcome.is_asked and "ask" not in can:
        return ("denied",)
    if runs is None:
        return ("asked",) if outcome.is_asked else ("denied",)
    if runs.tool != call.tool and "tool" not in can:
        return ("denied",)
    made = call._replace(arguments=dict(runs.arguments))
    return ("ran", outcome.is_asked, runs.tool, readings.canonical(made.filled()))


def _tell(calls: Sequence[Call], outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """Each door's outcomes, in a line."""
    return "\n    ".join(
        f"{name}: " + ", ".join(_words(call, one) for call, one in zip(calls, each, strict=False))
        for name, each in outcomes.items()
    )


def _words(call: Call, outcome: Outcome) -> str:
    asked = "asked, " if outcome.is_asked else ""
    fault = f" ({outcome.fault})" if outcome.fault else ""
    if outcome.received is None:
        return (asked.removesuffix(", ") or "denied") + fault
    tool, arguments = outcome.received
    other = "" if tool == call.tool else f" {tool!r}"
    text = repr(dict(arguments))
    told = text if len(text) <= 200 else f"{text[:120]} … {text[-60:]}"
    return f"{asked}ran{other} with {told}{fault}"


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
