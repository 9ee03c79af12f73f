"""Rules suggested from one half of what ran, on the other half: what they would ask a person about.

    python tests/benchmarks/suggested_rules.py --runs runs.jsonl     recorded runs, as for `toolgate replay`
    python tests/benchmarks/suggested_rules.py --agentdojo           AgentDojo's user tasks, and its attacks
    python tests/benchmarks/suggested_rules.py --agentdojo --install --json

The runs are dealt into two halves by a seed. `toolgate policy suggest` makes its rules of the first half;
each call of the other half is then ruled on. `--by-task` puts all runs of one task into one half. A row is a
tool; the last one is the sum. Other seeds say how much depends on the seed.

Of AgentDojo, a run is a user task with the calls that solve it. Its attacks are the calls of the injections;
the rules never saw one.
"""

import argparse
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentdojo_attacks import AGENTDOJO, SUITES, DojoProcess, find_python, open_dojo
from agentdojo_attacks import OPTIONS as DOJO_OPTIONS
from harness import Columns, Report, count, options, start
from toolgate_bus.config.check import check
from toolgate_bus.config.document import parse_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.facts.recording_file import load
from toolgate_schedulers.commands.ran_calls import calls_of_runs
from toolgate_schedulers.shipped.policy.scheduler import PolicyConfig, explain_ruling
from toolgate_schedulers.shipped.policy.suggestions.suggested_file import format_policy
from toolgate_schedulers.shipped.policy.suggestions.suggestions import SeenCall, Suggestions
from toolgate_schedulers.testing import question

OPTIONS = options(__doc__)
OPTIONS.add_argument("--runs", type=Path, help="a file of recorded runs")
OPTIONS.add_argument("--by-task", action="store_true", help="deal tasks, not runs")
OPTIONS.add_argument("--agentdojo", action="store_true", help="measure AgentDojo's calls")
OPTIONS.add_argument(
    "--venv", type=Path, default=DOJO_OPTIONS.get_default("venv"), help="where AgentDojo is installed"
)
OPTIONS.add_argument("--install", action="store_true", help=f"install {AGENTDOJO} there first")
OPTIONS.add_argument("--seed", type=int, default=1, help="seed of the halves (default: 1)")
OPTIONS.add_argument("--seeds", type=count, default=20, help="number of further seeds (default: 20)")
OPTIONS.add_argument("--rules", action="store_true", help="print the rules as well")

Runs = Mapping[str, Sequence[SeenCall]]
"""Calls of each run."""


class Measured(NamedTuple):
    """Rules of one half on the other half."""

    rows: list[dict[str, Any]]
    config: PolicyConfig
    text: str


def deal(runs: Runs, seed: int) -> tuple[list[SeenCall], list[SeenCall]]:
    """Return the calls of two halves of the runs."""
    names = sorted(runs)
    random.Random(seed).shuffle(names)
    middle = len(names) // 2
    halves = names[:middle], names[middle:]
    first, other = ([call for name in half for call in runs[name]] for half in halves)
    return first, other


def suggest(calls: Iterable[SeenCall]) -> tuple[str, PolicyConfig]:
    """Return the file that is suggested, and the policy that it makes."""
    suggestions = Suggestions()
    for call in calls:
        suggestions.add(call)
    text = format_policy(suggestions.rules(), ())
    document = parse_document(text.encode(), "suggested.yaml")
    return text, check(PolicyConfig, document.mapping(), document)


def is_asked(config: PolicyConfig, call: SeenCall) -> bool:
    """Return whether the last rule would have asked a person about a call."""
    _, fired = explain_ruling(config, question(call.tool, dict(call.arguments)))
    return len(config.rules) - 1 in fired


def measure(runs: Runs, seed: int) -> Measured:
    """Suggest rules of one half of the runs, and rule on the other half. Raises ConfigError for a misfit."""
    first, other = deal(runs, seed)
    text, config = suggest(first)
    if wrong := [call for call in first if is_asked(config, call)]:
        raise ConfigError(
            f"the rules do not allow {len(wrong)} of the calls that they were made of: {wrong[0]}"
        )
    made, asked = Counter(call.tool for call in first), Counter[str]()
    ruled = Counter(call.tool for call in other)
    for call in other:
        asked[call.tool] += is_asked(config, call)
    rows = [
        {"tool": tool, "made_of": made[tool], "calls": ruled[tool], "asked": asked[tool]}
        for tool in sorted(made | ruled, key=lambda tool: (-asked[tool], -ruled[tool], tool))
    ]
    rows.append(
        {
            "tool": "all",
            "made_of": len(first),
            "calls": len(other),
            "asked": asked.total(),
            "rules": len(config.rules),
        }
    )
    return Measured(rows, config, text)


