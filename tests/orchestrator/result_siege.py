"""An oracle of rulings on results: what any scheduler hid is nowhere to be read, over generated results."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from gate_world import World
from generated_results import SCHEDULERS, ResultCase, hidden_by, leaks, make_case, masks_of
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Mask, Replace
from toolgate_orchestrator import Call

PART = 500
"""Cases under one gate, so that facts and logs are searched in small parts."""


@dataclass
class Siege:
    """Figures of a run."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    hidden: int = 0
    """Secrets that were hidden, over all cases."""
    violations: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return the figures in one line."""
        outcomes = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        return (
            f"{self.cases} results ({outcomes}), {self.hidden} secrets hidden, {len(self.violations)} leaks"
        )


class Script:
    """What the schedulers do in the case that is asked about, and which secrets they have hidden."""

    def __init__(self, case: ResultCase) -> None:
        self.case = case
        self.hidden: set[str] = set()

    def answer(self, name: str, call):
        """Answer a question; note what that hides."""
        case, what = self.case, self.case.answers[name][call.again]
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


async def besiege(cases: int, seed: int, told: Callable[[Siege], None] = lambda _: None) -> Siege:
    """Rule on so many generated results, and look for what was hidden."""
    found = Siege()
    for first in range(seed, seed + cases, PART):
        await _besiege(range(first, min(first + PART, seed + cases)), found, told)
    return found


async def _besiege(seeds: range, found: Siege, told: Callable[[Siege], None]) -> None:
    scripts: dict[str, Script] = {}
    lines = _Lines()
    logging.getLogger().addHandler(lines)
    try:
        async with AsyncExitStack() as stack:
            world = World(stack)
            for at, name in enumerate(SCHEDULERS):

                async def decide(call, name=name):
                    return scripts[call.tool_input["case"]].answer(name, call)

                await world.scheduler(name, decide, priority=at, phases=("result",))
            gates = {}
            for limit in (65_536, 1024):
                for redacts in (False, True):
                    redact = {"patterns": ["sk-[0-9]+"], "fields": ["text"]} if redacts else {}
                    gates[limit, redacts] = await world.gate(result_bytes=limit, redact=redact)
            for seed in seeds:
                await _rule(world, gates, scripts, lines, seed, found)
                told(found)
    finally:
        logging.getLogger().removeHandler(lines)


async def _rule(world, gates, scripts, lines, seed: int, found: Siege) -> None:
    case = make_case(seed)
    script = scripts[str(seed)] = Script(case)
    gate = gates[case.limit, case.redacts]

    async def ask(asked, question):
        return "allow" if seed % 2 else "refuse"

    call = Call("read", {"case": str(seed)}, ["read"])
    given = await gate.rule_on_result(call, None, case.result, success=seed % 3 > 0, ask=ask)
    for _ in range(3):  # facts are written with the loop's next steps
        await asyncio.sleep(0)
    recorded = b"".join(world.hub.facts)
    del scripts[str(seed)]
    world.hub.facts.clear()
    found.cases += 1
    found.outcomes[given.outcome] += 1
    found.hidden += len(script.hidden)
    secrets = {*case.secrets} if given.outcome == "withheld" else script.hidden
    if given.outcome == "withheld":
        given = given._replace(reason="")
    places = {
        "value": (given.value, secrets),
        "reason": (given.reason or "", secrets),
        "copy": (given.clean(case.copy), script.hidden),
        "facts": (recorded, script.hidden),
        "log": (lines.take(), {*case.secrets}),
    }
    for place, (data, hidden) in places.items():
        if leaked := leaks(data, hidden):
            found.violations.append(f"seed {seed}: {leaked} in {place}: {data!r:.300}")
    if not given.changed and given.value is not case.result:
        found.violations.append(f"seed {seed}: released, but another object")


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
