"""Hold the answers of local tables against a linear evaluation, the oracle, and a policy that is asked.

    python tests/oracle/tables.py --cases 1000000 --asked 10000    as `make soak-tables` does
    python tests/oracle/tables.py --cases 20000 --asked 0 --json   without a server

`--asked` calls are decided twice on an embedded server: by the table, and by the policy itself. The exit code
is 1 if anything differs.
"""

import argparse
import asyncio
import json
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from meanings import Past
from table_cases import CALLS, TableFound, TableWorld, draw_worlds, to_call, try_world
from toolgate_bus.config.check import check
from toolgate_bus.protocol.events import Decision
from toolgate_bus.protocol.revision import Revision
from toolgate_bus.ruling.local_table import digest_of
from toolgate_bus.server.embedded import private_server
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_orchestrator import Gate
from toolgate_schedulers.author.forms import as_scheduler
from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig
from toolgate_schedulers.worker.worker import Worker

NAMESPACE = "tables"
PATIENCE_MS = 30_000
IN_FORCE_S = 10.0
"""Longest wait until a gate has a table, which takes milliseconds."""
AT_ONCE = 32
LOOK_S = 0.001
PART = 20
"""Worlds that a process is given at a time."""


def try_many(seed: int, cases: int, part: tuple[int, int] = (0, 1)) -> TableFound:
    """Hold this number of cases against each other; no server is needed."""
    found = TableFound()
    for world in draw_worlds(seed, part):
        if found.cases >= cases:
            return found
        try_world(world._replace(cases=world.cases[: cases - found.cases]), found)
    return found


# ---------------------------------------------------------------------- with a policy that is asked


async def ask_many(url: str, seed: int, cases: int) -> TableFound:
    """Decide this number of calls twice: with tables, and with each put to the policy. Compare the two."""
    found = TableFound()
    worlds = (one for one in draw_worlds(seed) if _policy_of(one).local_table)
    bus = RedisSchedulerBus(url, NAMESPACE)
    worker: Worker | None = None
    try:
        while found.cases < cases:
            world = next(worlds)
            shared = connect_shared_state(url, bus.commands, NAMESPACE)
            if worker is None:
                worker = Worker(_policy_of(world), bus, shared=shared, namespace=NAMESPACE)
                await worker.start()
            else:
                await worker.swap(_policy_of(world), shared)
            await _ask_world(url, world._replace(cases=world.cases[: cases - found.cases]), found)
    finally:
        if worker is not None:
            await worker.drain()
    return found


def _policy_of(world: TableWorld) -> Scheduler:
    made = as_scheduler(Policy(check(PolicyConfig, world.written.document(), "rules")))
    return replace(made, revision=Revision("drawn"))


async def _ask_world(url: str, world: TableWorld, found: TableFound) -> None:
    async with Gate.open(
        redis=url,
        namespace=NAMESPACE,
        required=["policy"],
        patience_ms=PATIENCE_MS,
        redact=dict(world.written.redact),
    ) as gate:
        assert gate._client is not None
        tables = gate._client.tables
        digest = digest_of(_policy_of(world).local_table)
        async with asyncio.timeout(IN_FORCE_S):
            while (now := tables.in_force.get("policy")) is None or now.digest != digest:
                await asyncio.sleep(LOOK_S)
        by_table = await _decide_all(gate, world)
        with patch.object(tables, "answer", lambda names, question: {}):
            asked = await _decide_all(gate, world)
    for case, one, other in zip(world.cases, by_table, asked, strict=True):
        words = f"{world.written.document()} redact={dict(world.written.redact)}\n    {case.call!r:.600}"
        is_local = any(heard.revision.endswith(" local") for heard in one.verdicts)
        found.answered[one.outcome if is_local else "asked"] += 1
        if _view(one) != _view(other):
            found.blame("worker", f"{words}\n    {_view(one)} and not {_view(other)}")
        if any(heard.revision.endswith(" local") for heard in other.verdicts):
            found.blame("not asked", words)
        if is_local and world.is_judged:
            found.judged[one.outcome] += 1
            if one.allowed and not world.written.may_run(case.call, Past()):
                found.blame(f"let through: {case.kind}", words)


def _view(decision: Decision) -> tuple[Any, ...]:
    return decision.outcome, decision.why, decision.reason, [one.verdict for one in decision.verdicts]


async def _decide_all(gate: Gate, world: TableWorld) -> list[Decision]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def decide(number: int) -> Decision:
        async with turns:
            return await gate.decide(to_call(world.cases[number].call))

    return list(await asyncio.gather(*map(decide, range(len(world.cases)))))


# ---------------------------------------------------------------------- command


def _run_part(part: tuple[int, int, int, int]) -> TableFound:
    logging.disable(logging.CRITICAL)
    seed, cases, number, jobs = part
    return try_many(seed, cases, (number, jobs))


def _parts(seed: int, cases: int) -> Iterator[tuple[int, int, int, int]]:
    jobs = -(-cases // (PART * CALLS))
    for number in range(jobs):
        yield seed, min(PART * CALLS, cases - number * PART * CALLS), number, jobs


def _ask(seed: int, cases: int) -> TableFound:
    with private_server() as server:
        return asyncio.run(ask_many(server.url, seed, cases))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=200_000, help="number of cases (200000)")
    parser.add_argument("--asked", type=int, default=10_000, help="those that are asked, too (10000)")
    parser.add_argument("--seed", type=int, default=7, help="what they are drawn from (7)")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share them (1)")
    parser.add_argument("--json", action="store_true", help="print counts and examples as JSON")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    began, found = time.monotonic(), TableFound()
    with multiprocessing.Pool(given.jobs) as pool:
        for one in pool.imap_unordered(_run_part, _parts(given.seed, given.cases)):
            found.add(one)
            print(f"{found.cases} of {given.cases} cases", end="\r", file=sys.stderr, flush=True)
    took, began = time.monotonic() - began, time.monotonic()
    asked = _ask(given.seed, given.asked) if given.asked else TableFound()
    told = {"seconds": round(took, 1), **found.as_json()}
    told_asked = {"seconds": round(time.monotonic() - began, 1), **asked.as_json()}
    if given.json:
        print(json.dumps({"evaluated": told, "asked": told_asked}, indent=1))
    else:
        for name, one in (("evaluated", told), ("asked twice", told_asked)):
            examples = one.pop("examples")
            print(f"{name}: {one}")
            for what, texts in examples.items():
                print("\n".join([f"\n{what}:", *texts]))
    return 1 if found.wrong or asked.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
