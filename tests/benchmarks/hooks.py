"""Hook of a coding agent over HTTP, beside `/v1/decide` of the sidecar and a gate in process, in one run.

    python tests/benchmarks/hooks.py                 one call right after the other
    python tests/benchmarks/hooks.py --pause 20      20 ms between two: caches are cold, as for an agent

All have one scheduler process, `policy`, required. Every answer is checked; every 16th call is denied. The
CPU is that of the sidecar, and of this process for the gate.
"""

import argparse
import asyncio
import json
import os
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from harness import TOOLGATE, OneByOne, Report, options, start
from serve import HttpConnection, write_request
from toolgate_bus.server.embedded import private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.commands.bench.measure import Turns, WrongVerdictError, figures_of
from toolgate_orchestrator.commands.bench.processes import READY_S, read_line, start_processes
from toolgate_orchestrator.commands.bench.toolgate_side import open_cleaner, open_gate
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes

DENY_EVERY = 16
RULES = "rules: [{tools: Bash, when: {command: {matches: 'rm -rf'}}, action: deny, reason: not here}]\n"
OPTIONS = options(__doc__, decisions=100, blocks=10)
OPTIONS.add_argument("--pause", type=float, default=0.0, help="milliseconds between two calls (default: 0)")


def checked(ask: Callable[[str], Awaitable[bool]]) -> Callable[[int], Awaitable[None]]:
    """Return what asks about the call of a number, and raises WrongVerdictError for a wrong answer."""

    async def call(number: int) -> None:
        denied = number % DENY_EVERY == 0
        if await ask("rm -rf /srv" if denied else f"ls {secrets.token_hex(4)}") is denied:
            raise WrongVerdictError(f"call {number}: {'let through' if denied else 'denied'}")

    return call


async def main(given: argparse.Namespace, report: Report) -> None:
    """Measure all three ways."""
    report.show_machine(pause_ms=given.pause)
    with private_server() as server:
        bus, token = BusSettings(redis=server.url, namespace="bench-hooks"), secrets.token_hex(24)
        rules, secret = server.directory / "rules.yaml", server.directory / "token"
        rules.write_text(RULES)
        secret.touch(0o600)
        secret.write_text(token)
        async with AsyncExitStack() as stack:
            clean = await stack.enter_async_context(open_cleaner(server.url))
            await stack.enter_async_context(scheduler_processes([SchedulerSpec("policy", rules)], bus))
            gate = await stack.enter_async_context(open_gate(bus, ["policy"]))
            words = ("serve", "--http", "127.0.0.1:0", "--token-file", str(secret), "--required", "policy")
            at = ("--redis", server.url, "--namespace", bus.namespace, "--json")
            start_sidecar = start_processes([(*TOOLGATE, *words, *at)], "the sidecar", wait=False)
            (sidecar,) = await stack.enter_async_context(start_sidecar)
            url = json.loads(await read_line(sidecar, "the sidecar", READY_S))["url"]
            port = int(url.rstrip("/").rpartition(":")[2])
            loop = asyncio.get_running_loop()
            _, link = await loop.create_connection(HttpConnection, "127.0.0.1", port)
            headers = f"authorization: Bearer {token}\r\n"

            async def post(path: str, body: dict[str, Any]) -> bytes:
                return await link.ask(write_request(path, body, headers))

            async def ask_gate(command: str) -> bool:
                return (
                    await gate.decide(Call("Bash", {"command": command}, ["Bash"], Caller("gate")))
                ).allowed

            async def ask_decide(command: str) -> bool:
                call = {"tool": "Bash", "tools": ["Bash"], "arguments": {"command": command}}
                said = json.loads(await post("/v1/decide", {**call, "session": "decide"}))
                return bool(said["outcome"] == "continue")

            async def ask_hook(command: str) -> bool:
                event: dict[str, Any] = {"hook_event_name": "PreToolUse", "session_id": "hook", "cwd": "/srv"}
                event |= {"tool_name": "Bash", "tool_use_id": secrets.token_hex(8)}
                event["tool_input"] = {"command": command}
                return b"deny" not in await post("/hooks/claude", event)

            pause_s, own = given.pause / 1000, {"gate": [os.getpid()]}
            theirs = {"gate": [sidecar.pid]}
            sides = (
                OneByOne("gate", checked(ask_gate), own, pause_s),
                OneByOne("/v1/decide", checked(ask_decide), theirs, pause_s),
                OneByOne("/hooks/claude", checked(ask_hook), theirs, pause_s),
            )
            blocks = await Turns(1, given.decisions, given.blocks).run(sides, clean, report.tell)
            report.add_sides({"pause_ms": given.pause, "sides": figures_of(blocks, "gate")})
            link.transport.close()


if __name__ == "__main__":
    start(OPTIONS, main)
