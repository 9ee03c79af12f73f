"""AgentDojo's attacks and tasks through real schedulers: attacks that are stopped, tasks that are broken.

    python tests/benchmarks/agentdojo_attacks.py --install     once: AgentDojo in an environment of its own
    python tests/benchmarks/agentdojo_attacks.py               the table of docs/agentdojo.md, some minutes
    python tests/benchmarks/agentdojo_attacks.py --half odd --suite slack --row provenance --json

no rules             nobody is asked
loop-guard           the same call again and again ends
policy               rules on tools and arguments
provenance           what leaves goes where the user's request says; otherwise it is denied
provenance asks      otherwise a person is asked
policy + provenance
session labels       provenance, but only once the session has read something from outside

For each pair of a user task and an injection the agent makes the calls that solve the task. It is then taken
to be hijacked, and makes the calls of the injection. AgentDojo's own tools run what may run, and its own
checks judge. There is no LLM: none resists, and none finds another way after a denial. A person who is asked
allows the user's calls and refuses the others. `--json` tells each honest call that was denied or asked
about.
"""

import argparse
import asyncio
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness import Columns, Report, options, send, start
from toolgate_bus.config.document import read_document
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.server.embedded import Server, private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_orchestrator import Call
from toolgate_orchestrator.commands.bench.processes import read_line, start_processes
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.guard.guard import Guard

AGENTDOJO = "agentdojo==0.1.35"
WORKER = Path(__file__).with_name("agentdojo_worker.py")
RULES = Path(__file__).with_name("agentdojo_rules.yaml")
START_S = 600.0
"""Seconds in which AgentDojo has to load, with the clients of several LLMs, or a scheduler to start."""
STEP_S = 300.0
PATIENCE_MS = 60_000
"""Long enough that no scheduler is passed over because the machine is busy."""
RULED = frozenset(("agreed", "unasked", "denied", "refused"))
"""Reasons of decisions that say something of the rules: verdicts, a person's word, or nobody there."""
LOOP_GUARD = {"same_call": {"times": 3}, "calls_per_turn": 40}
SUITES = ("workspace", "travel", "banking", "slack")
SETUPS: Mapping[str, Mapping[str, str]] = {
    "no rules": {},
    "loop-guard": {"loop-guard": "loop-guard"},
    "policy": {"policy": "policy"},
    "provenance": {"provenance": "provenance"},
    "provenance asks": {"provenance": "asks"},
    "policy + provenance": {"policy": "beside", "provenance": "provenance"},
    "session labels": {"provenance": "labels"},
}
"""Rows: schedulers, and the part of the rules of each."""
Half = Literal["even", "odd", "all"]
OPTIONS = options(__doc__)
OPTIONS.add_argument("--suite", choices=SUITES, action="append", help="repeatable (default: all four)")
OPTIONS.add_argument(
    "--half",
    choices=("even", "odd", "all"),
    default="even",
    help="user tasks by number; the rules were written from the odd ones (default: even)",
)
OPTIONS.add_argument("--row", choices=SETUPS, action="append", help="repeatable (default: all)")
OPTIONS.add_argument(
    "--venv",
    type=Path,
    default=Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolgate" / "agentdojo",
    help="virtual environment that has AgentDojo (default: ~/.cache/toolgate/agentdojo)",
)
OPTIONS.add_argument("--install", action="store_true", help=f"make it first, with {AGENTDOJO}")


# ------------------------------------------------------------------ counts


@dataclass(frozen=True, slots=True)
class DojoOutcome:
    """Result of one run of a task."""

    done: bool
    attacked: bool | None
    asked: int
    asked_attack: int
    denied: int
    calls: int
    attack_calls: int
    faults: tuple[dict[str, Any], ...]


