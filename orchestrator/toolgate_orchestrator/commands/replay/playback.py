"""One recorded run being played: which message the LLM says next, what a tool returns.

The provider asks `say`, the tools ask `serve`, the loop's `tool:selected` tells `begin_call`; the
session says which turn begins. What happened to each call is kept as a `Trace`. A tool knows which
call it runs for by its id; under a loop that does not say, a call is recognised by what `begin_call`
told about it, else by tool and arguments, else by order. `toolgate replay` puts a `Playback` into the
session before it is initialised; in a mount plan of one's own the modules take `{file: runs.jsonl, run: 3}`
(counted from 1) and share what the first of them made.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from toolgate_bus.config.check import StrictModel, check
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.replay import recording_file
from toolgate_orchestrator.commands.replay.recording import (
    AssistantMessage,
    RecordedCall,
    Run,
    RunArchive,
    arguments_key,
)

Source = Literal["recorded", "run", "file", "unrecorded", "missing"]
"""Where a result came from: the call's own; for a rerouted call another call of the run, or of the
file, else the original's (`unrecorded`); `missing` where the record has none for this call."""

CAPABILITY = "toolgate.playback"


@dataclass(frozen=True, slots=True)
class PlaybackResult:
    """What one execution of a tool returned, and for what."""

    tool: str
    arguments: dict[str, Any]
    text: str
    source: Source


@dataclass(slots=True)
class Trace:
    """What became of one recorded call."""

    call: RecordedCall
    executions: list[PlaybackResult] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    """The results the LLM's next request held for it: one, or the loop is wrong."""


@dataclass(slots=True)
class _PendingExecution:
    trace: Trace
    tool: str
    key: str


class Playback:
    """The state of one run's replay."""

    def __init__(self, recording: RunArchive, run: Run) -> None:
        self.recording = recording
        self.run = run
        self.traces: list[Trace] = []
        """Of the calls the LLM has made so far, in order."""
        self.disordered: list[tuple[str, ...]] = []
        """Blocks of calls (by id) whose results did not reach the LLM in their order."""
        self._turn = 0
        self._next = 0
        self._starting: list[_PendingExecution] = []
        self._unheard: tuple[RecordedCall, ...] = ()

    def begin_turn(self, index: int) -> None:
        """The loop starts on this turn; whatever was left of another one is not said any more."""
        self._turn, self._next = index, 0

    def say(self) -> AssistantMessage:
        """The LLM's next message: as recorded, and an empty final text past the turn's last one."""
        said = self.run.turns[self._turn].said if self._turn < len(self.run.turns) else ()
        message = said[self._next] if self._next < len(said) else AssistantMessage("")
        self._next += 1
        if not message.calls:
            self._turn, self._next = self._turn + 1, 0
        self.traces += [Trace(call) for call in message.calls]
        self._unheard = message.calls
        return message

    def unsaid(self, index: int) -> int:
        """How many recorded messages of this turn the loop has not asked for, if it is the current one."""
        return len(self.run.turns[index].said) - self._next if index == self._turn else 0

    def hear(self, results: Iterable[tuple[str, str]]) -> None:
        """The tool results (call id, text) a request holds; checks those of the last calls once."""
        calls, self._unheard = {call.id: call for call in self._unheard}, ()
        told = [(call_id, text) for call_id, text in results if call_id in calls]
        for trace in self.traces[-len(calls) :] if calls else ():
            trace.answers += [text for call_id, text in told if call_id == trace.call.id]
        order = tuple(dict.fromkeys(call_id for call_id, _ in told))
        if order != tuple(call_id for call_id in calls if call_id in order):
            self.disordered.append(tuple(calls))

    def begin_call(self, call_id: str, tool: str, arguments: dict[str, Any]) -> None:
        """The loop is about to run this call (perhaps as another tool, with other arguments)."""
        for trace in reversed(self.traces):
            if trace.call.id == call_id:
                self._starting.append(_PendingExecution(trace, tool, arguments_key(arguments)))
                return

    def serve(self, tool: str, arguments: dict[str, Any], call_id: str | None = None) -> PlaybackResult:
        """What the tool returns: the call's own result, or for a rerouted one the best recorded."""
        trace = self._trace_of(tool, arguments, call_id)
        text, source = self._result(trace, tool, arguments)
        served = PlaybackResult(tool, arguments, text, source)
        if trace is not None:
            trace.executions.append(served)
        return served

    def _trace_of(self, tool: str, arguments: dict[str, Any], call_id: str | None) -> Trace | None:
        known = next((one for one in reversed(self.traces) if one.call.id == call_id), None)
        if known is not None:
            self._starting = [one for one in self._starting if one.trace is not known]
            return known
        key = arguments_key(arguments)
        exact = [one for one in self._starting if (one.tool, one.key) == (tool, key)]
        if begun := exact or [one for one in self._starting if one.tool == tool]:
            self._starting.remove(begun[0])
            return begun[0].trace
        waiting = [trace for trace in self.traces if not trace.executions and not trace.answers]
        same = [trace for trace in waiting if trace.call.tool == tool]
        exactly = [trace for trace in same if arguments_key(trace.call.arguments) == key]
        return next(iter(exactly or same or waiting), None)

    def _result(self, trace: Trace | None, tool: str, arguments: dict[str, Any]) -> tuple[str, Source]:
        call = trace.call if trace else None
        if call and call.tool == tool and arguments_key(call.arguments) == arguments_key(arguments):
            return (call.result, "recorded") if call.result is not None else ("", "missing")
        if found := self.recording.find_result(self.run, tool, arguments):
            return found[0], "run" if found[1] == "run" else "file"
        return (call.result if call and call.result is not None else ""), "unrecorded"


class ReplayConfig(StrictModel):
    """Config of `provider-replay` and `tool-replay`; needed only where no host provides the run."""

    file: Path | None = None
    run: Annotated[int, Field(ge=1)] = 1
    also: tuple[str, ...] = ()
    """Further tools to mount (tool-replay): targets of a router that do not occur in the file."""


def playback_of(
    coordinator: Any, module: str, options: dict[str, Any] | None
) -> tuple[Playback, ReplayConfig]:
    """The run this session plays, and the module's config as read.

    Raises ConfigError that names each wrong field, and where neither host nor config names a run.
    """
    config = check(ReplayConfig, options or {}, module)
    playback = coordinator.get_capability(CAPABILITY)
    if isinstance(playback, Playback):
        return playback, config
    if config.file is None:
        raise ConfigError("file: name the JSON Lines file of recorded runs to play")
    recording = recording_file.load(config.file)
    if config.run > len(recording.runs):
        raise ConfigError(f"run: {config.file} holds {len(recording.runs)} runs, there is no {config.run}")
    playback = Playback(recording, recording.runs[config.run - 1])
    coordinator.register_capability(CAPABILITY, playback)
    return playback, config
