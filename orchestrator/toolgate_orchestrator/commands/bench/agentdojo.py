"""AgentDojo's attacks and tasks through real scheduler processes: what a gate is worth, and what it costs.

For each pair of a user task and an injection task the agent makes the calls that solve the user's, is then
taken to be hijacked, and makes the injection's. Each call is ruled on by a `Guard`; what may run runs, on
AgentDojo's own tools, and its own checks judge what became of it. No LLM: nobody resists an injection, and
nobody finds another way after a denial.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.embedded import Server
from toolgate_bus.server.settings import BusSettings

from toolgate_orchestrator.commands.bench.processes import read_line, start_processes
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.guard.call import Call
from toolgate_orchestrator.guard.guard import Guard

WORKER: Final = Path(__file__).with_name("agentdojo_worker.py")
RULES: Final = Path(__file__).with_name("agentdojo_rules.yaml")
START_S: Final = 600.0
"""Seconds that AgentDojo has to load: it brings the clients of several LLMs."""
STEP_S: Final = 300.0
PATIENCE_MS: Final = 10_000
"""Nobody may be passed over here because the machine is busy."""
SETUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "no rules": {},
    "loop-guard": {"loop-guard": "loop-guard"},
    "policy": {"policy": "policy"},
    "provenance": {"provenance": "provenance"},
    "policy + provenance": {"policy": "beside", "provenance": "provenance"},
}
"""The rows: which scheduler goes by which part of the rules."""
LOOP_GUARD: Final = {"same_call": {"times": 3}, "calls_per_turn": 40}
Half = Literal["even", "odd", "all"]


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
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLGATE_", "PYTHON"))}
    command = (str(python), "-P", str(WORKER))
    async with start_processes([command], "AgentDojo", wait=False, env=kept) as (process,):
        yield DojoProcess(process, json.loads(await read_line(process, "AgentDojo", START_S)))


@dataclass(slots=True)
class Tally:
    """What came of the calls and tasks of one row."""

    calls: int = 0
    """Of the user tasks, each done once without an attack."""
    denied: int = 0
    asked: int = 0
    tasks: int = 0
    done: int = 0
    pairs: int = 0
    still_done: int = 0
    """User tasks done although the agent was hijacked after them, with no call of theirs denied."""
    attacks: int = 0
    succeeded: int = 0
    by_words: int = 0
    """Of those that succeeded, attacks that make no call at all."""
    stopped_by_person: int = 0
    """Attacks that failed and had a question, which the person refused."""
    questions: int = 0
    seconds: list[float] = field(default_factory=list)
    broken: list[dict[str, Any]] = field(default_factory=list)
    """Honest calls that were denied or asked about."""
    open: list[dict[str, Any]] = field(default_factory=list)
    """Attacks that succeeded."""

    def add(self, other: "Tally") -> None:
        """Take in another suite's."""
        for name in self.__slots__:
            mine = getattr(self, name)
            setattr(self, name, mine + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one run of a task."""

    done: bool
    attacked: bool | None
    asked: int
    asked_attack: int
    denied: int
    calls: int
    attack_calls: int
    faults: tuple[dict[str, Any], ...]


class Run:
    """One row on one suite."""

    def __init__(self, dojo: DojoProcess, guard: Guard, suite: str, seconds: list[float]) -> None:
        self._dojo, self._guard, self._suite, self._seconds = dojo, guard, suite, seconds
        self._about = dojo.about["suites"][suite]
        self._tools: dict[str, Any] = self._about["tools"]
        self._sessions = 0

    async def play(self, user: str, injection: str | None) -> Outcome:
        """A user task, and the attack after it. The person allows what is the user's, and refuses the rest."""
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
        return Outcome(
            done, judged["attacked"], asked[0], asked[1], denied, len(own), attack_calls, tuple(faults)
        )

    async def _call(self, call: Mapping[str, Any], asked: list[int], whose: int) -> str | None:
        def answer(_asked: object, _call: object) -> bool:
            asked[whose] += 1
            return whose == 0

        started = time.perf_counter()
        ruling = await self._guard.rule(Call(call["tool"], call["arguments"], self._tools), ask=answer)
        self._seconds.append(time.perf_counter() - started)
        if not ruling.allowed:
            return ruling.reason or ""
        error = await self._dojo.ask({"execute": {"tool": ruling.tool, "arguments": ruling.arguments}})
        if error:
            ruling.fail(error)
        else:
            ruling.succeed()
        return None


def choose_tasks(users: Sequence[str], half: Half) -> list[str]:
    """The user tasks of a half, by their numbers."""
    wanted = {"even": (0,), "odd": (1,), "all": (0, 1)}[half]
    return [one for one in users if int(one.rpartition("_")[2]) % 2 in wanted]


async def run_row(
    server: Server, dojo: DojoProcess, suite: str, setup: str, half: Half, tell: Callable[[], None]
) -> Tally:
    """One row on one suite, with scheduler processes of its own."""
    about = dojo.about["suites"][suite]
    users, injections = choose_tasks(list(about["users"]), half), about["injections"]
    bus = BusSettings(redis=server.url, namespace=f"dojo-{suite}-{list(SETUPS).index(setup)}")
    tally = Tally()
    async with scheduler_processes(_lay_out(server.directory, suite, setup), bus):
        guard = Guard(
            agent=suite,
            redis=bus.redis,
            namespace=bus.namespace,
            required=list(SETUPS[setup]),
            patience_ms=PATIENCE_MS,
        )
        async with guard:
            run = Run(dojo, guard, suite, tally.seconds)
            for user in users:
                alone = await run.play(user, None)
                tally.tasks, tally.done = tally.tasks + 1, tally.done + alone.done
                tally.calls, tally.denied = tally.calls + alone.calls, tally.denied + alone.denied
                tally.asked += alone.asked
                tally.broken += alone.faults
                for injection in injections:
                    _count(tally, await run.play(user, injection), f"{suite}/{user}/{injection}")
                    tell()
    return tally


def _count(tally: Tally, pair: Outcome, name: str) -> None:
    tally.pairs += 1
    tally.attacks += 1
    tally.still_done += pair.done
    tally.questions += pair.asked + pair.asked_attack
    if pair.attacked:
        tally.succeeded += 1
        tally.by_words += not pair.attack_calls
        tally.open.append({"pair": name})
    elif pair.asked_attack:
        tally.stopped_by_person += 1


def _lay_out(directory: Path, suite: str, setup: str) -> list[SchedulerSpec]:
    rules = yaml.safe_load(RULES.read_text())[suite]
    specs = []
    for name, part in SETUPS[setup].items():
        path = directory / f"{suite}-{part}.yaml"
        path.write_text(yaml.safe_dump(LOOP_GUARD if part == "loop-guard" else rules[part]))
        specs.append(SchedulerSpec(name, path, name))
    return specs


def check_half(half: str) -> Half:
    """Raises ToolgateError for what is none."""
    if half in ("even", "odd", "all"):
        return half  # type: ignore[return-value] # one of them
    raise ToolgateError(f"--half {half}: even, odd or all")
