"""What a call of a tool takes through the proxy for MCP, beside the same call without it, in one run.

    python tests/mcp_beside.py                              all: stdio and HTTP, both eras, 0, 1, 3 schedulers
    python tests/mcp_beside.py --schedulers 3 --over http --era modern --calls 2000 --json

A client of the official SDK calls a tool of a server of the official SDK, one call after the other: directly
and through `toolgate mcp`, block by block in turns, so that both see the same machine. Every result is looked
at, and in each block a call that the schedulers deny. The schedulers are `policy` with rules, required, a
process each. What is added is the difference of the medians; the CPU is that of the proxy's process for a
call. With --json, a line of the machine and a line a row. No test: none fails, but for a wrong answer.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from cost_beside import cpu_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "acceptance" / "mcp"))

from mcp_world import PROXY, SERVER, client, parameters, proxy_over_http, server_over_http  # noqa: E402
from toolgate_bus.server.embedded import private_server  # noqa: E402

BLOCKS = 10
WARM_UP = 20
RULES = """
default: allow
rules:
  - {tools: write, when: {path: {matches: '[.]env$'}}, action: deny, reason: secret}
  - {tools: 'send_*', when: {amount: {gt: 1000}}, action: deny, reason: too much}
"""


class Side:
    """A connected client: of the server itself, or of the proxy."""

    def __init__(self, connected: Any, *, denies: bool) -> None:
        self._client, self._denies = connected, denies
        self.seconds: list[float] = []

    async def run_block(self, calls: int, *, counts: bool = True) -> None:
        """So many calls, each timed and looked at; then one that is denied where anybody rules."""
        for number in range(calls):
            began = time.perf_counter()
            result = await self._client.call_tool("search", {"query": f"unpaid {number}"})
            took = time.perf_counter() - began
            if result.is_error or result.content[0].text != f"search {{'query': 'unpaid {number}'}}":
                raise SystemExit(f"answered wrongly: {result}")
            if counts:
                self.seconds.append(took)
        result = await self._client.call_tool("write", {"path": ".env"})
        if result.is_error is not self._denies:
            raise SystemExit(f"ruled wrongly: {result}")

    def figures(self) -> dict[str, float]:
        """Latencies, in microseconds."""
        steps = statistics.quantiles(self.seconds, n=100)
        return {"p50_us": round(steps[49] * 1e6, 1), "p99_us": round(steps[98] * 1e6, 1)}


@contextlib.asynccontextmanager
async def open_schedulers(url: str, namespace: str, names: list[str], rules: Path) -> AsyncIterator[None]:
    """`policy` under each of these names, a process each."""
    words = ["scheduler", "run", "policy", "--config", rules, "--redis", url, "--namespace", namespace]
    started = [
        await asyncio.create_subprocess_exec(
            *map(str, (sys.executable, "-m", "toolgate_bus", *words, "--name", name, "--json")),
            stdout=asyncio.subprocess.PIPE,
        )
        for name in names
    ]
    try:
        for process in started:
            if process.stdout is None or not await process.stdout.readline():
                raise SystemExit("a scheduler did not start")
        yield
    finally:
        for process in started:
            if process.returncode is None:
                process.terminate()
        for process in started:
            await process.wait()


def children() -> set[int]:
    """The processes that this one has started."""
    return {
        int(word)
        for task in Path("/proc/self/task").iterdir()
        for word in (task / "children").read_text().split()
    }


@contextlib.asynccontextmanager
async def open_sides(
    over: str, era: str, options: list[str], address: str, folder: Path, *, ruled: bool
) -> AsyncIterator[tuple[Side, Side, int]]:
    """The client of the server, that of the proxy, and the proxy's process id."""
    async with contextlib.AsyncExitStack() as stack:
        if over == "http":
            url, program = stack.enter_context(
                proxy_over_http(folder / f"proxy-{os.urandom(4).hex()}", *options)
            )
            where, whence, pid = address, url, program.popen.pid
        else:
            where, whence, pid = parameters(SERVER), parameters([*PROXY, *options]), 0
        direct = await stack.enter_async_context(client(where, era))
        before = children()
        through = await stack.enter_async_context(client(whence, era))
        if not pid:
            (pid,) = children() - before
        yield Side(direct, denies=False), Side(through, denies=ruled), pid


