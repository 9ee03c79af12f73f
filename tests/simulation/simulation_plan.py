"""What happens in one simulated world: drawn from a seed, and small enough to be read. Pure.

A plan is all there is to a run beside the product: the same plan gives the same trace, byte for byte. What
each scheduler says about each call is drawn from the seed too, so it stays the same where a plan is shrunk.
"""

import random
import zlib
from dataclasses import dataclass, replace
from typing import Any

TOOLS = {"read": 0, "search": 40, "write": 70, "deploy": 300}
"""Micro-units of one call."""
PATIENCE = 0.2
MAX_HOLD = 1.5
PERSON_S = 0.5
KINDS = (
    *("cut agent", "cut replica", "slow replica", "slow agent", "kill replica", "kill agent"),
    *("restart server", "fail over", "fail over and forget", "trim", "repeat verdict", "repeat question"),
    *("forge", "step clock", "stand still", "empty the ledger", "forget and kill who remembers"),
)
TABLE_KINDS = (
    *("cut agent", "cut replica", "slow replica", "slow agent", "kill replica", "kill agent"),
    *("restart server", "repeat question", "step clock", "stand still"),
)
"""Faults of worlds with tables: nothing is forgotten there but what a process knew."""
TABLE_THINK = 0.4
FORGETS = frozenset(("fail over and forget", "empty the ledger", "forget and kill who remembers"))
"""Faults after which the ledger may not know what it knew."""


@dataclass(frozen=True)
class Fault:
    """Something goes wrong at a time, for so long."""

    kind: str
    at: float
    seconds: float
    which: int
    """Whom it strikes, of those there are."""

    def __str__(self) -> str:
        return f"{self.at:7.3f} s  {self.kind} (for {self.seconds:.3f} s, number {self.which})"


@dataclass(frozen=True)
class SchedulerPlan:
    """One scheduler, and how many replicas it has."""

    name: str
    kind: str
    priority: int = 0
    replicas: int = 1
    required: bool = False
    shadow: bool = False


@dataclass(frozen=True)
class Plan:
    """One world."""

    seed: int
    agents: int
    calls: int
    """Of each agent."""
    together: int
    """So many calls of an agent are ruled on at a time."""
    schedulers: tuple[SchedulerPlan, ...]
    faults: tuple[Fault, ...]
    signed: bool
    verify: bool
    denies_without_bus: bool
    limit: int
    cap: int | None
    """The highest priority of `router`, if it is capped."""
    changes: tuple[float, ...] = ()
    """Times at which the rules of `policy` change."""
    has_tables: bool = False
    """Whether heartbeats run out, and `policy` has local tables."""
    think: float = 0.05
    """Seconds between two calls of an agent, at most."""

    def without_faults(self, kept: tuple[Fault, ...]) -> "Plan":
        """The same with these faults only."""
        return replace(self, faults=kept)

    def describe(self) -> list[str]:
        """It, in lines for people."""
        bus = "deny" if self.denies_without_bus else "continue"
        told = [
            f"seed {self.seed}: {self.agents} agents, {self.calls} calls each, {self.together} together",
            f" signed {self.signed}, verify {self.verify}, limit {self.limit}, cap {self.cap}; no bus: {bus}",
        ]
        for one in self.schedulers:
            flags = " ".join(flag for flag in ("required", "shadow") if getattr(one, flag))
            told.append(
                f"  {one.name} ({one.kind}, priority {one.priority}, {one.replicas} replicas) {flags}"
            )
        told += [f"{at:9.3f} s  the rules change" for at in self.changes]
        return [*told, *(f"  {fault}" for fault in self.faults)]


