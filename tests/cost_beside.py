"""What a decision costs now, beside what it cost in another version, in one run.

    python tests/cost_beside.py REVISION [--blocks 20] [--decisions 4000]     `make cost AGAINST=REVISION`
    python tests/cost_beside.py REVISION --with signed --with slow            not plain decisions, but these

Both versions run at once on one server, each with a gate and scheduler processes of its own; blocks of
decisions alternate, so that both see the same machine. What is compared is the CPU of all processes that
a decision takes: gate, schedulers, and the server's while the block ran. The other version is checked out
into a temporary directory and comes before the installed one by PYTHONPATH; the libraries are the same.
The mix: calls that a policy with conditions looks at, every 16th denied. `--with` names what is on: keys on
both sides, redaction by field and pattern, two shadows of three, a slow one among eight. No test: none fails.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from other_version import command_of, path_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("bus", "orchestrator", "schedulers")
LOADS = ((1, 1), (1, 64), (3, 1), (3, 64))
"""Schedulers, decisions in flight."""
BESIDE = {
    "plain": LOADS,
    "signed": ((1, 64), (3, 64)),
    "redacted": ((1, 64), (3, 64)),
    "shadows": ((3, 64),),
    "slow": ((8, 64),),
}
"""What may be on, and the loads that are measured with it."""
REDACT = {"fields": ["password", "api_key"], "patterns": ["sk-[a-z0-9]{20}", "[0-9]{16}"]}
SLOW_S = 0.02
"""What the first of the schedulers takes over each call, with `slow`."""
SLOW = f"""
import asyncio
from toolgate_schedulers import Continue, scheduler

@scheduler
async def slow(call):
    await asyncio.sleep({SLOW_S})
    return Continue()
"""
RULES = """
rules:
  - {tools: 'bash', when: {command: {matches: 'rm -rf'}}, action: deny, reason: 'no'}
  - {tools: 'send_*', when: {amount: {gt: 1000}}, action: deny, reason: too much}
  - {tools: 'write_file', when: {path: {matches: '[.]env$'}}, action: deny, reason: secret}
"""


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and its threads so far; to the nanosecond, which `stat` does not tell."""
    return (
        sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    )


# ------------------------------------------------------------------ a process of its own, of either version