def show(report: Report, name: str, runs: Runs, given: argparse.Namespace) -> Measured:
    """Measure and print one set of runs."""
    report.tell(name)
    measured = measure(runs, given.seed)
    for row in measured.rows:
        report.add({"of": name, **row})
    total = measured.rows[-1]
    report.say(f"\n{name}: {len(runs)} runs, {total['rules']} rules, made of {total['made_of']} calls")
    report.show(COLUMNS, measured.rows)
    shares = []
    for seed in range(given.seed + 1, given.seed + 1 + given.seeds):
        last = measure(runs, seed).rows[-1]
        shares.append(last["asked"] / max(1, last["calls"]))
    middle, worst = statistics.median(shares), max(shares)
    report.say(f"{len(shares)} other seeds: median {middle:.1%}, highest {worst:.1%}")
    report.add({"of": name, "seeds": len(shares), "median": middle, "highest": worst})
    if given.rules:
        report.say(measured.text)
    return measured


def read_runs(path: Path, *, by_task: bool) -> Runs:
    """Return the calls that ran well, by run or by task."""
    archive = load(path)
    names = {
        str(run.number): run.name.partition(" trial")[0] if by_task else str(run.number)
        for run in archive.runs
    }
    found = defaultdict[str, list[SeenCall]](list)
    for call in calls_of_runs(archive, Counter()):
        found[names[call.session]].append(call)
    return found


async def read_tasks(dojo: DojoProcess, suite: str) -> Runs:
    """Return the calls of each user task of a suite."""
    found = {}
    for user in dojo.about["suites"][suite]["users"]:
        calls = await dojo.ask({"begin": [suite, user, None]})
        found[user] = [SeenCall(call["tool"], call["arguments"], user) for call in calls]
    return found


async def read_attacks(dojo: DojoProcess, suite: str) -> Runs:
    """Return the calls of each injection of a suite."""
    about, found = dojo.about["suites"][suite], {}
    for injection in about["injections"]:
        await dojo.ask({"begin": [suite, next(iter(about["users"])), injection]})
        calls = await dojo.ask({"hijack": True})
        found[injection] = [SeenCall(call["tool"], call["arguments"], injection) for call in calls]
    return found


def show_attacks(report: Report, suite: str, attacks: Runs, config: PolicyConfig) -> None:
    """Print how many injections the rules would have asked about."""
    acting = {name: calls for name, calls in attacks.items() if calls}
    stopped = sum(any(is_asked(config, call) for call in calls) for calls in acting.values())
    report.say(f"injections with a call that is asked about: {stopped} of {len(acting)}")
    report.add({"of": suite, "injections": len(acting), "injections_asked": stopped})


async def main(given: argparse.Namespace, report: Report) -> None:
    """Measure what was asked for."""
    if given.runs is None and not given.agentdojo:
        raise ConfigError("give --runs FILE, --agentdojo, or both")
    report.show_machine(seed=given.seed)
    if given.runs is not None:
        name = f"{given.runs.name}, halves of {'tasks' if given.by_task else 'runs'}"
        show(report, name, read_runs(given.runs, by_task=given.by_task), given)
    if given.agentdojo:
        python = find_python(given.venv, install=given.install)
        async with open_dojo(python) as dojo:
            for suite in SUITES:
                measured = show(report, suite, await read_tasks(dojo, suite), given)
                show_attacks(report, suite, await read_attacks(dojo, suite), measured.config)


COLUMNS: Columns = {
    "tool": lambda row: row["tool"],
    "made of": lambda row: row["made_of"],
    "calls": lambda row: row["calls"],
    "asked": lambda row: row["asked"],
    "share": lambda row: f"{row['asked'] / max(1, row['calls']):.1%}",
}


if __name__ == "__main__":
    start(OPTIONS, main)
