"""One set of schedulers with a gate before it, to which the runs of a recording are played one by one."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from toolgate_bus.commands.options import err_console
from toolgate_bus.facts.recording import Run, RunArchive
from toolgate_bus.server.settings import BusSettings

from toolgate_orchestrator.commands.host.scheduler_processes import (
    RunningScheduler,
    SchedulerSpec,
    remove_namespace_on_exit,
    scheduler_processes,
)
from toolgate_orchestrator.commands.replay.session import ReplayedRun, ReplayOptions, replay_run
from toolgate_orchestrator.decision.gate import Gate

LATE_S = 1.0
"""Longest wait for missing verdicts at the end of a run, in seconds; it tells late from silent."""


@dataclass(frozen=True, slots=True)
class Side:
    """Schedulers of a replay, and their bus."""

    bus: BusSettings
    specs: Sequence[SchedulerSpec] = ()
    """Schedulers to start; if empty, the living ones of the namespace rule."""
    own_namespace: bool = False
    """True if the namespace was made for this side and is deleted with it."""
    loop: str = "loop-events"
    also: tuple[str, ...] = ()
    patience_ms: int = 2000
    hold_s: float | None = None
    """Longest hold of a call in seconds; None is the gate's own default."""
    tag: str | None = None


@dataclass(slots=True)
class RunningSide:
    """A side that is ready."""

    side: Side
    recording: RunArchive
    running: list[RunningScheduler]
    options: ReplayOptions
    played: list[ReplayedRun] = field(default_factory=list)

    async def play(self, run: Run) -> ReplayedRun:
        """Play one run to its end."""
        late_s = max(LATE_S, self.side.patience_ms / 1000)
        # After a run in which verdicts never came, do not wait for them again.
        settled = not self.played or self.played[-1].settled
        self.played.append(await replay_run(self.recording, run, self.options, late_s if settled else 0.0))
        return self.played[-1]

    def words(self) -> dict[str, str]:
        """Return the end of the stderr of each of its schedulers."""
        return {one.name: one.words() for one in self.running}


@asynccontextmanager
async def open_side(side: Side, recording: RunArchive) -> AsyncIterator[RunningSide]:
    """Start the schedulers and keep the gate's connection open. Raise ConfigError or ToolgateError."""
    async with AsyncExitStack() as stack:
        if side.own_namespace:
            await stack.enter_async_context(remove_namespace_on_exit(side.bus))
        running = await stack.enter_async_context(scheduler_processes(side.specs, side.bus))
        limits = limits_of(running)
        config: dict[str, Any] = {
            "redis": side.bus.redis,
            "namespace": side.bus.namespace,
            "agent": "replay",
            "labels": {"replay": Path(recording.source).name[:200]},
            "required": list(limits),
            "schedulers": limits,
            "patience_ms": side.patience_ms,
        }
        config |= {"max_hold_s": side.hold_s} if side.hold_s is not None else {}
        toolgate = config | ({"keys": str(side.bus.keys)} if side.bus.keys else {})
        # Held open over all runs, so that their sessions share one connection.
        await stack.enter_async_context(Gate.open(**toolgate))
        yield RunningSide(side, recording, running, ReplayOptions(side.loop, toolgate, side.also, side.tag))


def limits_of(running: Sequence[RunningScheduler]) -> dict[str, dict[str, Any]]:
    """Return the `schedulers:` section of a plan that asks each of these schedulers only about its tools.

    A gate does not trust what the bus says about a required scheduler's tools. It can trust what its own
    processes said.
    """
    limits: dict[str, dict[str, Any]] = {}
    for one in running:
        limits.setdefault(one.name, {"tools": []})["tools"] += one.tools
    return limits


@contextmanager
def progress(total: int, what: str = "runs", *, quiet: bool = False) -> Iterator[Callable[[], None]]:
    """Show progress: a bar on a terminal, else a line at each quarter. Yield a function to call for each one
    done."""
    if quiet:
        yield lambda: None
        return
    if err_console.is_terminal and not err_console.is_dumb_terminal:
        columns = (
            TextColumn("Replaying"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(what),
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
            err_console.print(f"Replayed {done} of {total} {what}")

    yield advance
