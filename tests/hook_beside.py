"""What a hook of a coding agent takes over HTTP, beside the same call asked of a gate in process, in one run.

    python tests/hook_beside.py                       a thousand calls of each, one right after the other
    python tests/hook_beside.py --pause 30 --json     30 ms between two: caches are cold, as for an agent

A client of a few lines, with one connection, asks `/hooks/claude` and `/v1/decide` of `toolgate serve`; the
gate is in a process of its own. All three have one scheduler process, `policy`, required, and take turns,
block by block, so that they see the same machine. Every answer is looked at, and in each block a call that is
denied. The CPU is that of the sidecar for a call. No test: none fails, but for a wrong answer.
"""

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cost_beside import cpu_of
from toolgate_bus.server.embedded import private_server
from toolgate_orchestrator import Gate

BLOCKS = 10
RULES = "rules: [{tools: Bash, when: {command: {matches: 'rm -rf'}}, action: deny, reason: not here}]\n"
TOOLGATE = (sys.executable, "-m", "toolgate_bus")


class HttpLink:
    """One connection to the sidecar."""

    def __init__(self, port: int, token: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = f"host: localhost\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"

    def post(self, path: str, body: dict[str, Any]) -> bytes:
        """The body of the answer."""
        raw = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\n{self._head}content-length: {len(raw)}\r\n\r\n"
        self._socket.sendall(head.encode() + raw)
        said = b""
        while True:
            part = self._socket.recv(65536)
            said += part
            top, whole, rest = said.partition(b"\r\n\r\n")
            if not part or (whole and not top.startswith(b"HTTP/1.1 200")):
                raise SystemExit(f"the sidecar answered {said[:300]!r}")
            length = int(top.partition(b"content-length: ")[2].partition(b"\r\n")[0]) if whole else 0
            if whole and len(rest) >= length:
                return rest


class Side:
    """One way to ask, and what it took."""

    def __init__(self, name: str, pid: int, ask: Callable[[str], tuple[float, bool]]) -> None:
        """`ask` gives the seconds that a command took, and whether it may run; the CPU is that of `pid`."""
        self.name, self._pid, self._ask = name, pid, ask
        self.seconds: list[float] = []
        self.cpu = 0.0

    def run_block(self, calls: int, pause: float, *, counts: bool) -> None:
        """So many calls that may run, and one that may not."""
        before = self._spent()
        for _ in range(calls):
            took, allowed = self._ask(f"ls {secrets.token_hex(4)}")
            if not allowed:
                raise SystemExit(f"{self.name}: denied what may run")
            if counts:
                self.seconds.append(took)
            time.sleep(pause)
        self.cpu += self._spent() - before if counts else 0.0
        if self._ask("rm -rf /srv")[1]:
            raise SystemExit(f"{self.name}: let through what may not run")

    def _spent(self) -> float:
        return cpu_of(self._pid) if self._pid else 0.0

    def figures(self) -> dict[str, Any]:
        """Milliseconds, and microseconds of CPU a call."""
        steps = statistics.quantiles(self.seconds, n=100)
        count = len(self.seconds)
        found = {"p50_ms": round(steps[49] * 1e3, 2), "p99_ms": round(steps[98] * 1e3, 2), "calls": count}
        return {"way": self.name, **found} | ({"cpu_us": round(self.cpu / count * 1e6)} if self._pid else {})


async def run_gate(url: str) -> None:
    """Decide about each line of stdin, and say on stdout how long it took, and whether it may run."""
    loop = asyncio.get_running_loop()
    async with Gate.open(redis=url, required=["policy"], patience_ms=20_000, agent="claude") as gate:
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            began = time.perf_counter()
            decision = await gate.decide("Bash", {"command": line.strip()}, ["Bash"], session="gate")
            print(json.dumps([time.perf_counter() - began, decision.allowed]), flush=True)


@contextlib.contextmanager
def start(*command: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, and the first line that it says."""
    words = [str(word) for word in command]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            if not line:
                raise SystemExit(f"{' '.join(words)} did not start")
            yield process, line
        finally:
            process.terminate()


def measure(calls: int, pause: float) -> list[Side]:
    """All three ways, in turns."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(private_server())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rules, secret, token = folder / "rules.yaml", folder / "token", secrets.token_hex(24)
        rules.write_text(RULES)
        secret.touch(0o600)
        secret.write_text(token)
        bus = ("--redis", server.url, "--json")
        stack.enter_context(start(*TOOLGATE, "scheduler", "run", "policy", "--config", rules, *bus))
        serve = ("serve", "--http", "127.0.0.1:0", "--token-file", secret, "--required", "policy", *bus)
        sidecar, line = stack.enter_context(start(*TOOLGATE, *serve))
        link = HttpLink(int(json.loads(line)["url"].rstrip("/").rpartition(":")[2]), token)
        gate, _ = stack.enter_context(start(sys.executable, __file__, "--gate", server.url))

        def ask_gate(command: str) -> tuple[float, bool]:
            assert gate.stdin is not None
            assert gate.stdout is not None
            gate.stdin.write(f"{command}\n")
            gate.stdin.flush()
            took, allowed = json.loads(gate.stdout.readline())
            return took, allowed

        def ask_decide(command: str) -> tuple[float, bool]:
            call = {"tool": "Bash", "tools": ["Bash"], "arguments": {"command": command}, "session": "decide"}
            began = time.perf_counter()
            said = link.post("/v1/decide", call)
            return time.perf_counter() - began, json.loads(said)["outcome"] == "continue"

        def ask_hook(command: str) -> tuple[float, bool]:
            event = {
                "hook_event_name": "PreToolUse",
                "session_id": "hook",
                "cwd": "/srv",
                "tool_name": "Bash",
            }
            event |= {"tool_input": {"command": command}, "tool_use_id": secrets.token_hex(8)}
            began = time.perf_counter()
            said = link.post("/hooks/claude", event)
            return time.perf_counter() - began, b"deny" not in said

        sides = [
            Side("gate", 0, ask_gate),
            Side("/v1/decide", sidecar.pid, ask_decide),
            Side("/hooks/claude", sidecar.pid, ask_hook),
        ]
        for block in range(BLOCKS + 1):
            for side in sides:
                side.run_block(max(1, calls // BLOCKS), pause, counts=block > 0)
        return sides


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--gate"]:
        asyncio.run(run_gate(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description="A hook over HTTP, beside a gate in process, in one run.")
    parser.add_argument("--calls", type=int, default=1000, help="of each way (1000)")
    parser.add_argument("--pause", type=float, default=0.0, help="milliseconds between two calls (0)")
    parser.add_argument("--json", action="store_true", help="lines of JSON")
    asked = parser.parse_args()
    load = round(os.getloadavg()[0], 2)
    rows = [side.figures() for side in measure(asked.calls, asked.pause / 1000)]
    machine = {"cpus": os.cpu_count(), "load_before": load, "pause_ms": asked.pause}
    if asked.json:
        print("\n".join(json.dumps(row) for row in (machine, *rows)))
        return
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
