"""What a decision costs where agents lie in three shards, beside one shard, in one run.

    python tests/shards_beside.py                 one server
    python tests/shards_beside.py --cluster       three masters, each of which has one of the three shards
    python tests/shards_beside.py --json          a line for each load

Both sides run at once on the same servers: three gates in this process, and scheduler processes of their own.
They take turns block by block, the first of a pair last in the next; every decision is checked. What is told
is the median of the ratios of the pairs: of decisions a second, and of the CPU that one takes in all
processes. No test: none fails.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent / "ha"))

from cluster_world import MASTERS, ClusterWorld, cluster_world
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.server.embedded import private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis import orchestrator
from toolgate_bus.transport.redis.connection import RedisCommands
from toolgate_bus.transport.redis.shards import write_count
from toolgate_orchestrator.commands.bench.cleaner import Clean, open_cleaner
from toolgate_orchestrator.commands.bench.measure import Contender, Sample, run_block
from toolgate_orchestrator.commands.bench.mix import TOOLS, Answer, Mix, MixedCall, name_schedulers, to_answer
from toolgate_orchestrator.commands.bench.toolgate_side import lay_out, open_gate
from toolgate_orchestrator.commands.host.scheduler_processes import scheduler_processes
from toolgate_orchestrator.gate import shared_clients
from toolgate_orchestrator.gate.gate import Gate

GATES = 3
ONE, THREE = (0, 0, 0), (0, 1, 2)
"""Where the gates of the two sides lie."""
WARM_UP = 500
SEQUENTIAL_PART = 8
"""One decision at a time takes so much longer: of a block there are as many less."""


@dataclass(frozen=True)
class Place:
    """Where both sides run."""

    url: str
    pids: Sequence[int]
    """Of the servers."""
    directory: Path
    namespaces: tuple[str, str]
    """Of the side with one shard, and of that with three."""


@contextlib.contextmanager
def one_server() -> Iterator[Place]:
    """The embedded server."""
    with private_server() as server:
        yield Place(server.url, [server.pid], server.directory, ("bench-one", "bench-three"))


@contextlib.contextmanager
def three_masters() -> Iterator[Place]:
    """A cluster of three, whose replicas are ended: what they cost is nobody's question here."""
    with cluster_world() as world, tempfile.TemporaryDirectory(prefix="tg-shards-") as directory:
        masters, replicas = list(world.nodes.values())[:MASTERS], list(world.nodes.values())[MASTERS:]
        for node in replicas:
            node.kill()
        pids = [node.pid for node in masters]
        yield Place(world.url, pids, Path(directory), ("bench-one", find_namespace(world)))


def find_namespace(world: ClusterWorld) -> str:
    """One whose three shards lie on three masters."""
    for number in range(1000):
        name = f"bench-three-{number}"
        if len({world.owner(Keys(name, shard).inbox("any")).port for shard in THREE}) == MASTERS:
            return name
    raise SystemExit("no namespace was found whose shards lie on three masters")


@contextlib.asynccontextmanager
async def open_gates(
    bus: BusSettings, names: Sequence[str], shards: Sequence[int]
) -> AsyncIterator[list[Gate]]:
    """A gate in each of these shards, as if each were a process of its own that had drawn it."""
    async with contextlib.AsyncExitStack() as stack:
        gates = []
        for shard in shards:

            async def drawn(*_: object, shard: int = shard) -> int:
                return shard

            with patch.object(orchestrator, "draw_shard", drawn), patch.object(shared_clients, "_shared", {}):
                gates.append(await stack.enter_async_context(open_gate(bus, names)))
        yield gates


@contextlib.asynccontextmanager
async def open_side(
    place: Place, namespace: str, schedulers: int, shards: Sequence[int]
) -> AsyncIterator[Contender]:
    """Gates and schedulers of one side."""
    names, bus = name_schedulers(schedulers), BusSettings(redis=place.url, namespace=namespace)
    commands = RedisCommands(place.url, "bench-shards", connections=1)
    try:
        await write_count(commands, Keys(namespace), len(set(shards)))
    finally:
        await commands.aclose()
    async with (
        scheduler_processes(lay_out(place.directory, names), bus) as running,
        open_gates(bus, names, shards) as gates,
    ):

        async def decide(call: MixedCall) -> Answer:
            gate = gates[call.number % GATES]
            decision = await gate.decide(
                call.tool_name, call.tool_input, TOOLS, session=call.session, tool_call_id=call.tool_call_id
            )
            return to_answer(decision)

        pids = {"gate": [os.getpid()], "server": place.pids, "schedulers": [one.pid for one in running]}
        yield Contender(namespace, decide, pids)


