"""Call of a tool through `toolgate mcp`, beside the same call without it, in one run.

    python tests/benchmarks/mcp_proxy.py                     stdio and HTTP, both eras, 0, 1, 3 schedulers
    python tests/benchmarks/mcp_proxy.py --schedulers 3 --over http --era modern --decisions 200 --json

A client of the official SDK calls a tool of a server of the official SDK, one call after the other: directly
and through the proxy, in turns. Every result is checked; every 16th call is one that the schedulers deny. The
schedulers are `policy` with rules, required, a process each. The CPU is that of the proxy's process.
"""

import argparse
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from harness import ROOT, OneByOne, Report, clean_nothing, options, start
from toolgate_bus.server.embedded import Server, private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_orchestrator.commands.bench.measure import Turns, WrongVerdictError, figures_of
from toolgate_orchestrator.commands.bench.mix import name_schedulers
from toolgate_orchestrator.commands.bench.toolgate_side import PATIENCE_MS
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes

sys.path.insert(0, str(ROOT / "tests" / "acceptance" / "mcp"))

from mcp_world import PROXY, SERVER, client, parameters, proxy_over_http, server_over_http

DENY_EVERY = 16
RULES = """
default: allow
rules:
  - {tools: write, when: {path: {matches: '[.]env$'}}, action: deny, reason: secret}
  - {tools: 'send_*', when: {amount: {gt: 1000}}, action: deny, reason: too much}
"""
OPTIONS = options(__doc__, decisions=50, blocks=10)
OPTIONS.add_argument("--schedulers", type=int, nargs="+", default=[0, 1, 3], help="number (default: 0 1 3)")
OPTIONS.add_argument("--over", nargs="+", choices=("stdio", "http"), default=["stdio", "http"])
OPTIONS.add_argument("--era", nargs="+", choices=("legacy", "modern"), default=["legacy", "modern"])


def children() -> set[int]:
    """Return the processes that this one has started."""
    return {
        int(word)
        for task in Path("/proc/self/task").iterdir()
        for word in (task / "children").read_text().split()
    }


def side_of(name: str, connected: Any, pids: list[int], *, denies: bool) -> OneByOne:
    """Return a side that calls by a connected client, of the server itself or of the proxy."""

    async def call(number: int) -> None:
        if number % DENY_EVERY == 0:
            result = await connected.call_tool("write", {"path": ".env"})
            if result.is_error is not denies:
                raise WrongVerdictError(f"{name} ruled wrongly: {result}")
            return
        result = await connected.call_tool("search", {"query": f"unpaid {number}"})
        if result.is_error or result.content[0].text != f"search {{'query': 'unpaid {number}'}}":
            raise WrongVerdictError(f"{name} answered wrongly: {result}")

    return OneByOne(name, call, {"proxy": pids})


@asynccontextmanager
async def open_sides(
    over: str, era: str, config: str, address: str, folder: Path, *, ruled: bool
) -> AsyncIterator[tuple[OneByOne, OneByOne]]:
    """Open a client of the server, and one of the proxy."""
    async with AsyncExitStack() as stack:
        given = ("--config", config)
        where: Any = address if over == "http" else parameters(SERVER)
        direct = await stack.enter_async_context(client(where, era))
        before = children()
        if over == "http":
            place = folder / f"proxy-{os.urandom(4).hex()}"
            whence, program = stack.enter_context(proxy_over_http(place, *given))
            pid = program.popen.pid
            through = await stack.enter_async_context(client(whence, era))
        else:
            through = await stack.enter_async_context(client(parameters([*PROXY, *given]), era))
            (pid,) = children() - before
        yield side_of("direct", direct, [], denies=False), side_of("proxy", through, [pid], denies=ruled)


async def main(given: argparse.Namespace, report: Report) -> None:
    """Measure all that is asked for."""
    report.show_machine()
    with private_server() as server, server_over_http(server.directory / "server") as address:
        for count in given.schedulers:
            await compare(server, address, count, given, report)


async def compare(
    server: Server, address: str, count: int, given: argparse.Namespace, report: Report
) -> None:
    """Measure every way to connect with this number of schedulers."""
    folder, names = server.directory, name_schedulers(count)
    bus = BusSettings(redis=server.url, namespace=f"bench-mcp-{count}")
    (folder / "rules.yaml").write_text(RULES)
    specs = [SchedulerSpec("policy", folder / "rules.yaml", name) for name in names]
    gate = {"agent": "bench", "redis": server.url, "namespace": bus.namespace, "required": names}
    behind = {"stdio": {"command": SERVER}, "http": {"url": address}}
    async with scheduler_processes(specs, bus):
        for over in given.over:
            for era in given.era:
                config = {
                    "servers": {"tests": behind[over]},
                    "toolgate": {**gate, "patience_ms": PATIENCE_MS},
                    "pin": str(folder / f"{count}-{over}-pins.json"),
                }
                file = folder / "servers.json"
                file.write_text(json.dumps(config))
                async with open_sides(over, era, str(file), address, folder, ruled=count > 0) as sides:
                    turns = Turns(1, given.decisions, given.blocks)
                    blocks = await turns.run(sides, clean_nothing, report.tell)
                figures = figures_of(blocks, "direct")
                added = figures["proxy"]["median_us"] - figures["direct"]["median_us"]
                row = {"over": over, "era": era, "schedulers": count, "added_us": round(added, 1)}
                report.add_sides({**row, "sides": figures})


if __name__ == "__main__":
    start(OPTIONS, main)
