"""Worlds for the score: crowds, near equals, one that breaks and recovers, replicas that hear late.

    python tests/simulation/score_worlds.py --seeds 1000     worlds 0 to 999
    python tests/simulation/score_worlds.py --seed 42        one world, in words

Each world is drawn from its seed: alternatives with prices, durations and places, a stream of calls, a fault
perhaps, and replicas of the score. Each replica hears every fact after a delay of its own, some hear nothing
for a while. Now and then a call is cancelled, or its end is never told. The score, its memory and its ranking
are the product's; time is not real. What must hold in every world, and in those of a kind, is in `look_at`.
"""

import argparse
import heapq
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from toolgate_bus.protocol.events import ToolSelecting
from toolgate_schedulers.shipped.score.exploration import Explorer
from toolgate_schedulers.shipped.score.outcomes import OUT_S, UNKNOWN, Outcomes, Performance
from toolgate_schedulers.shipped.score.score import Option, Rating, ejected, rank_keys, rate_options
from toolgate_schedulers.shipped.score.sticky import DECISION
from toolgate_schedulers.shipped.score.sums import LOST_S

LENGTH_S = 300.0
AT_ONCE_S = 0.1
MAX_QUEUE = 40
"""Longest queue where there is room for all calls: a herd would be longer."""
CLEAR = 1.4
"""Factor between the two best true scores from which a choice is clear: near equals may take turns."""
CALM_SWITCHES = 0.2
"""Largest share of calls of a calm world with a clear choice that go elsewhere than the one before."""
STICKY_SWITCHES = 0.05
"""The same among the calls of each session of a calm world that sticks by session, also among near equals."""
SESSIONS = 5
EXPLORED = 0.04
"""Share of the calls of some worlds that try another alternative than the best one."""


class Tool(NamedTuple):
    """One alternative."""

    key: str
    cost: float
    seconds: float
    places: int
    fails: float

    @property
    def per_second(self) -> float:
        """Calls that it can do in a second."""
        return self.places / self.seconds


@dataclass(frozen=True)
class Plan:
    """One world."""

    seed: int
    kind: str
    """`crowd`, `calm` or `fault`."""
    tools: tuple[Tool, ...]
    per_second: float
    """Calls a second."""
    weights: tuple[float, float]
    delays: tuple[float, ...]
    """Seconds after which each replica hears a fact."""
    deaf: tuple[tuple[int, float, float], ...]
    """Replicas that hear nothing in a time: number, begin, end."""
    fault: tuple[str, float, float, float] | None
    """Alternative that fails, begin, end, and share of calls that fail."""
    lost: float
    """Share of calls whose end is never told."""
    cancelled: float
    sticky: bool
    """True if calls of a session stay together."""
    slots: bool
    """True if a call waits for a slot before it runs: the wait is no part of its duration."""
    explores: bool
    """True if a share of the calls tries another alternative."""

    def describe(self) -> str:
        """Return the world in words."""
        tools = "; ".join(
            f"{one.key}: {one.cost:g} for {one.seconds:.2f} s, {one.places} places, {one.fails:.0%} fail"
            for one in self.tools
        )
        delays = ", ".join(f"{delay:.2f}" for delay in self.delays)
        return (
            f"seed {self.seed}, {self.kind}: {self.per_second:.2f} calls a second, weights {self.weights}\n"
            f"  {tools}\n  replicas hear after {delays} s, deaf {self.deaf}; fault {self.fault}; "
            f"lost {self.lost:.1%}, cancelled {self.cancelled:.1%}{', sticky' if self.sticky else ''}"
            f"{', slots' if self.slots else ''}{', explores' if self.explores else ''}"
        )