async def run_gate(url: str, namespace: str, config: str) -> None:
    """Decide as told on stdin (`decisions lanes`), and say on stdout how long it took.

    `config` is JSON: further fields of the gate.
    """
    from toolgate_orchestrator import Gate

    tools = ["bash", "send_mail", "write_file", "read_file"]
    text = "x" * 300
    loop = asyncio.get_running_loop()
    async with Gate.open(redis=url, namespace=namespace, patience_ms=10_000, **json.loads(config)) as gate:
        number = 0

        async def decide(count: int) -> None:
            nonlocal number
            for _ in range(count):
                number += 1
                mine = number
                command = "rm -rf /srv" if mine % 16 == 0 else f"ls {mine} {text}"
                tool = "bash" if mine % 16 == 0 else tools[mine % 4]
                call = {"command": command, "path": f"notes/{mine}.txt", "amount": 5}
                decision = await gate.decide(
                    tool, call, tools, session=f"s{mine % 64}", tool_call_id=str(mine)
                )
                denied = not decision.allowed
                if denied != (mine % 16 == 0) or decision.silent:
                    raise SystemExit(f"decided wrongly: {decision}")

        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            count, lanes = map(int, line.split())
            began = time.perf_counter()
            await asyncio.gather(*(decide(count // lanes) for _ in range(lanes)))
            took = time.perf_counter() - began
            await asyncio.sleep(0.05)  # facts go out
            print(json.dumps({"seconds": took, "decisions": count // lanes * lanes}), flush=True)


# ------------------------------------------------------------------ the comparison


@dataclass
class Side:
    """One version: its gate and its schedulers."""

    name: str
    gate: asyncio.subprocess.Process
    pids: list[int]

    async def run_block(self, decisions: int, lanes: int, server: int) -> tuple[float, float]:
        """CPU and wall microseconds of a decision in one block."""
        assert self.gate.stdin is not None
        assert self.gate.stdout is not None
        pids = [*self.pids, self.gate.pid, server]
        before = sum(map(cpu_of, pids))
        self.gate.stdin.write(f"{decisions} {lanes}\n".encode())
        told = await self.gate.stdout.readline()
        if not told:
            raise SystemExit(f"the gate of {self.name} ended")
        found = json.loads(told)
        spent = sum(map(cpu_of, pids)) - before
        return spent / found["decisions"] * 1e6, found["seconds"] / found["decisions"] * 1e6


@contextlib.asynccontextmanager
async def open_side(
    name: str, tree: Path, url: str, count: int, folder: Path, beside: str
) -> AsyncIterator[Side]:
    """A version with so many schedulers, from its sources."""
    namespace = f"{name}-{count}-{beside}"
    path = os.pathsep.join((path_of(tree, folder / f"{namespace}-installed"), str(folder)))
    names = [f"policy-{number}" for number in range(count)]
    config: dict[str, object] = {}
    keys: tuple[object, ...] = ()
    if beside == "signed":
        (folder / "keys.yaml").write_text("".join(f"{one}: {'5e' * 32}\n" for one in names))
        (folder / "keys.yaml").chmod(0o600)
        keys, config = ("--keys", folder / "keys.yaml"), {"keys": str(folder / "keys.yaml")}
    elif beside == "redacted":
        config = {"redact": REDACT}
    elif beside == "shadows":
        config = {"shadow": names[1:]}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TOOLGATE_")}
    environment = kept | {
        "PYTHONPATH": path,
        "TOOLGATE_REDIS_URL": url,
        "TOOLGATE_NAMESPACE": namespace,
    }
    started: list[asyncio.subprocess.Process] = []

    async def start(*command: object) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        if not await process.stdout.readline():
            raise SystemExit(f"a process of {name} did not start")
        return process

    try:
        run = (*command_of(tree), "scheduler", "run", "policy", "--config", folder / "rules.yaml", "--json")
        slow = (*command_of(tree), "scheduler", "run", "slow_one:slow", "--json")
        schedulers = [
            await start(*(slow if beside == "slow" and one == names[0] else run), *keys, "--name", one)
            for one in names
        ]
        gate = await start(sys.executable, __file__, "--gate", url, namespace, json.dumps(config))
        yield Side(name, gate, [one.pid for one in schedulers])
    finally:
        for process in started:
            if process.returncode is None:
                process.terminate()
        for process in started:
            await process.wait()


async def compare(other: Path, blocks: int, decisions: int, beside: str) -> None:
    """Measure every load with this on both versions, and print a line each."""
    from toolgate_bus.server.embedded import private_server

    with private_server() as server, tempfile.TemporaryDirectory() as directory:
        folder, loads = Path(directory), BESIDE[beside]
        (folder / "rules.yaml").write_text(RULES)
        (folder / "slow_one.py").write_text(SLOW)
        for count in sorted({count for count, _ in loads}):
            async with (
                open_side("then", other, server.url, count, folder, beside) as then,
                open_side("now", ROOT, server.url, count, folder, beside) as now,
            ):
                for lanes in [lanes for schedulers, lanes in loads if schedulers == count]:
                    many = decisions if lanes > 1 else decisions // 4
                    for side in (then, now):
                        await side.run_block(many, lanes, server.pid)
                    figures: dict[str, list[tuple[float, float]]] = {"then": [], "now": []}
                    for block in range(blocks):
                        for side in (then, now) if block % 2 else (now, then):
                            figures[side.name].append(await side.run_block(many, lanes, server.pid))
                    ratios = [n[0] / t[0] for n, t in zip(figures["now"], figures["then"], strict=True)]
                    walls = [n[1] / t[1] for n, t in zip(figures["now"], figures["then"], strict=True)]
                    cpu = {name: statistics.median(one[0] for one in rows) for name, rows in figures.items()}
                    print(
                        f"{beside}, {count} scheduler(s), {lanes:>2} in flight:"
                        f" CPU then {cpu['then']:.0f} µs, now {cpu['now']:.0f} µs,"
                        f" ratio {statistics.median(ratios):.3f} of {blocks} pairs"
                        f" ({min(ratios):.2f} to {max(ratios):.2f}); time {statistics.median(walls):.3f}",
                        flush=True,
                    )


def main() -> None:
    """Read the arguments and compare."""
    if sys.argv[1:2] == ["--gate"]:
        asyncio.run(run_gate(*sys.argv[2:5]))
        return
    parser = argparse.ArgumentParser(description="CPU of a decision, beside another version's, in one run.")
    parser.add_argument("revision", help="what to compare with: any name that git knows")
    parser.add_argument("--blocks", type=int, default=20, help="pairs of blocks for each load (20)")
    parser.add_argument("--decisions", type=int, default=4000, help="decisions of a block (4000)")
    parser.add_argument("--with", dest="beside", action="append", choices=BESIDE, help="what is on (plain)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tg-cost-") as directory:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", asked.revision, "pyproject.toml", *PACKAGES],
            capture_output=True,
            check=False,
        )
        if archive.returncode:
            raise SystemExit(f"git knows no {asked.revision}: {archive.stderr.decode().strip()}")
        subprocess.run(["tar", "-x", "-C", directory], input=archive.stdout, check=True)
        for beside in asked.beside or ["plain"]:
            asyncio.run(compare(Path(directory), asked.blocks, asked.decisions, beside))


if __name__ == "__main__":
    main()