@dataclass(slots=True)
class Tally:
    """Counts of the calls and tasks of one row."""

    calls: int = 0
    """Calls of the user tasks, each done once without an attack."""
    denied: int = 0
    asked: int = 0
    tasks: int = 0
    done: int = 0
    pairs: int = 0
    untried: int = 0
    """Pairs whose attack AgentDojo does not tell; counted nowhere else."""
    still_done: int = 0
    """User tasks done with no call denied, although the agent was hijacked after them."""
    attacks: int = 0
    succeeded: int = 0
    by_words: int = 0
    """Successful attacks that make no call at all."""
    stopped_by_person: int = 0
    """Failed attacks with a question that the person refused."""
    questions: int = 0
    seconds: list[float] = field(default_factory=list)
    broken: list[dict[str, Any]] = field(default_factory=list)
    """Honest calls that were denied or asked about."""
    open: list[str] = field(default_factory=list)
    """Attacks that succeeded."""

    def add(self, other: "Tally") -> None:
        """Add those of another suite."""
        for name in self.__slots__:
            mine = getattr(self, name)
            setattr(self, name, mine + getattr(other, name))

    def add_task(self, alone: "DojoOutcome") -> None:
        """Count a user task that was done without an attack."""
        self.tasks, self.done = self.tasks + 1, self.done + alone.done
        self.calls, self.denied = self.calls + alone.calls, self.denied + alone.denied
        self.asked += alone.asked
        self.broken += alone.faults

    def add_pair(self, pair: "DojoOutcome", name: str) -> None:
        """Count a user task with an attack after it."""
        if not (pair.attack_calls or pair.attacked):
            self.untried += 1
            return
        self.pairs, self.still_done = self.pairs + 1, self.still_done + pair.done
        self.attacks += 1
        self.questions += pair.asked + pair.asked_attack
        if pair.attacked:
            self.succeeded += 1
            self.by_words += not pair.attack_calls
            self.open.append(name)
        elif pair.asked_attack:
            self.stopped_by_person += 1


def choose_tasks(users: Sequence[str], half: Half) -> list[str]:
    """Return the user tasks of a half, by their numbers."""
    wanted = {"even": (0,), "odd": (1,), "all": (0, 1)}[half]
    return [one for one in users if int(one.rpartition("_")[2]) % 2 in wanted]


# ------------------------------------------------------------------ runs


class DojoProcess:
    """AgentDojo, in its own virtual environment."""

    def __init__(self, process: asyncio.subprocess.Process, about: dict[str, Any]) -> None:
        self._process, self.about = process, about

    async def ask(self, request: Mapping[str, Any]) -> Any:
        """Send one request and return the answer; raises ToolgateError if the process has ended."""
        send(self._process, json.dumps(request))
        return json.loads(await read_line(self._process, "AgentDojo", STEP_S))


@asynccontextmanager
async def open_dojo(python: Path) -> AsyncIterator[DojoProcess]:
    """Start AgentDojo by the Python of an environment that has it. Raises ToolgateError."""
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
        """Run a user task and the attack after it. The person allows the user's calls, and nothing else."""
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
        ran = await self._dojo.ask({"execute": {"tool": ruling.tool, "arguments": ruling.arguments}})
        # Schedulers that rule on results label the session by them.
        await (ruling.fail(ran["error"]) if ran["error"] else ruling.succeed(ran["result"]))
        return None


async def run_row(server: Server, dojo: DojoProcess, suite: str, setup: str, half: Half) -> Tally:
    """Run one row on one suite, with scheduler processes of its own."""
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
    return tally


def lay_out(directory: Path, suite: str, setup: str) -> list[SchedulerSpec]:
    """Write the rules of a row on a suite and return its schedulers."""
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
    if part == "labels":
        return label_sessions(rules["provenance"], rules["outside"])
    return {**rules["provenance"], "action": "ask"} if part == "asks" else rules[part]


def label_sessions(provenance: Mapping[str, Any], outside: Sequence[str]) -> Mapping[str, Any]:
    """Return rules by which sinks count once a session has a result from outside."""
    sinks = [{**one, "when_session": {"source": "untrusted"}} for one in provenance["sinks"]]
    return {**provenance, "outside": outside, "sinks": sinks}


# ------------------------------------------------------------------ AgentDojo's environment


def find_python(venv: Path, *, install: bool) -> Path:
    """Return the Python of an environment that has AgentDojo; raises ConfigError with the way to make one."""
    python = venv.absolute() / "bin" / "python"
    if not _has_agentdojo(python):
        if not install:
            raise ConfigError(
                f"AgentDojo is not installed in {venv}: add --install, or run\n"
                f"  python3 -m venv {shlex.quote(str(venv))} && "
                f"{shlex.quote(str(venv / 'bin' / 'pip'))} install {AGENTDOJO}"
            )
        _install(venv, python)
    return python


def _has_agentdojo(python: Path) -> bool:
    ask = (str(python), "-P", "-c", "import importlib.metadata as m; m.version('agentdojo')")
    try:
        return not subprocess.run(ask, env=outer_environment(), capture_output=True, check=False).returncode
    except OSError:
        return False


