"""Read the metrics of slots from the server: state of the pools, waits of calls, shares of tenants.

The sums are the server's, which counts each slot once, whichever replica gave it. So they are not added up.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolgate_bus.fleet.roster import find_slot_givers
from toolgate_bus.ledger.slots.counts import PoolState, PoolSums, read_pools, read_sums
from toolgate_bus.telemetry import definitions
from toolgate_bus.telemetry.definitions import Metric
from toolgate_bus.telemetry.metrics import Collector, CounterSeries, Durations, Gauges
from toolgate_bus.transport.ports import Commands, Member

MAX_QUEUES: Final = 100
MAX_WHOSE: Final = 128
Queues = Mapping[str, tuple[Mapping[str, PoolState], PoolSums]]
"""State and sums of each pool, by scheduler."""


class SlotGauges:
    """Reader of the metrics of each scheduler that gives slots, or did before."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands, self._namespace = commands, namespace
        self._known: set[str] = set()

    async def read(self, members: Iterable[Member]) -> list[Collector]:
        """Return the metrics. Raise TransportError. If no scheduler gives slots, nothing is read."""
        self._known |= find_slot_givers(members)
        queues = {}
        for name in sorted(self._known)[:MAX_QUEUES]:
            pools = await read_pools(self._commands, self._namespace, name)
            queues[name] = (pools, await read_sums(self._commands, self._namespace, name))
        return show_queues(queues)


def show_queues(queues: Queues) -> list[Collector]:
    """Return the metrics of these queues."""
    if not queues:
        return []
    sums = {name: own for name, (_, own) in queues.items()}
    states = {(name, pool): one for name, (pools, _) in queues.items() for pool, one in pools.items()}
    # The server forgets a pool that is idle; it is shown with zeros.
    idle = {(name, pool): PoolState() for name, own in sums.items() for pool in own.waited}
    every = {**idle, **states}
    return [
        Gauges(definitions.SLOTS_WAITING, {key: float(one.waiting) for key, one in every.items()}),
        Gauges(definitions.SLOTS_IN_USE, {key: float(one.in_use) for key, one in every.items()}),
        Gauges(definitions.SLOTS_LIMIT, {key: float(one.limit) for key, one in states.items()}),
        Gauges(definitions.SLOTS_OLDEST, {key: one.oldest_s for key, one in every.items()}),
        _durations(definitions.SLOTS_WAIT, {name: own.waited for name, own in sums.items()}),
        _durations(definitions.SLOTS_HELD, {name: own.held for name, own in sums.items()}),
        _counter(definitions.SLOTS_UNSERVED, {name: own.unserved for name, own in sums.items()}),
        _counter(
            definitions.SLOTS_LAPSED,
            {name: {(pool,): own.lapsed.get(pool, 0) for pool in own.waited} for name, own in sums.items()},
        ),
        _counter(definitions.SLOTS_USED, {name: own.used for name, own in sums.items()}),
        Gauges(
            definitions.SLOTS_WEIGHT,
            {
                (name, pool, whose[:MAX_WHOSE]): one
                for name, own in sums.items()
                for (pool, whose), one in own.weight.items()
            },
        ),
    ]


def _durations(metric: Metric, rows: Mapping[str, Mapping[str, list[float]]]) -> Durations:
    made = Durations(metric)
    for name, pools in rows.items():
        for pool, row in pools.items():
            made.load((name, pool), row)
    return made


def _counter(metric: Metric, rows: Mapping[str, Mapping[Any, float]]) -> CounterSeries:
    made = CounterSeries(metric)
    for name, series in rows.items():
        for (pool, *rest), number in series.items():
            made.add((name, pool, *(one[:MAX_WHOSE] for one in rest)), number)
    return made