async def compare(place: Place, asked: argparse.Namespace) -> None:
    """Measure each load on both sides, and print what came of it."""
    one, three = place.namespaces
    async with (
        open_cleaner(SimpleNamespace(url=place.url)) as clean,
        open_side(place, one, asked.schedulers, ONE) as of_one,
        open_side(place, three, asked.schedulers, THREE) as of_three,
    ):
        gc.freeze()
        for lanes in asked.in_flight or (1, 64):
            pairs = await run_pairs((of_one, of_three), lanes, asked, clean)
            tell(pairs, lanes, asked)


async def run_pairs(
    sides: tuple[Contender, Contender], lanes: int, asked: argparse.Namespace, clean: Clean
) -> list[tuple[Sample, Sample]]:
    """Blocks in turns; of each pair the sample with one shard, and that with three."""
    mix = Mix(name_schedulers(asked.schedulers))
    many = asked.decisions if lanes > 1 else max(100, asked.decisions // SEQUENTIAL_PART)
    for side in sides:
        await run_block(side, mix.take(max(WARM_UP, lanes)), lanes)
    pairs = []
    for block in range(asked.blocks):
        print(f"{lanes} in flight: pair {block + 1} of {asked.blocks}", file=sys.stderr, flush=True)
        found = {}
        for side in sides if block % 2 else reversed(sides):
            found[side.name] = await run_block(side, mix.take(many), lanes)
        pairs.append((found[sides[0].name], found[sides[1].name]))
        await clean()
    return pairs


def tell(pairs: Sequence[tuple[Sample, Sample]], lanes: int, asked: argparse.Namespace) -> None:
    """One load: both sides, and the median ratio of three shards to one."""
    one, three = (Sample.of(side).figures() for side in zip(*pairs, strict=True))
    row: dict[str, Any] = {
        "where": "cluster" if asked.cluster else "server",
        "schedulers": asked.schedulers,
        "in_flight": lanes,
        "pairs": len(pairs),
        "load_before": asked.load_before,
        "one_shard": one,
        "three_shards": three,
        "rate_ratio": round(statistics.median(b.rate / a.rate for a, b in pairs), 3),
        "cpu_ratio": round(statistics.median(b.cpu_each / a.cpu_each for a, b in pairs), 3)
        if one["cpu_us"]
        else None,
    }
    if asked.as_json:
        print(json.dumps(row), flush=True)
        return
    what = f"{row['where']}, {asked.schedulers} scheduler(s), {lanes:>2} in flight"
    sides = "; ".join(
        f"{name} {side['per_second']}/s, {side['cpu_us']} µs"
        for name, side in (("one shard", one), ("three", three))
    )
    ratios = f"decisions/s {row['rate_ratio']}, CPU {row['cpu_ratio']}"
    print(f"{what}: {sides}; three ÷ one: {ratios} (median of {len(pairs)} pairs)", flush=True)


def main() -> None:
    """Read the arguments and compare."""
    parser = argparse.ArgumentParser(description="A decision in three shards beside one, in one run.")
    parser.add_argument("--cluster", action="store_true", help="on three masters instead of one server")
    parser.add_argument(
        "-n", "--schedulers", type=int, default=1, help="scheduler processes of each side (1)"
    )
    parser.add_argument("-c", "--in-flight", type=int, action="append", help="decisions at a time (1, 64)")
    parser.add_argument("--blocks", type=int, default=8, help="pairs of blocks for each load (8)")
    parser.add_argument("--decisions", type=int, default=4000, help="decisions of a block (4000)")
    parser.add_argument("--json", dest="as_json", action="store_true", help="a line of JSON for each load")
    asked = parser.parse_args()
    asked.load_before = round(os.getloadavg()[0], 2)
    with three_masters() if asked.cluster else one_server() as place:
        asyncio.run(compare(place, asked))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
