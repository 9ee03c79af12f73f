"""Plays one recorded run: chooses the LLM's next message and each tool's result.

The provider calls `say`, the tools call `serve`, the loop's `tool:selected` calls `begin_call`, and the
session says which turn begins. A `Trace` keeps what happened to each call. A tool learns by id which call it
runs for. A loop may not pass the id: then the call is recognised by the last `begin_call`, else by tool and
arguments, else by order. `toolgate replay` puts a `Playback` into the session before it is initialised. In a
mount plan of your own, the modules take `{file: runs.jsonl, run: 3}` (counted from 1), and share the Playback
that the first of them makes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from toolgate_bus.config.check import StrictModel, check
from toolgate_bus.errors import ConfigError
from toolgate_bus.facts import recording_file
from toolgate_bus.facts.recording import (
    AssistantMessage,
    RecordedCall,
    Run,
    RunArchive,
    arguments_key,
)

Source = Literal["recorded", "run", "file", "unrecorded", "missing"]
"""Source of a result.

`recorded` is the call's own result. For a rerouted call it is another call of the run (`run`) or of the file
(`file`), else the original's result (`unrecorded`). `missing` means that the record has no result for the
call.
"""

CAPABILITY = "toolgate.playback"


@dataclass(frozen=True, slots=True)
class PlaybackResult:
    """Result of one execution of a tool, with the call that ran."""

    tool: str
    arguments: dict[str, Any]
    text: str
    source: Source


@dataclass(slots=True)
class Trace:
    """Record of what happened to one recorded call."""

    call: RecordedCall
    executions: list[PlaybackResult] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    """Results for the call in the LLM's next request. A correct loop gives exactly one."""


@dataclass(slots=True)
class _PendingExecution:
    trace: Trace
    tool: str
    key: str


class Playback:
    """State of one run's replay."""

    def __init__(self, recording: RunArchive, run: Run) -> None:
        self.recording = recording
        self.run = run
        self.traces: list[Trace] = []
        """Traces of the calls that the LLM has made so far, in order."""
        self.disordered: list[tuple[str, ...]] = []
        """Blocks of calls, by id, whose results reached the LLM out of order."""
        self._turn = 0
        self._next = 0
        self._starting: list[_PendingExecution] = []
        self._unheard: tuple[RecordedCall, ...] = ()

    def begin_turn(self, index: int) -> None:
        """Start a turn; messages that were left of another turn are dropped."""
        self._turn, self._next = index, 0

    def say(self) -> AssistantMessage:
        """Return the LLM's next message as recorded, or an empty final text after the turn's last one."""
        said = self.run.turns[self._turn].said if self._turn < len(self.run.turns) else ()
        message = said[self._next] if self._next < len(said) else AssistantMessage("")
        self._next += 1
        if not message.calls:
            self._turn, self._next = self._turn + 1, 0
        self.traces += [Trace(call) for call in message.calls]
        self._unheard = message.calls
        return message

    def unsaid(self, index: int) -> int:
        """Return how many messages of this turn the loop has not asked for; 0 if it is not the current
        turn."""
        return len(self.run.turns[index].said) - self._next if index == self._turn else 0

    def hear(self, results: Iterable[tuple[str, str]]) -> None:
        """Take the tool results (call id, text) in a request, and check those of the last calls once."""
        calls, self._unheard = {call.id: call for call in self._unheard}, ()
        told = [(call_id, text) for call_id, text in results if call_id in calls]
        for trace in self.traces[-len(calls) :] if calls else ():
            trace.answers += [text for call_id, text in told if call_id == trace.call.id]
        order = tuple(dict.fromkeys(call_id for call_id, _ in told))
        if order != tuple(call_id for call_id in calls if call_id in order):
            self.disordered.append(tuple(calls))

    def begin_call(self, call_id: str, tool: str, arguments: dict[str, Any]) -> None:
        """Note that the loop is about to run this call, perhaps as another tool or with other arguments."""
        for trace in reversed(self.traces):
            if trace.call.id == call_id:
                self._starting.append(_PendingExecution(trace, tool, arguments_key(arguments)))
                return

    def serve(self, tool: str, arguments: dict[str, Any], call_id: str | None = None) -> PlaybackResult:
        """Return the tool's result: the call's own, or for a rerouted call the best recorded one."""
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
    """Config of `provider-replay` and `tool-replay`. It is needed only if the host provides no run."""

    file: Path | None = None
    run: Annotated[int, Field(ge=1)] = 1
    also: tuple[str, ...] = ()
    """Further tools that `tool-replay` mounts: targets of a router that do not occur in the file."""


def playback_of(
    coordinator: Any, module: str, options: dict[str, Any] | None
) -> tuple[Playback, ReplayConfig]:
    """Return the run that this session plays, and the module's config.

    Raise ConfigError that names each wrong field, or if neither host nor config names a run.
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
