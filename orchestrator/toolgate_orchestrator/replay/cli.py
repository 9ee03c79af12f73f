"""`toolgate replay FILE.jsonl`: recorded agent runs through the real loop, before real schedulers.

Says what schedulers would have done to calls that agents really made, and checks the loop itself:
each recorded call gets exactly one tool result, in order.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from toolgate_bus.cli_options import (
    KeysOption,
    NamespaceOption,
    RedisOption,
    bus_settings,
    console,
    err_console,
    run_async,
    started_bus,
)
from toolgate_bus.settings import BusSettings

from toolgate_orchestrator.host.own_namespace import new_namespace, removed_afterwards
from toolgate_orchestrator.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.replay.recording import Recording
from toolgate_orchestrator.replay.recording_file import load
from toolgate_orchestrator.replay.report import Report, report_on
from toolgate_orchestrator.replay.view import view
from toolgate_orchestrator.replay.with_schedulers import specs_of, targets_of

__all__ = ["replay"]

PATIENCE_MS = 2000
"""Longer than an agent's 500: a rehearsal should not take a busy machine for a silent scheduler."""

LATE_S = 1.0
"""How long, at the end of a run, verdicts that were missed are waited for, to tell late from silent."""


def replay(
    ctx: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.jsonl",
            help="Recorded runs, one JSON object a line, with OpenAI chat messages under `traj`.",
        ),
    ],
    loop: Annotated[
        str, typer.Option(metavar="NAME", help="The loop that the runs go through.")
    ] = "loop-events",
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME=config.yaml",
            help="Start this scheduler for the replay, in a namespace of its own (unless --namespace says "
            "otherwise); may be repeated. "
            "It is required: its silence denies. Without --with, the living schedulers rule.",
        ),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A further tool that calls may be sent to, beside those in the file and what the "
            "configs of --with name under `to`, `target` or `targets`; may be repeated.",
        ),
    ] = None,
    patience_ms: Annotated[
        int, typer.Option(min=1, max=600_000, help="How long verdicts are waited for, in milliseconds.")
    ] = PATIENCE_MS,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N runs.")] = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: all figures, and every call.")
    ] = False,
) -> None:
    """Put recorded agent runs before schedulers, and see what would have come of them.

    The recorded assistant messages are the LLM, the recorded results the tools.
    A rerouted call returns what was recorded for that tool and those arguments,
    in its run or else in the file; where nothing was, the original's result,
    marked `unrecorded`.

    --json prints `totals`, `by_tool`, `by_scheduler`, `violations`, `contexts`
    (a digest of each run's final conversation, to compare loops by), and `calls`:
    each recorded call with its outcome (run, vetoed, rerouted), what ran, the
    result that the LLM was told, the decision and every verdict.

    Exit codes: 0 all is well; 1 a call did not get exactly one result in order,
    or ran otherwise than decided; 2 the file, a config or an option is wrong.
    """
    recording = load(file, limit)
    specs = specs_of(with_ or ())
    also = tuple(dict.fromkeys((*targets_of(specs), *(tool or ()))))
    # Where the schedulers of --with rule, the living ones must not, and these must not rule the living.
    source = ctx.get_parameter_source("namespace")
    own = bool(specs) and not (source and source.name == "COMMANDLINE")
    if own:
        namespace = new_namespace()
    bus_settings(redis, namespace, keys)
    with started_bus(redis, namespace, keys) as bus:
        job = _Job(recording, loop, specs, also, patience_ms, bus, own_namespace=own)
        report = run_async(job.run)
    if json_:
        typer.echo(json.dumps(report.as_json(), ensure_ascii=False))
    else:
        # In a file nothing has to fit a screen.
        console.print(
            view(report), width=None if console.is_terminal else max(console.width, 120), crop=False
        )
    if report.violations:
        raise typer.Exit(1)


class _Job:
    """One replay: its schedulers started, its runs played one after another."""

    def __init__(
        self,
        recording: Recording,
        loop: str,
        specs: Sequence[SchedulerSpec],
        also: tuple[str, ...],
        patience_ms: int,
        bus: BusSettings,
        *,
        own_namespace: bool,
    ) -> None:
        self.recording = recording
        self.loop = loop
        self.specs = specs
        self.also = also
        self.patience_ms = patience_ms
        self.bus = bus
        self.own_namespace = own_namespace
        self._late_s = max(LATE_S, patience_ms / 1000)

    async def run(self) -> Report:
        """Play all runs; raises ConfigError where a scheduler or the loop cannot be started."""
        # Late: amplifier_core takes a while to load, and --help should not.
        from toolgate_orchestrator.gate.gate import Gate
        from toolgate_orchestrator.replay.session import ReplayedRun, ReplayOptions, check_loop, replay_run

        check_loop(self.loop)
        async with AsyncExitStack() as stack:
            if self.own_namespace:
                await stack.enter_async_context(removed_afterwards(self.bus))
            running = await stack.enter_async_context(scheduler_processes(self.specs, self.bus))
            toolgate = self._toolgate([one.name for one in running])
            # Held open over all runs, so that their sessions share one connection.
            await stack.enter_async_context(Gate.open(**toolgate))
            options = ReplayOptions(self.loop, toolgate, self.also)
            began, runs = time.monotonic(), list[ReplayedRun]()
            with _progress(len(self.recording.runs)) as advance:
                for run in self.recording.runs:
                    # Who did not answer after all in the last run is not waited for again.
                    late_s = self._late_s if not runs or runs[-1].settled else 0.0
                    runs.append(await replay_run(self.recording, run, options, late_s))
                    advance()
            words = {one.name: one.words() for one in running}
            return report_on(self.recording.source, self.loop, time.monotonic() - began, runs, words)

    def _toolgate(self, required: list[str]) -> dict[str, Any]:
        config: dict[str, Any] = {
            "redis": self.bus.redis,
            "namespace": self.bus.namespace,
            "agent": "replay",
            "labels": {"replay": Path(self.recording.source).name[:200]},
            "required": required,
            "patience_ms": self.patience_ms,
        }
        return config | ({"keys": str(self.bus.keys)} if self.bus.keys else {})


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A bar on a terminal, a line at each quarter elsewhere; on stderr, so that results stay clean."""
    if err_console.is_terminal and not err_console.is_dumb_terminal:
        columns = (
            TextColumn("Replaying"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=err_console, transient=True) as bar:
            task = bar.add_task("", total=total)
            yield lambda: bar.advance(task)
        return
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if done * 4 // total > (done - 1) * 4 // total:
            err_console.print(f"Replayed {done} of {total} runs")

    yield advance
