"""All sides on the same load, in turns, block by block: Toolgate, the floor, the peers.

A ratio is the median of the blocks' ratios to the floor's block beside it, so that a machine that is slower
for a while is slower for both. Only such ratios mean anything on another machine.
"""

import gc
import os
import statistics
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from toolgate_bus.server.embedded import Server

from toolgate_orchestrator.commands.bench.cleaner import Clean, open_cleaner
from toolgate_orchestrator.commands.bench.floor import Floor, open_floor
from toolgate_orchestrator.commands.bench.measure import Contender, Sample, run_block
from toolgate_orchestrator.commands.bench.mix import SIZES, Mix, name_schedulers
from toolgate_orchestrator.commands.bench.peers import Open
from toolgate_orchestrator.commands.bench.toolgate_side import open_toolgate

BLOCKS: Final = 8
WAVES: Final = 4
"""So often the decisions in flight follow on each other in a block, at the least."""
WARM_UP: Final = 256
FLOOR: Final = "floor"


@dataclass(frozen=True, slots=True)
class Loads:
    """What is measured: every size with every number of schedulers and of decisions in flight."""

    sizes: Sequence[str]
    schedulers: Sequence[int]
    in_flight: Sequence[int]
    decisions: int

    def __len__(self) -> int:
        return len(self.sizes) * len(self.schedulers) * len(self.in_flight)

    def block(self, in_flight: int) -> int:
        """Decisions of a block: so many that its beginning and its end do not count for much."""
        return max(-(-self.decisions // BLOCKS), WAVES * in_flight)


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """One load, on all sides."""

    size: str
    schedulers: int
    in_flight: int
    sides: Mapping[str, Sequence[Sample]]
    """The blocks of each side; those of the same number ran beside each other."""
    base: str = FLOOR
    """The side to which the others are compared."""

    def ratio(self, side: str, of: Callable[[Sample], float]) -> float:
        """The median over the blocks of a side's figure ÷ the base's."""
        pairs = zip(self.sides[side], self.sides[self.base], strict=True)
        return statistics.median(of(ours) / of(base) for ours, base in pairs)

    def ratios(self, side: str) -> dict[str, float]:
        """Of median, throughput and (where the system tells it) CPU."""
        found = {
            "median": round(self.ratio(side, lambda one: one.median), 2),
            "rate": round(self.ratio(side, lambda one: one.rate), 3),
        }
        if all(one.cpu_each for one in self.sides[self.base]):
            found["cpu"] = round(self.ratio(side, lambda one: one.cpu_each), 2)
        return found

    def figures(self) -> dict[str, Any]:
        """Everything, for scripts; microseconds."""
        sides: dict[str, Any] = {}
        for name, blocks in self.sides.items():
            sides[name] = Sample.of(blocks).figures()
            if name != self.base:
                sides[name]["ratio"] = self.ratios(name)
        return {
            "question_bytes": SIZES[self.size],
            "schedulers": self.schedulers,
            "in_flight": self.in_flight,
            "blocks": len(self.sides[self.base]),
            "sides": sides,
        }


async def compare(
    server: Server, loads: Loads, peers: Mapping[str, Open], tell: Callable[[str], None]
) -> AsyncIterator[LoadFigures]:
    """Measure every load; gives one row after another. Raises WrongVerdictError."""
    done = 0
    for count in loads.schedulers:
        tell(f"{count_schedulers(count)}: starting the processes of each side …")
        async with open_cleaner(server) as clean, open_sides(server, count, peers) as (floor, sides):
            for size in loads.sizes:
                floor.payload_bytes = SIZES[size]
                mix = Mix(floor.names, size)
                for in_flight in loads.in_flight:
                    done += 1
                    where = (
                        f"{done} of {len(loads)}: {size}, {count_schedulers(count)}, {in_flight} in flight"
                    )
                    each = loads.block(in_flight)
                    blocks = await _run_blocks(sides, floor, clean, mix, in_flight, each, where, tell)
                    yield LoadFigures(size, count, in_flight, blocks)


@asynccontextmanager
async def open_sides(
    server: Server, count: int, peers: Mapping[str, Open]
) -> AsyncIterator[tuple[Floor, list[Contender]]]:
    """The floor, Toolgate and the peers, each with so many answering processes."""
    names = name_schedulers(count)
    async with AsyncExitStack() as stack:
        floor, bare = await stack.enter_async_context(open_floor(server, names))
        others = (open_toolgate, *peers.values())
        sides = [bare, *[await stack.enter_async_context(open_side(server, names)) for open_side in others]]
        gc.freeze()  # as any command does once it has loaded what it needs
        yield floor, sides


def count_schedulers(schedulers: int) -> str:
    """How many schedulers, in words."""
    return f"{schedulers} scheduler{'s' if schedulers > 1 else ''}"


async def _run_blocks(
    sides: Sequence[Contender],
    floor: Floor,
    clean: Clean,
    mix: Mix,
    in_flight: int,
    each: int,
    where: str,
    tell: Callable[[str], None],
) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {side.name: [] for side in sides}
    calls = mix.take(max(min(WARM_UP, each), in_flight))
    for side in sides:
        await run_block(side, calls, in_flight)
    for block in range(BLOCKS):
        tell(f"{where}: block {block + 1} of {BLOCKS}")
        calls = mix.take(each)
        first = block % len(sides)
        for side in (*sides[first:], *sides[:first]):
            found[side.name].append(await run_block(side, calls, in_flight))
        floor.trim()
        await clean()
    return found


def find_load() -> float | None:
    """The machine's load over the last minute; None where it does not say."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None
