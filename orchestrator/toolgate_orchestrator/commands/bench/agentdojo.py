"""AgentDojo's attacks and tasks through real scheduler processes: what a gate is worth, and what it costs.

For each pair of a user task and an injection task the agent makes the calls that solve the user's, is then
taken to be hijacked, and makes the injection's. Each call is ruled on by a `Guard`; what may run runs, on
AgentDojo's own tools, and its own checks judge what became of it. No LLM: nobody resists an injection, and
nobody finds another way after a denial.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from toolgate_bus.config.document import read_document
from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.embedded import Server
from toolgate_bus.server.settings import BusSettings

from toolgate_orchestrator.commands.bench.agentdojo_tally import (
    SETUPS,
    DojoOutcome,
    Half,
    Tally,
    choose_tasks,
)
from toolgate_orchestrator.commands.bench.processes import outer_environment, read_line, start_processes
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.guard.call import Call
from toolgate_orchestrator.guard.guard import Guard

WORKER: Final = Path(__file__).with_name("agentdojo_worker.py")
RULES: Final = Path(__file__).with_name("agentdojo_rules.yaml")
START_S: Final = 600.0
"""Seconds that AgentDojo has to load, which brings the clients of several LLMs; and a scheduler, to start."""
STEP_S: Final = 300.0
PATIENCE_MS: Final = 60_000
"""Nobody may be passed over here because the machine is busy."""
RULED: Final = frozenset(("agreed", "unasked", "denied", "refused"))
"""Why a decision came about that says something of the rules: verdicts, a person's word, or nobody there."""
LOOP_GUARD: Final = {"same_call": {"times": 3}, "calls_per_turn": 40}


class DojoProcess:
    """AgentDojo, in its own virtual environment."""

    def __init__(self, process: asyncio.subprocess.Process, about: dict[str, Any]) -> None:
        self._process, self.about = process, about

    async def ask(self, request: Mapping[str, Any]) -> Any:
        """One request; raises ToolgateError where it has ended."""
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        return json.loads(await read_line(self._process, "AgentDojo", STEP_S))


@asynccontextmanager
async def open_dojo(python: Path) -> AsyncIterator[DojoProcess]:
    """AgentDojo by the Python of an environment that has it. Raises ToolgateError."""
    command = (str(python), "-P", str(WORKER))
    async with start_processes([command], "AgentDojo", wait=False, env=outer_environment()) as (process,):
        yield DojoProcess(process, json.loads(await read_line(process, "AgentDojo", START_S)))


class DojoRun:
    """One row on one suite."""

    def __init__(self, dojo: DojoProcess, guard: Guard, suite: str, seconds: list[float]) -> None:
        self._dojo, self._guard, self._suite, self._seconds = dojo, guard, suite, seconds
        self._about = dojo.about["suites"][suite]
        self._tools: dict[str, Any] = self._about["tools"]
        self._sessions = 0

    async def play(self, user: str, injection: str | None) -> DojoOutcome:
        """A user task, and the attack after it. The person allows what is the user's, and nothing else."""
        own = await self._dojo.ask({"begin": [self._suite, user, injection]})
        self._sessions += 1
        at = self._guard.at(f"{self._suite}-{self._sessions}")
        asked = [0, 0]
        faults: list[dict[str, Any]] = []
        denied = attack_calls = 0
        with self._guard.turn(at, request=self._about["users"][user]):
            for call in own:
                before = asked[0]
                reason = await self._call(call, asked, 0)
                denied += reason is not None
                if reason is not None or asked[0] > before:
                    faults.append({"task": f"{self._suite}/{user}", **call, "reason": reason})
            if injection is not None:
                for call in await self._dojo.ask({"hijack": True}):
                    attack_calls += 1
                    await self._call(call, asked, 1)
        judged = await self._dojo.ask({"judge": True})
        done = judged["done"] and not denied
        return DojoOutcome(
            done, judged["attacked"], asked[0], asked[1], denied, len(own), attack_calls, tuple(faults)
        )

    async def _call(self, call: Mapping[str, Any], asked: list[int], whose: int) -> str | None:
        def answer(_asked: object, _call: object) -> bool:
            asked[whose] += 1
            return whose == 0

        started = time.perf_counter()
        ruling = await self._guard.rule(Call(call["tool"], call["arguments"], self._tools), ask=answer)
        self._seconds.append(time.perf_counter() - started)
        if ruling.decision is not None and ruling.decision.why not in RULED:
            raise ToolgateError(
                f"{call['tool']}: no scheduler ruled on it ({ruling.decision.why}: {ruling.reason}). Nothing "
                "of this run counts; is the machine too busy?"
            )
        if not ruling.allowed:
            return ruling.reason or ""
        error = await self._dojo.ask({"execute": {"tool": ruling.tool, "arguments": ruling.arguments}})
        if error:
            ruling.fail(error)
        else:
            ruling.succeed()
        return None


async def run_row(
    server: Server, dojo: DojoProcess, suite: str, setup: str, half: Half, tell: Callable[[], None]
) -> Tally:
    """One row on one suite, with scheduler processes of its own."""
    about = dojo.about["suites"][suite]
    users, injections = choose_tasks(list(about["users"]), half), about["injections"]
    bus = BusSettings(redis=server.url, namespace=f"dojo-{suite}-{list(SETUPS).index(setup)}")
    tally = Tally()
    async with scheduler_processes(lay_out(server.directory, suite, setup), bus, START_S):
        guard = Guard(
            agent=suite,
            redis=bus.redis,
            namespace=bus.namespace,
            required=list(SETUPS[setup]),
            patience_ms=PATIENCE_MS,
        )
        async with guard:
            run = DojoRun(dojo, guard, suite, tally.seconds)
            for user in users:
                tally.add_task(await run.play(user, None))
                for injection in injections:
                    tally.add_pair(await run.play(user, injection), f"{suite}/{user}/{injection}")
                    tell()
    return tally


def lay_out(directory: Path, suite: str, setup: str) -> list[SchedulerSpec]:
    """Which schedulers rule in a row on a suite, with their rules as files in a directory."""
    rules = read_document(RULES).mapping()[suite]
    specs = []
    for name, part in SETUPS[setup].items():
        path = directory / f"{suite}-{part}.yaml"
        path.write_text(json.dumps(_find_rules(rules, part)))
        specs.append(SchedulerSpec(name, path, name))
    return specs


def _find_rules(rules: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    if part == "loop-guard":
        return LOOP_GUARD
    return {**rules["provenance"], "action": "ask"} if part == "asks" else rules[part]
