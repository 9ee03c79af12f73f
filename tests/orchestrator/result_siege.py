"""An oracle of rulings on results: what any scheduler hid is nowhere to be read, whatever the door.

Generated results are spread over the doors of `result_doors`. What came out of a door, the facts and the log
are searched for the secrets that any verdict hid; if the result was withheld, for all of its secrets. A
result that was released has no secret that no scheduler has seen.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from gate_world import World
from generated_results import SCHEDULERS, ResultCase, hidden_by, leaks, make_case, masks_of
from result_adapter_doors import ADAPTERS
from result_doors import ANSWERED, DOORS, Carry, UnchangedError, see
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Mask, Replace
from toolgate_orchestrator.decision.results.given_result import GivenResult

__all__ = ["ADAPTERS", "DOORS", "Siege", "besiege"]

HELD = ("gate", "guard")
"""Doors that are given objects of the program."""
PART = 2_000
"""Cases under one set of gates."""


@dataclass
class Siege:
    """Figures of a run."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    doors: Counter[str] = field(default_factory=Counter)
    """Cases of each door in which something was hidden."""
    hidden: int = 0
    """Secrets that were hidden, over all cases."""
    violations: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return the figures in one line."""
        outcomes = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        leaked = f"{self.hidden} secrets hidden, {len(self.violations)} leaks"
        return f"{self.cases} results at {len(self.doors)} doors ({outcomes}), {leaked}"


class Script:
    """What the schedulers do in the case that is asked about, and which secrets they have hidden."""

    def __init__(self, case: ResultCase) -> None:
        self.case = case
        self.hidden: set[str] = set()
        self.seen: list[object] = []
        """The result, each time that a scheduler was asked about it."""

    def answer(self, name: str, call):
        """Answer a question; note what that hides."""
        case, what = self.case, self.case.answers[name][call.again]
        self.seen.append(call.result)
        if what == "mask":
            parts = masks_of(case, name, call.result)
            if not parts:
                return Continue()
            self.hidden |= hidden_by(case, name, call.result)
            return Mask(parts=parts, reason=f"it has {' '.join(case.knows[name])}", rule_name="keys")
        if what == "replace":
            return Replace(result=case.other, reason="in short")
        if what == "deny":
            return Deny(reason="no")
        if what == "ask_user":
            return AskUser(prompt="show it?")
        if what == "broken":
            raise RuntimeError("broken")
        return Continue()


async def besiege(
    cases: int, seed: int, told: Callable[[Siege], None] = lambda _: None, doors: Sequence[str] = ("gate",)
) -> Siege:
    """Rule on so many generated results at these doors, and look for what was hidden."""
    found = Siege()
    for first in range(seed, seed + cases, PART):
        async with AsyncExitStack() as stack:
            part = await _Part.open(stack, found)
            for one in range(first, min(first + PART, seed + cases)):
                # Not in turns: doors draw the form of a result from the same seed.
                await part.rule(make_case(one), random.Random(f"door {one}").choice(doors))
                told(found)
    return found


class _Part:
    """Schedulers and gates for one part of the cases."""

    def __init__(self, stack: AsyncExitStack, found: Siege) -> None:
        self._stack, self._found = stack, found
        self._world, self._lines = World(stack), _Lines()
        self._script = Script(make_case(0))
        self._given: list[GivenResult] = []
        self._doors: dict[tuple[str, int, bool], Carry] = {}

    @classmethod
    async def open(cls, stack: AsyncExitStack, found: Siege) -> "_Part":
        part, root = cls(stack, found), logging.getLogger()
        root.addHandler(part._lines)
        stack.callback(root.removeHandler, part._lines)
        for at, name in enumerate(SCHEDULERS):

            async def decide(call, name=name):
                return part._script.answer(name, call)

            await part._world.scheduler(name, decide, priority=at, phases=("result",))

        async def quote(call):  # all secrets, before or after the others have answered
            return Deny(reason=f"it has {' '.join(part._script.case.secrets)}")

        await part._world.scheduler("trial", quote, shadow=True, phases=("result",))
        return part

    async def rule(self, case: ResultCase, door: str) -> None:
        """Let a case through a door, and search what came out."""
        script = self._script = Script(case)
        carry = await self._find(door, case)
        self._given.clear()
        self._world.hub.facts.clear()
        self._lines.take()
        places: dict[str, object] = {}
        try:
            places["what came out"] = see(await carry(case))
        except UnchangedError as error:
            self._blame(case, door, str(error))
        for _ in range(3):  # facts are written with the loop's next steps
            await asyncio.sleep(0)
        found, outcome = self._found, self._given[0].outcome if self._given else "unasked"
        found.cases += 1
        found.outcomes[outcome] += 1
        found.hidden += len(script.hidden)
        found.doors[door] += bool(script.hidden) or outcome == "withheld"
        if len(self._given) != 1:
            self._blame(case, door, f"it was ruled on {len(self._given)} times")
        places |= {"facts": b"".join(self._world.hub.facts), "log": self._lines.take()}
        if outcome == "released" and door in HELD and not case.redacts:
            unseen = {*leaks(see(case.held), {*case.secrets})}.difference(leaks(script.seen, {*case.secrets}))
            if unseen:
                self._blame(case, door, f"{unseen} given, and seen by no scheduler")
        for place, data in places.items():
            if data == ANSWERED:  # the very object that the tool gave
                continue
            is_all = place == "log" or (outcome == "withheld" and place != "facts")
            if leaked := leaks(data, {*case.secrets} if is_all else script.hidden):
                self._blame(case, door, f"{leaked} in {place}: {data!r:.300}")

    def _blame(self, case: ResultCase, door: str, what: str) -> None:
        self._found.violations.append(f"seed {case.seed} at {door}: {what}")

    async def _find(self, door: str, case: ResultCase) -> Carry:
        key = door, case.limit, case.redacts
        if key not in self._doors:
            redact = {"patterns": ["sk-[0-9]+"], "fields": ["text"]} if case.redacts else {}
            gate = await self._world.gate(result_bytes=case.limit, redact=redact)
            gate.subscribe_results(lambda _, given: self._given.append(given))
            self._doors[key] = await DOORS[door](self._stack, gate)
        return self._doors[key]


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{record.getMessage()} {record.__dict__}")

    def take(self) -> list[str]:
        """Return what was logged since the last time."""
        taken, self._lines = self._lines, []
        return taken