def make_plan(seed: int) -> Plan:
    """Return the world of a seed."""
    random = Random(f"score {seed}")
    kind = random.choice(("crowd", "calm", "fault"))
    tools = tuple(
        Tool(
            f"t{number}",
            round(random.uniform(1, 20), 2),
            random.uniform(0.3, 2.0),
            random.randint(2, 4) if kind == "crowd" else 200,
            random.choice((0.0, 0.01, 0.05)),
        )
        for number in range(random.randint(2, 5))
    )
    whole = sum(one.per_second for one in tools)
    per_second = random.uniform(0.5, 0.75) * whole if kind == "crowd" else random.uniform(0.5, 4.0)
    replicas = random.randint(1, 3)
    delays = tuple(random.choice((0.01, 0.05, 0.3)) for _ in range(replicas))
    deaf: tuple[tuple[int, float, float], ...] = ()
    if kind != "crowd" and random.random() < 0.5:
        begin = random.uniform(50, 250)
        deaf = ((random.randrange(replicas), begin, begin + random.uniform(0.5, 4.0)),)
    fault = None
    if kind == "fault":
        begin = random.uniform(60, 120)
        fault = (random.choice(tools).key, begin, begin + random.uniform(40, 90), random.choice((0.8, 1.0)))
    return Plan(
        seed,
        kind,
        tools,
        per_second,
        random.choice(((0.6, 0.4), (0.0, 1.0), (0.2, 0.8), *(() if kind == "crowd" else ((1.0, 0.0),)))),
        delays,
        deaf,
        fault,
        random.choice((0.0, 0.005)),
        random.choice((0.0, 0.02)),
        sticky=kind == "calm" and seed % 2 == 0,
        slots=kind == "crowd" and seed % 2 == 1,
        explores=kind != "fault" and seed % 4 in (1, 2),
    )


class Done(NamedTuple):
    """Call that was decided on."""

    at: float
    key: str
    replica: int
    waited: float
    well: bool


