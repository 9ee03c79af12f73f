"""Decision of agents in three shards, beside agents in one shard, in one run.

    python tests/benchmarks/shards.py                 one server
    python tests/benchmarks/shards.py --cluster       three masters, each with one of the three shards

Both sides run at once on the same servers: three gates in this process, and scheduler processes of their own.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from harness import ROOT, Report, options, start

sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "ha")]

from cluster_world import MASTERS, ClusterWorld, cluster_world
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.server.embedded import private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.asking import orchestrator
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.shards import write_count
from toolgate_orchestrator.commands.bench.measure import Contender, Turns, figures_of
from toolgate_orchestrator.commands.bench.mix import Answer, Mix, MixedCall, name_schedulers
from toolgate_orchestrator.commands.bench.toolgate_side import lay_out, open_cleaner, open_gate, side_of
from toolgate_orchestrator.commands.host.scheduler_processes import scheduler_processes
from toolgate_orchestrator.decision.link import shared_clients

GATES = 3
ONE, THREE = (0, 0, 0), (0, 1, 2)
"""Shards of the gates of the two sides."""
SEQUENTIAL_PART = 8
"""Blocks with one decision in flight have this part of the decisions."""
OPTIONS = options(__doc__, schedulers=(1,), in_flight=(1, 64), decisions=4000, blocks=8)
OPTIONS.add_argument("--cluster", action="store_true", help="three masters instead of one server")


@dataclass(frozen=True)
class Place:
    """Servers on which both sides run."""

    url: str
    pids: Sequence[int]
    """Process ids of the servers."""
    directory: Path
    namespaces: tuple[str, str]
    """Namespaces of the side with one shard, and of that with three."""


@contextmanager
def one_server() -> Iterator[Place]:
    """Start one server."""
    with private_server() as server:
        yield Place(server.url, [server.pid], server.directory, ("bench-one", "bench-three"))


@contextmanager
def three_masters() -> Iterator[Place]:
    """Start a cluster of three masters; its replicas are ended, because their cost is not asked for."""
    with cluster_world() as world, tempfile.TemporaryDirectory(prefix="tg-shards-") as directory:
        masters, replicas = list(world.nodes.values())[:MASTERS], list(world.nodes.values())[MASTERS:]
        for node in replicas:
            node.kill()
        pids = [node.pid for node in masters]
        yield Place(world.url, pids, Path(directory), ("bench-one", find_namespace(world)))


def find_namespace(world: ClusterWorld) -> str:
    """Return a namespace whose three shards lie on three masters."""
    for number in range(1000):
        name = f"bench-three-{number}"
        if len({world.owner(Keys(name, shard).inbox("any")).port for shard in THREE}) == MASTERS:
            return name
    raise SystemExit("no namespace was found whose shards lie on three masters")


@asynccontextmanager
async def open_side(
    name: str, place: Place, namespace: str, schedulers: int, shards: Sequence[int]
) -> AsyncIterator[Contender]:
    """Open schedulers, and a gate in each of these shards."""
    names, bus = name_schedulers(schedulers), BusSettings(redis=place.url, namespace=namespace)
    commands = RedisCommands(place.url, "bench-shards", connections=1)
    try:
        await write_count(commands, Keys(namespace), len(set(shards)))
    finally:
        await commands.aclose()
    async with (
        scheduler_processes(lay_out(place.directory, names), bus) as running,
        AsyncExitStack() as stack,
    ):
        pids = {"gate": [os.getpid()], "server": [*place.pids], "schedulers": [one.pid for one in running]}
        gates = []
        for shard in shards:  # each as if it were a process of its own that had drawn it

            async def drawn(*_: object, shard: int = shard) -> int:
                return shard

            with patch.object(orchestrator, "draw_shard", drawn), patch.object(shared_clients, "_shared", {}):
                gate = await stack.enter_async_context(open_gate(bus, names))
                gates.append(side_of(name, gate, pids, Mix(names)))

        async def decide(call: MixedCall) -> Answer | None:
            return await gates[call.number % GATES].decide(call)

        yield Contender(name, decide, pids, Mix(names))


async def main(given: argparse.Namespace, report: Report) -> None:
    """Measure each load on both sides."""
    report.show_machine(where="cluster" if given.cluster else "server")
    for count in given.schedulers:
        with three_masters() if given.cluster else one_server() as place:
            one, three = place.namespaces
            async with (
                open_cleaner(place.url) as clean,
                open_side("one", place, one, count, ONE) as of_one,
                open_side("three", place, three, count, THREE) as of_three,
            ):
                for in_flight in given.in_flight:
                    each = max(1, given.decisions // (SEQUENTIAL_PART if in_flight == 1 else 1))
                    turns = Turns(in_flight, each, given.blocks)
                    blocks = await turns.run((of_one, of_three), clean, report.tell)
                    row = {"schedulers": count, "in_flight": in_flight, "blocks": given.blocks}
                    report.add_sides({**row, "sides": figures_of(blocks, "one")})


if __name__ == "__main__":
    start(OPTIONS, main)