def make_plan(seed: int, calls: int = 80) -> Plan:
    """The world of a seed; faults are as many as there are calls for."""
    chance = random.Random(f"{seed}:plan")
    schedulers = [
        SchedulerPlan("cost-aware", "cost", 20, chance.randint(1, 2), required=chance.random() < 0.8)
    ]
    for name, kind, share in (
        ("rules", "rules", 1.0),
        ("router", "router", 0.5),
        ("keeper", "keeper", 0.35),
        ("desk", "desk", 0.3),
        ("watcher", "rules", 0.2),
    ):
        if chance.random() < share:
            schedulers.append(
                SchedulerPlan(
                    name,
                    kind,
                    chance.choice((-5, 0, 5, 30)),
                    chance.randint(1, 2),
                    required=name != "watcher" and chance.random() < 0.4,
                    shadow=name == "watcher",
                )
            )
    agents = chance.randint(1, 4)
    together = chance.choice((1, 4, 12))
    lasting = 0.5 + calls / together * 0.15
    count = chance.choice((0, 1, 2, 4, 8)) * max(1, calls // 40)
    faults = sorted(
        (
            Fault(
                chance.choice(KINDS),
                round(0.1 + chance.random() * lasting, 3),
                round(chance.choice((0.02, 0.1, 0.4, 1.5)) * (0.5 + chance.random()), 3),
                chance.randrange(8),
            )
            for _ in range(count)
        ),
        key=lambda fault: fault.at,
    )
    return Plan(
        seed,
        agents,
        calls,
        together,
        tuple(schedulers),
        tuple(faults),
        signed=chance.random() < 0.4,
        verify=chance.random() < 0.8,
        denies_without_bus=chance.random() < 0.5,
        limit=chance.choice((2_000, 6_000, 10**9)),
        cap=chance.choice((None, None, 3)),
    )


def make_table_plan(seed: int, calls: int = 60) -> Plan:
    """The world of a seed in which `policy` has local tables that change."""
    chance = random.Random(f"{seed}:tables")
    schedulers = [SchedulerPlan("policy", "policy", 0, chance.randint(1, 3), required=chance.random() < 0.6)]
    for name, kind, share in (("rules", "rules", 0.4), ("router", "router", 0.4)):
        if chance.random() < share:
            required = chance.random() < 0.3
            schedulers.append(SchedulerPlan(name, kind, chance.choice((0, 5)), 1, required=required))
    lasting = calls * TABLE_THINK / 2
    changes = sorted(round(0.3 + chance.random() * lasting, 3) for _ in range(chance.randint(1, 6)))
    kinds = (*TABLE_KINDS, *("slow agent",) * 5, *("cut agent", "kill replica", "cut replica") * 2)
    near = lambda at: max(0.1, at + 0.15 * chance.random() - 0.1)  # noqa: E731 - as a change begins
    faults = sorted(
        (
            Fault(
                chance.choice(kinds),
                round(
                    near(chance.choice(changes)) if chance.random() < 0.5 else lasting * chance.random(), 3
                ),
                round(chance.choice((0.1, 0.4, 1.0, 3.0)) * (0.5 + chance.random()), 3),
                chance.randrange(8),
            )
            for _ in range(chance.choice((0, 2, 4, 8)))
        ),
        key=lambda fault: fault.at,
    )
    return Plan(
        seed,
        chance.randint(1, 3),
        calls,
        chance.choice((1, 1, 3)),
        tuple(schedulers),
        tuple(faults),
        signed=chance.random() < 0.3,
        verify=chance.random() < 0.8,
        denies_without_bus=chance.random() < 0.3,
        limit=10**9,
        cap=None,
        changes=tuple(changes),
        has_tables=True,
        think=TABLE_THINK,
    )


def draw(seed: int, *of: Any) -> float:
    """A number from 0 to 1 that is the same for the same words."""
    return zlib.crc32(":".join(map(str, (seed, *of))).encode()) / 2**32


def tool_of(plan: Plan, agent: str, number: int) -> str:
    """The tool of an agent's call."""
    return list(TOOLS)[int(draw(plan.seed, agent, number, "tool") * len(TOOLS))]


def behaviour(plan: Plan, kind: str, name: str, call: str, phase: str) -> str:
    """What a scheduler does about a call, in one word."""
    at = draw(plan.seed, name, call, phase)
    for word, share in _SHARES[kind].items():
        at -= share
        if at < 0:
            return word
    return "continue"


_SHARES: dict[str, dict[str, float]] = {
    "rules": {
        "deny": 0.08,
        "modify": 0.08,
        "ask": 0.04,
        "raise": 0.03,
        "nonsense": 0.02,
        "late": 0.03,
        "silent": 0.02,
    },
    "router": {"modify": 0.3, "modify high": 0.08, "modify wrongly": 0.05, "deny": 0.03, "late": 0.03},
    "keeper": {"hold, continue": 0.08, "hold, deny": 0.05, "hold for ever": 0.02, "hold twice": 0.03},
    "desk": {"hold, continue": 0.07, "hold, deny": 0.04, "hold for ever": 0.02},
}
