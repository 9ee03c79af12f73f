"""`toolgate bench agentdojo`: what a gate stops of AgentDojo's attacks, and what it breaks of its tasks."""

import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from toolgate_bus.commands.options import JsonOption, console, err_console, run_async
from toolgate_bus.commands.terminal import new_table, print_json
from toolgate_bus.errors import ConfigError
from toolgate_bus.server.embedded import Server, private_server

from toolgate_orchestrator.commands.bench.agentdojo_tally import SETUPS, Tally, choose_tasks
from toolgate_orchestrator.commands.bench.processes import outer_environment

AGENTDOJO: Final = "agentdojo==0.1.35"


class Suite(StrEnum):
    """AgentDojo's."""

    WORKSPACE = "workspace"
    TRAVEL = "travel"
    BANKING = "banking"
    SLACK = "slack"


class TaskHalf(StrEnum):
    """Of the user tasks, by their numbers."""

    EVEN = "even"
    ODD = "odd"
    ALL = "all"


def agentdojo(
    suite: Annotated[
        list[Suite] | None,
        typer.Option("--suite", metavar="|".join(Suite), help="Repeat it.", show_default="all four"),
    ] = None,
    half: Annotated[
        TaskHalf,
        typer.Option(
            "--half",
            metavar="|".join(TaskHalf),
            help="Which user tasks, by number: the rules were written from the odd ones.",
        ),
    ] = TaskHalf.EVEN,
    row: Annotated[
        list[str] | None,
        typer.Option("--row", metavar="NAME", help=f"Repeat it: {', '.join(SETUPS)}.", show_default="all"),
    ] = None,
    venv: Annotated[
        Path | None,
        typer.Option(
            "--venv",
            metavar="DIR",
            help="A virtual environment that has AgentDojo; without it, ~/.cache/toolgate/agentdojo.",
        ),
    ] = None,
    install: Annotated[
        bool,
        typer.Option("--install", help=f"Make that environment first, with {AGENTDOJO}, if it is not there."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run AgentDojo's attacks through real schedulers: toolgate bench agentdojo --install --suite banking

    \b
      no rules             nobody is asked
      loop-guard           the same call again and again ends
      policy               rules on tools and arguments
      provenance           what leaves goes where the user's request says; else it is denied
      provenance asks      else a person is asked
      policy + provenance

    For each pair of a user task and an injection the agent makes the calls that solve the task, is then
    taken to be hijacked, and makes the injection's; AgentDojo's own tools run what may run, its own checks
    judge. No LLM: none resists, and none finds another way after a denial. A person who is asked allows the
    user's calls and refuses the others. `--json` tells each honest call that was denied or asked about.
    All of it takes some minutes. Ctrl-C ends it, with nothing left behind; 1 if it cannot be run.
    """
    rows = row or list(SETUPS)
    if unknown := [name for name in rows if name not in SETUPS]:
        raise ConfigError(f"--row {unknown[0]}: one of {', '.join(SETUPS)}")
    suites = list(dict.fromkeys(one.value for one in suite or list(Suite)))
    python = find_python(venv or _usual_venv(), install=install)
    with private_server() as server:
        found, about = run_async(lambda: _measure(server, python, suites, rows, half.value))
    if as_json:
        told = {"python": sys.version.split()[0], "cpus": os.cpu_count(), **about, "half": half.value}
        print_json({**told, "rows": [_figures(name, each) for name, each in found.items()]})
        return
    console.print(_table_of({name: _figures(name, each) for name, each in found.items()}))
    console.print(
        f"{about['agentdojo']}, {about['benchmark']}; user tasks: {half.value}; {about['seconds']:.0f} s, "
        f"load {about['load']:g} on {os.cpu_count()} CPUs. What it does not model: docs/agentdojo.md",
        soft_wrap=True,
    )


def _usual_venv() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolgate" / "agentdojo"


def find_python(venv: Path, *, install: bool) -> Path:
    """The Python of an environment that has AgentDojo; raises ConfigError that says how to make one."""
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
    err_console.print(" ".join(command), style="dim", soft_wrap=True, highlight=False)
    try:
        done = subprocess.run(command, env=outer_environment(), stdout=sys.stderr, check=False)
    except OSError as error:
        err_console.print(str(error), markup=False)
        return False
    return not done.returncode


async def _measure(
    server: Server, python: Path, suites: Sequence[str], rows: Sequence[str], half: Any
) -> tuple[dict[str, dict[str, Tally]], dict[str, Any]]:
    """The tally of each suite by row, and what AgentDojo said of itself."""
    from toolgate_orchestrator.commands.bench.agentdojo import open_dojo, run_row

    found: dict[str, dict[str, Tally]] = {name: {} for name in rows}
    started = time.monotonic()
    async with open_dojo(python) as dojo:
        told = dojo.about["suites"]
        pairs = sum(
            len(choose_tasks(list(told[suite]["users"]), half)) * len(told[suite]["injections"])
            for suite in suites
        )
        with _progress(pairs * len(rows)) as tell:
            for name in rows:
                for suite in suites:
                    step = tell(f"{name}, {suite}")
                    found[name][suite] = await run_row(server, dojo, suite, name, half, step)
                    words = f"{name}, {suite}: {_sum_up(found[name][suite])}"
                    err_console.print(words, highlight=False, soft_wrap=True)
        about = {"agentdojo": f"agentdojo {dojo.about['agentdojo']}", "benchmark": dojo.about["benchmark"]}
    took = {"seconds": round(time.monotonic() - started, 1), "load": round(os.getloadavg()[2], 1)}
    return found, about | took


@contextmanager
def _progress(pairs: int) -> Iterator[Callable[[str], Callable[[], None]]]:
    if not err_console.is_terminal:
        yield lambda _what: lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err_console, transient=True) as bar:
        task = bar.add_task("AgentDojo", total=pairs)

        def begin(what: str) -> Callable[[], None]:
            bar.update(task, description=what)
            return lambda: bar.advance(task)

        yield begin


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


def _table_of(rows: dict[str, dict[str, Any]]) -> Any:
    table = new_table(["", *rows], right=list(rows))
    for words, of in _LINES.items():
        table.add_row(words, *(of(one) for one in rows.values()))
    return table


def _share(of: str, all_: str) -> Callable[[dict[str, Any]], str]:
    def tell(row: dict[str, Any]) -> str:
        return f"{row[of]} of {row[all_]} ({row[of] / max(1, row[all_]):.1%})"

    return tell


_LINES: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
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