async def compare(
    over: str, era: str, options: list[str], address: str, folder: Path, count: int, calls: int
) -> dict[str, Any]:
    """The figures of one way to connect."""
    async with open_sides(over, era, options, address, folder, ruled=count > 0) as (direct, through, pid):
        for side in (direct, through):
            await side.run_block(WARM_UP, counts=False)
        spent = 0.0
        for block in range(BLOCKS):
            for side in (direct, through) if block % 2 else (through, direct):
                before = cpu_of(pid)
                await side.run_block(max(1, calls // BLOCKS))
                spent += cpu_of(pid) - before if side is through else 0
        sides = {"direct": direct.figures(), "through": through.figures()}
        made = len(through.seconds)
        return {
            "over": over,
            "era": era,
            "schedulers": count,
            "calls": made,
            "sides": sides,
            "added_p50_us": round(sides["through"]["p50_us"] - sides["direct"]["p50_us"], 1),
            "proxy_cpu_us": round(spent / (made + BLOCKS) * 1e6, 1),
        }


async def run(asked: argparse.Namespace) -> None:
    """Measure all that is asked for."""
    machine = {
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
    }
    if asked.json:
        print(json.dumps(machine), flush=True)
    with private_server() as server, tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "rules.yaml").write_text(RULES)
        with server_over_http(folder / "server") as address:
            for count in asked.schedulers:
                namespace, names = f"beside-{count}", [f"policy-{number}" for number in range(count)]
                gate = {"agent": "bench", "redis": server.url, "namespace": namespace, "required": names}
                behind = {"stdio": {"command": SERVER}, "http": {"url": address}}
                async with open_schedulers(server.url, namespace, names, folder / "rules.yaml"):
                    for over in asked.over:
                        for era in asked.era:
                            say(f"{over}, {era}, {count} scheduler(s): {asked.calls} calls each way …")
                            config = {
                                "servers": {"tests": behind[over]},
                                "toolgate": {**gate, "patience_ms": 20_000},
                                "pin": str(folder / f"{namespace}-{over}-pins.json"),
                            }
                            (folder / "servers.json").write_text(json.dumps(config))
                            options = ["--config", str(folder / "servers.json")]
                            row = await compare(over, era, options, address, folder, count, asked.calls)
                            show(row, as_json=asked.json)


def say(words: str) -> None:
    """Progress, on stderr."""
    print(words, file=sys.stderr, flush=True)


def show(row: dict[str, Any], *, as_json: bool) -> None:
    """One row."""
    if as_json:
        print(json.dumps(row), flush=True)
        return
    direct, through = row["sides"]["direct"], row["sides"]["through"]
    print(
        f"{row['over']:>5} {row['era']:>6} {row['schedulers']} scheduler(s):"
        f" p50 {direct['p50_us'] / 1000:.2f} ms direct, {through['p50_us'] / 1000:.2f} ms through,"
        f" {row['added_p50_us'] / 1000:.2f} ms added (p99 {direct['p99_us'] / 1000:.2f},"
        f" {through['p99_us'] / 1000:.2f}); CPU of the proxy {row['proxy_cpu_us'] / 1000:.2f} ms a call",
        flush=True,
    )


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description="A call of a tool through `toolgate mcp`, beside without.")
    parser.add_argument("--calls", type=int, default=500, help="calls of each way, timed (500)")
    parser.add_argument("--schedulers", type=int, nargs="+", default=[0, 1, 3], help="how many (0 1 3)")
    parser.add_argument("--over", nargs="+", choices=("stdio", "http"), default=["stdio", "http"])
    parser.add_argument("--era", nargs="+", choices=("legacy", "modern"), default=["legacy", "modern"])
    parser.add_argument("--json", action="store_true", help="a line of the machine, and a line a row")
    asked = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(asked))


if __name__ == "__main__":
    main()