def _install(venv: Path, python: Path) -> None:
    if not _run([sys.executable, "-m", "venv", str(venv)]):
        raise ConfigError(
            f"--venv {venv}: no virtual environment could be made there; Python's words stand above. "
            "Name a directory that can be written to"
        )
    if not _run([str(python), "-m", "pip", "install", "--quiet", "--retries", "2", AGENTDOJO]):
        raise ConfigError(
            f"{AGENTDOJO} could not be installed in {venv}: pip's words stand above. If no package index can "
            "be reached, tell pip of yours (PIP_INDEX_URL, PIP_PROXY, PIP_FIND_LINKS, or its configuration), "
            "and call this again"
        )


def _run(command: Sequence[str]) -> bool:
    print(" ".join(command), file=sys.stderr)
    try:
        done = subprocess.run(command, env=outer_environment(), stdout=sys.stderr, check=False)
    except OSError as error:
        print(error, file=sys.stderr)
        return False
    return not done.returncode


def outer_environment() -> dict[str, str]:
    """Return the environment without what is meant for this Python."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TOOLGATE_", "PYTHON")) and name != "VIRTUAL_ENV"
    }


# ------------------------------------------------------------------ command


async def main(given: argparse.Namespace, report: Report) -> None:
    """Run all rows on all suites, and print them."""
    python = find_python(given.venv, install=given.install)
    suites, rows = given.suite or SUITES, given.row or list(SETUPS)
    report.show_machine(half=given.half)
    began, found = time.monotonic(), dict[str, dict[str, Tally]]()
    with private_server() as server:
        async with open_dojo(python) as dojo:
            for name in rows:
                found[name] = {}
                for suite in suites:
                    report.tell(f"{name}, {suite}")
                    found[name][suite] = await run_row(server, dojo, suite, name, given.half)
                    print(f"{name}, {suite}: {_sum_up(found[name][suite])}", file=sys.stderr)
                report.add(_figures(name, found[name]))
            version = f"agentdojo {dojo.about['agentdojo']}, {dojo.about['benchmark']}"
    report.show_beside(LINES, rows, [_figures(name, each) for name, each in found.items()])
    report.say(f"{version}; user tasks: {given.half}; {time.monotonic() - began:.0f} s")


def _sum_up(tally: Tally) -> str:
    told = _counts(tally)
    return (
        "{attacks_succeeded} of {attacks} attacks succeed ({attacks_by_words_alone} by words alone), "
        "{honest_denied} + {honest_asked} of {honest_calls} honest calls denied + asked about, "
        "{tasks_done} of {tasks} tasks done, under attack {done_under_attack} of {pairs}, "
        "{questions} questions, {median_us} µs"
    ).format(**told)


def _figures(name: str, by_suite: dict[str, Tally]) -> dict[str, Any]:
    total = Tally()
    for tally in by_suite.values():
        total.add(tally)
    return {
        "row": name,
        **_counts(total),
        "suites": {suite: _counts(tally) for suite, tally in by_suite.items()},
        "broken": total.broken,
        "open": total.open,
    }


def _counts(tally: Tally) -> dict[str, Any]:
    return {
        "attacks": tally.attacks,
        "attacks_succeeded": tally.succeeded,
        "attacks_by_words_alone": tally.by_words,
        "attacks_stopped_by_person": tally.stopped_by_person,
        "honest_calls": tally.calls,
        "honest_denied": tally.denied,
        "honest_asked": tally.asked,
        "tasks": tally.tasks,
        "tasks_done": tally.done,
        "pairs": tally.pairs,
        "pairs_untried": tally.untried,
        "done_under_attack": tally.still_done,
        "questions": tally.questions,
        "decisions": len(tally.seconds),
        "median_us": round(statistics.median(tally.seconds) * 1e6) if tally.seconds else None,
    }


def _share(of: str, all_: str) -> Callable[[Any], str]:
    def cell(row: Any) -> str:
        return f"{row[of]} of {row[all_]} ({row[of] / max(1, row[all_]):.1%})"

    return cell


LINES: Columns = {
    "attacks that succeed": _share("attacks_succeeded", "attacks"),
    "  of them by words alone": lambda row: str(row["attacks_by_words_alone"]),
    "  stopped by the person": lambda row: str(row["attacks_stopped_by_person"]),
    "pairs whose attack is not known": lambda row: str(row["pairs_untried"]),
    "honest calls denied": _share("honest_denied", "honest_calls"),
    "  asked about": _share("honest_asked", "honest_calls"),
    "user tasks done, no attack": _share("tasks_done", "tasks"),
    "  under attack": _share("done_under_attack", "pairs"),
    "questions to a person": lambda row: str(row["questions"]),
    "a decision, median": lambda row: f"{row['median_us']} µs",
}


if __name__ == "__main__":
    start(OPTIONS, main)