@dataclass
class World:
    """A world while it runs."""

    plan: Plan
    now: float = 0.0
    calls: list[Done] = field(default_factory=list)
    queues: Counter[str] = field(default_factory=Counter)
    """Longest queue of each alternative, after the first tenth of the time."""
    broken: list[str] = field(default_factory=list)
    explored: int = 0

    def __post_init__(self) -> None:
        """Make the replicas, and the places of the alternatives."""
        plan = self.plan
        self.keys = [one.key for one in plan.tools]
        sticky = "session" if plan.sticky else DECISION
        self.replicas = [
            Outcomes([self.keys], sticky=sticky, explorer=Explorer(EXPLORED if plan.explores else 0.0))
            for _ in plan.delays
        ]
        self._questions = [
            ToolSelecting(id="0" * 32, tool_name="t0", session=f"s{number}") for number in range(SESSIONS)
        ]
        self._free = {one.key: [0.0] * one.places for one in plan.tools}
        self._begins: dict[str, list[float]] = {key: [] for key in self.keys}
        self._random = Random(f"luck {plan.seed}")
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._tried: dict[tuple[int, str], float] = {}

    def run(self) -> "World":
        """Run to the end of all calls, and until every fact is heard."""
        for number, at in enumerate(self._times()):
            self._at(at, lambda number=number: self._decide(number))  # type: ignore[misc]
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now += 3.0  # what was only expected is forgotten
        return self

    def _times(self) -> Iterator[float]:
        at = 0.0
        while at < LENGTH_S:
            yield at
            at += self._random.expovariate(self.plan.per_second)

    def options(self, replica: int) -> list[Option]:
        """Return the alternatives as a replica knows them."""
        outcomes = self.replicas[replica]
        return [
            Option(one.key, one.cost, 0.0, number == 0, outcomes.performance(one.key, self.now))
            for number, one in enumerate(self.plan.tools)
        ]

    def _decide(self, number: int) -> None:
        replica = self._random.randrange(len(self.replicas))
        outcomes, plain = self.replicas[replica], self.options(replica)
        call = self._questions[number % SESSIONS].model_copy(update={"id": f"d{number}"})
        ranked = rank_keys(
            [one._replace(performance=UNKNOWN) for one in plain],
            outcomes, self.now, *self.plan.weights, call,
        )  # fmt: skip
        key, out = ranked[0].option.key, ejected(self.options(replica))
        if ranked[0].explored:
            self.explored += 1
            if self.plan.sticky or not ranked[0].option.performance.is_usable:
                self.broken.append(f"{self.now:.2f} s: {key} is tried by a call that must not")
        if key in out or len(out) > len(self.keys) // 2:
            self.broken.append(f"{self.now:.2f} s: {key} is chosen, and out are {sorted(out)}")
        self._watch_tries(replica, key)
        outcomes.expect(f"d{number}", key, self.now)
        self._call(number, key, replica)

    def _watch_tries(self, replica: int, key: str) -> None:
        """Look that one that is out gets one call at a time, from each replica."""
        ejection = self.replicas[replica]._kept[key].ejection if key in self.replicas[replica]._kept else None
        tried = self._tried.get((replica, key))
        if ejection is None or ejection.until is None or self._more_out(replica):
            self._tried.pop((replica, key), None)
            return
        if tried is not None and ejection.tried_at == tried and self.now - tried < OUT_S:
            self.broken.append(f"{self.now:.2f} s: {key} is tried twice at a time by replica {replica}")
        self._tried[replica, key] = self.now

    def _more_out(self, replica: int) -> bool:
        out = [one for one in self.options(replica) if not one.performance.is_usable]
        return len(out) > len(self.keys) // 2

    def _call(self, number: int, key: str, replica: int) -> None:
        plan = self.plan
        tool = next(one for one in plan.tools if one.key == key)
        free = self._free[key]
        place = min(range(len(free)), key=free.__getitem__)
        begun = max(self.now, free[place])
        fails = tool.fails
        if plan.fault is not None and plan.fault[0] == key and plan.fault[1] <= begun < plan.fault[2]:
            fails = plan.fault[3]
        well = self._random.random() >= fails
        ended = free[place] = begun + (
            tool.seconds * self._random.lognormvariate(0, 0.4) if well else AT_ONCE_S
        )
        waiting = [at for at in self._begins[key] if at > self.now]
        self._begins[key] = [*waiting, begun]
        if self.now > LENGTH_S / 10:
            self.queues[key] = max(self.queues[key], len(waiting))
        self.calls.append(Done(self.now, key, replica, begun - self.now, well))
        id_, luck = f"d{number}", self._random.random()
        decided = {"event": "decision", "id": id_, "outcome": "continue", "tool_name": key}
        runs_at = begun if plan.slots else self.now
        self._tell(decided | {"session": f"s{number % SESSIONS}", "waited": runs_at - self.now}, runs_at)
        if luck < plan.lost:
            return
        fact: dict[str, Any] = {"event": "tool:post" if well else "tool:error", "tool": key}
        fact |= {"decision_id": id_, "seconds": ended - runs_at}
        if luck < plan.lost + plan.cancelled:
            fact |= {"event": "tool:error", "error": "CancelledError"}
        self._tell(fact, ended)

    def _tell(self, fact: dict[str, Any], at: float) -> None:
        for number, delay in enumerate(self.plan.delays):
            heard = at + delay
            for deaf, begin, end in self.plan.deaf:
                heard = end if number == deaf and begin <= heard < end else heard
            self._at(heard, lambda number=number: self.replicas[number].hear(fact, self.now))  # type: ignore[misc]

    def _at(self, at: float, event: Callable[[], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (at, self._numbers, event))


def look_at(world: World) -> list[str]:
    """Return what does not hold in a world that has run."""
    return [
        *world.broken[:1],
        *_herd(world),
        *_flapping(world),
        *_exploring(world),
        *_leaving(world),
        *_fault(world),
        *_replicas(world),
    ]


def _herd(world: World) -> Iterator[str]:
    if world.plan.kind == "crowd":
        for key, longest in world.queues.items():
            if longest > MAX_QUEUE:
                yield f"a herd: {longest} calls wait for {key}, and there is room for all"


def _flapping(world: World) -> Iterator[str]:
    late = [one.key for one in world.calls if one.at > LENGTH_S / 2]
    if world.plan.kind == "calm" and len(late) > 50 and clear_choice(world.plan) is not None:
        switches = sum(one != other for one, other in pairwise(late))
        if switches > CALM_SWITCHES * len(late):
            yield f"flapping: {switches} of {len(late)} calls of a calm world went elsewhere than the last"


def _exploring(world: World) -> Iterator[str]:
    most = 2 * EXPLORED * len(world.calls) + 5 if world.plan.explores else 0
    if world.explored > most:
        yield f"exploring: {world.explored} of {len(world.calls)} calls tried another alternative"


def _leaving(world: World) -> Iterator[str]:
    if not world.plan.sticky:
        return
    late = [(number % SESSIONS, one.key) for number, one in enumerate(world.calls) if one.at > LENGTH_S / 2]
    went = [[key for session, key in late if session == number] for number in range(SESSIONS)]
    switches = sum(one != other for keys in went for one, other in pairwise(keys))
    if switches > STICKY_SWITCHES * len(late):
        yield f"leaving: {switches} of {len(late)} calls went elsewhere than the last of their session"


def _fault(world: World) -> Iterator[str]:
    plan = world.plan
    if plan.fault is None:
        return
    key, begin, end, _ = plan.fault
    before = _share(world, key, begin - 40, begin)
    during, after = _share(world, key, begin + 10, end), _share(world, key, LENGTH_S - 60, LENGTH_S)
    if before is not None and during is not None and before > 0.5 and during > 0.3:
        yield f"{key} fails and still gets {during:.0%} of the calls"
    if (
        before is not None
        and after is not None
        and clear_choice(plan) == key
        and before > 0.9
        and after < 0.5
    ):
        yield f"{key} has recovered, had {before:.0%} of the calls, and gets {after:.0%}"


def true_ratings(plan: Plan) -> list[Rating]:
    """Return how the alternatives would be rated by who knows them, without a crowd."""
    known = [
        Option(
            one.key, one.cost, 0.0, False,
            Performance(1 - one.fails, 1000.0, one.seconds, one.seconds, weight=1000.0),
        )
        for one in plan.tools
    ]  # fmt: skip
    return rate_options(known, *plan.weights)


def clear_choice(plan: Plan) -> str | None:
    """Return the best alternative if it is clearly the best one."""
    best, second, *_ = sorted(true_ratings(plan), key=lambda one: one.score)
    return best.option.key if second.score > CLEAR * best.score else None


def _share(world: World, key: str, begin: float, end: float) -> float | None:
    found = [one.key == key for one in world.calls if begin <= one.at < end]
    return sum(found) / len(found) if len(found) >= 20 else None


def _replicas(world: World) -> Iterator[str]:
    for key in world.keys:
        known = [replica.performance(key, world.now) for replica in world.replicas]
        if max(one.success for one in known) - min(one.success for one in known) > 0.15 and all(
            one.is_usable and one.calls > 10 for one in known
        ):
            yield f"replicas that have heard the same differ on {key}: {[one.success for one in known]}"
        if not world.plan.lost and any(one.under_way for one in known):
            yield f"{key}: all calls have ended, and {[one.under_way for one in known]} are under way"
    later = world.now + LOST_S + 1
    for replica in world.replicas:
        replica.expect("last", world.keys[0], later)
        replica.hear({"event": "tool:error", "tool": "", "decision_id": "last", "error": "x"}, later)
        replica._end("last")
        if left := [key for key in world.keys if replica.performance(key, later).under_way]:
            yield f"calls that were lost are under way for ever: {left}"


def main(words: list[str]) -> int:
    """Run what was asked for; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000, help="number of worlds (1000)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (0)")
    parser.add_argument("--seed", type=int, help="this world alone, in words")
    parser.add_argument("--json", action="store_true", help="write one JSON object")
    given = parser.parse_args(words)
    seeds = range(given.first, given.first + given.seeds) if given.seed is None else [given.seed]
    broken: dict[int, list[str]] = {}
    calls, kinds = 0, Counter[str]()
    for done, seed in enumerate(seeds, 1):
        world = World(make_plan(seed)).run()
        calls += len(world.calls)
        kinds[world.plan.kind] += 1
        if wrong := look_at(world):
            broken[seed] = wrong
        if given.seed is not None:
            print(world.plan.describe())
            print(f"  calls {Counter(one.key for one in world.calls)}, longest queues {dict(world.queues)}")
        if done % 200 == 0:
            print(f"{done} worlds of the score, {len(broken)} broken", file=sys.stderr)
    if given.json:
        print(json.dumps({"worlds": len(seeds), "calls": calls, "kinds": kinds, "broken": broken}))
    else:
        print(f"{len(seeds)} worlds of the score ({dict(kinds)}), {calls} calls; {len(broken)} broken")
        for seed, wrong in list(broken.items())[:10]:
            print(f"  seed {seed}: {'; '.join(wrong)}\n    python {Path(sys.argv[0])} --seed {seed}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
