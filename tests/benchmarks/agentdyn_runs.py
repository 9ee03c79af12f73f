"""Recorded runs of AgentDyn through real schedulers: attacks on real LLMs that are stopped, tasks that break.

    git clone https://github.com/leolee99/AgentDyn
    python tests/benchmarks/agentdyn_runs.py AgentDyn/runs --model gpt-4o-2024-08-06
    python tests/benchmarks/agentdyn_runs.py AgentDyn/runs --model gpt-5.1-2025-11-13 --row provenance --json

policy           rules on tools and arguments
provenance       what leaves goes where the user's request says; otherwise it is denied
session labels   provenance, but only once the session has read something from outside
+ answer         the same, and links in the answer (`turn:output`) must stand in the request, too

A run is what an LLM did: its calls, what they gave, and its answer. Each call is ruled on, each result that
may run is told, and the answer is ruled on. A run whose call or answer is denied is stopped there: what the
LLM would have done after that is not known. So an attack that succeeded in the recording counts as stopped
then, and a task that was done as broken. AgentDyn's own checks say what succeeded and what was done.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentdojo_attacks import PATIENCE_MS, RULED, START_S, label_sessions
from harness import Columns, Report, options, start
from toolgate_bus.config.document import read_document
from toolgate_bus.errors import CallDenial, ConfigError, ToolgateError
from toolgate_bus.server.embedded import Server, private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_orchestrator import Call
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.guard.guard import Guard

RULES = Path(__file__).with_name("agentdyn_rules.yaml")
SUITES = ("shopping", "github", "dailylife")
ROWS = ("policy", "provenance", "session labels", "session labels + answer")
AT_ONCE = 8
MAX_RUN_BYTES = 16 << 20
OPTIONS = options(__doc__)
OPTIONS.add_argument("runs", type=Path, help="folder `runs` of a checkout of AgentDyn")
OPTIONS.add_argument("--model", action="append", required=True, help="folder below it; repeatable")
OPTIONS.add_argument("--row", choices=ROWS, action="append", help="repeatable (default: all)")


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What an LLM did."""

    request: str
    steps: Sequence[tuple[str, Mapping[str, Any], str, bool]]
    """Its calls: tool, arguments, result, and whether that was no error."""
    answer: str
    is_attack: bool
    done: bool
    attacked: bool


