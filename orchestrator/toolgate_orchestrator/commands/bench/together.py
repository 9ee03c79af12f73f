"""Several schedulers in one process, beside as many processes, and beside one scheduler alone; in turns."""

from collections.abc import AsyncIterator, Callable
from typing import Final

from toolgate_bus.server.embedded import Server

from toolgate_orchestrator.commands.bench.cleaner import open_cleaner
from toolgate_orchestrator.commands.bench.comparison import (
    BLOCKS,
    WARM_UP,
    LoadFigures,
    Loads,
    count_schedulers,
)
from toolgate_orchestrator.commands.bench.measure import Sample, run_block
from toolgate_orchestrator.commands.bench.mix import Mix, name_schedulers
from toolgate_orchestrator.commands.bench.toolgate_side import open_toolgate, open_toolgate_together

ALONE: Final = "one alone"
TOGETHER: Final = "together"
APART: Final = "apart"


async def compare_together(
    server: Server, loads: Loads, tell: Callable[[str], None]
) -> AsyncIterator[LoadFigures]:
    """Measure every load all three ways; the ratios are to one scheduler alone. Raises WrongVerdictError."""
    one = name_schedulers(1)
    for count in loads.schedulers:
        names = name_schedulers(count)
        tell(f"{count_schedulers(count)}: starting the processes …")
        async with (
            open_cleaner(server) as clean,
            open_toolgate(server, one) as alone,
            open_toolgate_together(server, names) as together,
            open_toolgate(server, names) as apart,
        ):
            sides = ((ALONE, alone, one), (TOGETHER, together, names), (APART, apart, names))
            for size in loads.sizes:
                mixes = {name: Mix(of, size) for name, _, of in sides}
                for in_flight in loads.in_flight:
                    found: dict[str, list[Sample]] = {name: [] for name, _, _ in sides}
                    for name, side, _ in sides:
                        await run_block(side, mixes[name].take(max(WARM_UP, in_flight)), in_flight)
                    for block in range(BLOCKS):
                        tell(
                            f"{count_schedulers(count)}, {in_flight} in flight: block {block + 1} of {BLOCKS}"
                        )
                        first = block % len(sides)
                        for name, side, _ in (*sides[first:], *sides[:first]):
                            found[name].append(
                                await run_block(side, mixes[name].take(loads.block(in_flight)), in_flight)
                            )
                        await clean()
                    yield LoadFigures(size, count, in_flight, found, ALONE)
