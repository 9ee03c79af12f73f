"""CPU, latency and throughput of a decision, beside another version of Toolgate, in one run.

    make cost AGAINST=REVISION          python tests/benchmarks/cost.py REVISION
    python tests/benchmarks/cost.py REVISION --with mix --with signed

Both versions run at once on one server, each with a gate and scheduler processes of its own. Blocks of
decisions alternate, so that both see the same machine. The CPU is that of gate, schedulers and server. The
other version is checked out into a temporary directory and found by PYTHONPATH; the libraries are the same.
Each ratio is the median over pairs of blocks, with its 95 % interval.

--with plain       calls that a policy with conditions looks at; every 16th is denied (the default)
       mix         calls of `toolgate bench`: denied, replaced, verified
       signed      mix, with keys on both sides
       redacted    mix, with redaction by field and pattern
       shadows     plain, with two shadows of three schedulers
       slow        plain, with a slow scheduler among eight
       guard       functions that a guard has made tools, from the call to its report
       budget      the same, paid from two budgets of `cost-aware`, which has nothing to choose
       ungated     the same, where nobody rules
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harness import ROOT, GateProcess, Report, open_gate_process, options, start
from toolgate_bus.server.embedded import Server, private_server
from toolgate_orchestrator.commands.bench.measure import Turns, figures_of
from toolgate_orchestrator.commands.bench.mix import name_schedulers
from toolgate_orchestrator.commands.bench.toolgate_side import lay_out, open_cleaner

sys.path.insert(0, str(ROOT / "tests"))

from other_version import command_of, path_of

PACKAGES = ("bus", "orchestrator", "schedulers")
ALL = ((1, 1), (1, 64), (3, 1), (3, 64))
LOADS = {
    "plain": ALL,
    "mix": ALL,
    "signed": ((1, 64), (3, 64)),
    "redacted": ((1, 64), (3, 64)),
    "shadows": ((3, 64),),
    "slow": ((8, 64),),
    "guard": ((1, 1), (1, 64)),
    "budget": ((1, 1), (1, 64)),
    "ungated": ((0, 1),),
}
"""Schedulers and decisions in flight, by what is on."""
MIXES = ("mix", "signed", "redacted")
"""Loads whose schedulers have no local table: all of their calls are asked."""
CALLS = {**dict.fromkeys(MIXES, "mix"), "guard": "guard", "budget": "paid", "ungated": "paid"}
SEQUENTIAL_PART = 4
"""Blocks with one decision in flight have this part of the decisions."""
REDACT = {"fields": ["password", "api_key"], "patterns": ["sk-[a-z0-9]{20}", "[0-9]{16}"]}
SLOW = """
import asyncio
from toolgate_schedulers import Continue, scheduler

@scheduler
async def slow(call):
    await asyncio.sleep(0.02)
    return Continue()
"""
RULES = """
rules:
  - {tools: 'bash', when: {command: {matches: 'rm -rf'}}, action: deny, reason: 'no'}
  - {tools: 'send_*', when: {amount: {gt: 1000}}, action: deny, reason: too much}
  - {tools: 'write_file', when: {path: {matches: '[.]env$'}}, action: deny, reason: secret}
"""
BUDGET = """
default: {cost: 0.01}
budgets:
  - {name: daily, level: fleet, limit: 100000000, window: day}
  - {name: each, level: session, limit: 1000000}
"""
OPTIONS = options(__doc__, decisions=4000, blocks=20)
OPTIONS.add_argument("revision", help="version to compare with: any name that git knows")
OPTIONS.add_argument("--with", dest="beside", action="append", choices=LOADS, help="what is on; repeatable")


@asynccontextmanager
async def open_version(
    name: str, tree: Path, server: Server, count: int, beside: str
) -> AsyncIterator[GateProcess]:
    """Open a version with this number of schedulers, from its sources."""
    folder = server.directory
    path = path_of(tree, folder / f"{name}-installed")
    names = name_schedulers(count)
    config: dict[str, Any] = {}
    keys: tuple[str, ...] = ()
    if beside == "signed":
        file = folder / "keys.yaml"
        file.write_text("".join(f"{one}: {'5e' * 32}\n" for one in names))
        file.chmod(0o600)
        keys, config = ("--keys", str(file)), {"keys": str(file)}
    elif beside == "redacted":
        config = {"redact": REDACT}
    elif beside == "shadows":
        config = {"required": names[:1], "shadow": names[1:]}
    what: list[tuple[str, ...]] = [("policy", "--config", str(folder / "rules.yaml"))] * count
    if beside == "budget":
        what = [("cost-aware", "--config", str(folder / "budget.yaml"))] * count
    elif beside == "slow":
        what[0] = ("slow_one:slow",)
    elif beside in MIXES:
        what = [(one.spec,) for one in lay_out(folder, names)]
    run = (*command_of(tree), "scheduler", "run")
    commands = [(*run, *one, *keys, "--name", name, "--json") for one, name in zip(what, names, strict=True)]
    env = {"PYTHONPATH": os.pathsep.join((path, str(folder)))}
    calls = CALLS.get(beside, "policy")
    async with open_gate_process(name, server, commands, calls=calls, config=config, env=env) as side:
        yield side


async def compare(tree: Path, given: argparse.Namespace, beside: Sequence[str], report: Report) -> None:
    """Measure every load on both versions."""
    with private_server() as server:
        (server.directory / "rules.yaml").write_text(RULES)
        (server.directory / "slow_one.py").write_text(SLOW)
        (server.directory / "budget.yaml").write_text(BUDGET)
        for what in beside:
            for count in sorted({count for count, _ in LOADS[what]}):
                async with (
                    open_cleaner(server.url) as clean,
                    open_version("then", tree, server, count, what) as then,
                    open_version("now", ROOT, server, count, what) as now,
                ):
                    for in_flight in [lanes for schedulers, lanes in LOADS[what] if schedulers == count]:
                        part = SEQUENTIAL_PART if in_flight == 1 else 1
                        turns = Turns(in_flight, max(1, given.decisions // part), given.blocks)
                        blocks = await turns.run((then, now), clean, report.tell)
                        row = {"with": what, "schedulers": count, "in_flight": in_flight}
                        report.add_sides({**row, "blocks": given.blocks, "sides": figures_of(blocks, "then")})


async def main(given: argparse.Namespace, report: Report) -> None:
    """Check out the other version and compare."""
    with tempfile.TemporaryDirectory(prefix="tg-cost-") as directory:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", given.revision, "pyproject.toml", *PACKAGES],
            capture_output=True,
            check=False,
        )
        if archive.returncode:
            raise SystemExit(f"git does not know {given.revision}: {archive.stderr.decode().strip()}")
        subprocess.run(["tar", "-x", "-C", directory], input=archive.stdout, check=True)
        report.show_machine(then=given.revision)
        await compare(Path(directory), given, given.beside or ["plain"], report)


if __name__ == "__main__":
    start(OPTIONS, main)