@dataclass(slots=True)
class Tally:
    """Counts of one row."""

    attacks: int = 0
    """Runs with an injection."""
    succeeded: int = 0
    """Attacks that succeeded in the recording."""
    still: int = 0
    """Those of them that no denial stopped."""
    stopped_by_answer: int = 0
    calls: int = 0
    """Calls of the runs without an injection."""
    denied: int = 0
    tasks: int = 0
    """Tasks that were done in the recording, without an injection."""
    still_done: int = 0
    under_attack: int = 0
    """Tasks that were done in the recording, while an injection failed."""
    done_under_attack: int = 0
    seconds: list[float] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Reasons for denials of honest calls and answers."""


def read_runs(folder: Path, model: str) -> Iterator[RecordedRun]:
    """Yield the runs of user tasks of one LLM. Raises ConfigError."""
    files = [
        path
        for suite in SUITES
        for path in sorted((folder / model / suite).glob("user_task_*/*/*.json"))
        if path.parent.name in ("none", "important_instructions")
    ]
    if not files:
        raise ConfigError(f"{folder / model}: no recorded runs are there. Name the folder `runs` of AgentDyn")
    for path in files:
        if path.stat().st_size <= MAX_RUN_BYTES:
            yield read_run(json.loads(path.read_text("utf-8")))


def read_run(recorded: Mapping[str, Any]) -> RecordedRun:
    """Return a recorded run."""
    messages = recorded["messages"]
    steps = []
    for one in messages:
        if one["role"] == "tool":
            call, error = one["tool_call"], one.get("error")
            steps.append((call["function"], call["args"], error or text_of(one["content"]), not error))
    last = messages[-1] if messages else {}
    return RecordedRun(
        next((text_of(one["content"]) for one in messages if one["role"] == "user"), ""),
        steps,
        text_of(last.get("content")) if last.get("role") == "assistant" else "",
        recorded["injection_task_id"] is not None,
        bool(recorded["utility"]),
        bool(recorded["security"]) and recorded["injection_task_id"] is not None,
    )


def text_of(content: Any) -> str:
    """Return the text of a message."""
    if isinstance(content, list):
        return "\n".join(str(one.get("content") or "") for one in content if isinstance(one, dict))
    return content if isinstance(content, str) else ""


def find_rules(row: str) -> tuple[str, Mapping[str, Any]]:
    """Return the scheduler of a row and its rules."""
    rules = read_document(RULES).mapping()
    if row == "policy":
        return "policy", rules["policy"]
    if row == "provenance":
        return "provenance", rules["provenance"]
    answer = rules["answer"]["sinks"] if row.endswith("answer") else []
    provenance = {**rules["provenance"], "sinks": [*rules["provenance"]["sinks"], *answer]}
    return "provenance", label_sessions(provenance, rules["outside"])


async def play(guard: Guard, run: RecordedRun, session: str, tally: Tally) -> None:
    """Rule on all that an LLM did, up to the first denial, and count it."""
    at, denied, of_answer = guard.at(session), "", False
    with guard.turn(at, request=run.request):
        for tool, arguments, result, success in run.steps:
            began = time.perf_counter()
            ruling = await guard.rule(Call(tool, arguments, at=at))
            tally.seconds.append(time.perf_counter() - began)
            if ruling.decision is not None and ruling.decision.why not in RULED:
                raise ToolgateError(f"{tool}: no scheduler ruled on it ({ruling.decision.why})")
            tally.calls += not run.is_attack
            if not ruling.allowed:
                denied = f"{tool}: {ruling.reason}"
                break
            await (ruling.succeed(result) if success else ruling.fail(result))
        if not denied and run.answer:
            try:
                await guard.turn_output(run.answer, at)
            except CallDenial as error:
                denied, of_answer = f"answer: {error}", True
    if run.is_attack:
        tally.attacks += 1
        tally.succeeded += run.attacked
        tally.still += run.attacked and not denied
        tally.stopped_by_answer += run.attacked and of_answer
        tally.under_attack += run.done and not run.attacked
        tally.done_under_attack += run.done and not run.attacked and not denied
        return
    tally.tasks += run.done
    tally.still_done += run.done and not denied
    if denied:
        tally.denied += not of_answer
        tally.broken.append(denied)


async def run_row(server: Server, row: str, runs: Sequence[RecordedRun], number: int) -> Tally:
    """Let all runs through the scheduler of a row."""
    name, rules = find_rules(row)
    path = server.directory / f"agentdyn-{number}.yaml"
    path.write_text(json.dumps(rules))
    bus, tally = BusSettings(redis=server.url, namespace=f"agentdyn-{number}"), Tally()
    async with scheduler_processes([SchedulerSpec(name, path, name)], bus, START_S):
        guard = Guard(
            agent="agentdyn",
            redis=bus.redis,
            namespace=bus.namespace,
            required=[name],
            patience_ms=PATIENCE_MS,
        )
        async with guard:
            left = iter(enumerate(runs))

            async def work() -> None:
                for at, run in left:
                    await play(guard, run, f"run-{at}", tally)

            await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return tally


async def main(given: argparse.Namespace, report: Report) -> None:
    """Run all rows on the runs of each model, and print them."""
    report.show_machine(models=",".join(given.model))
    rows = given.row or list(ROWS)
    with private_server() as server:
        for model in given.model:
            runs, found = list(read_runs(given.runs, model)), []
            for row in rows:
                report.tell(f"{model}, {row}")
                number = given.model.index(model) * len(ROWS) + ROWS.index(row)
                found.append(figures(model, row, await run_row(server, row, runs, number)))
                report.add(found[-1])
            report.say(f"{model}: {len(runs)} runs")
            report.show_beside(LINES, rows, found)


def figures(model: str, row: str, tally: Tally) -> dict[str, Any]:
    """Return the counts of a row."""
    told = {name: getattr(tally, name) for name in Tally.__slots__ if name != "seconds"}
    median = round(statistics.median(tally.seconds) * 1e6) if tally.seconds else 0
    return {"model": model, "row": row, **told, "median_us": median}


def _share(of: str, all_: str) -> Callable[[Any], str]:
    return lambda row: f"{row[of]} of {row[all_]} ({row[of] / max(1, row[all_]):.1%})"


LINES: Columns = {
    "attacks that succeed, recorded": _share("succeeded", "attacks"),
    "  ruled on": _share("still", "attacks"),
    "  stopped by the answer alone": lambda row: str(row["stopped_by_answer"]),
    "honest calls denied": _share("denied", "calls"),
    "tasks still done, no attack": _share("still_done", "tasks"),
    "  under attack": _share("done_under_attack", "under_attack"),
    "a decision, median": lambda row: f"{row['median_us']} µs",
}

if __name__ == "__main__":
    start(OPTIONS, main)
