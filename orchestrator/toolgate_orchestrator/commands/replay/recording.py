"""Recorded agent runs as values: what the LLM said and what the tools returned, turn by turn. Pure.

A `Run` is a list of `RecordedTurn`s; each is one `session.execute()`. `RunArchive` is a file's runs, and
knows which result was recorded for which tool and arguments. How messages become turns is
`recording_turns`'s affair, files and their errors `recording_file`'s, playing them back `playback`'s.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One tool call of a run, at its place."""

    position: int
    """Counted from 0 through the whole run."""
    id: str
    """Unique in the run: a repeated recorded id gets a suffix."""
    tool: str
    arguments: dict[str, Any]
    result: str | None
    """What the tool really returned; None where nothing was recorded for this call."""


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """One assistant message: text, tool calls, or both."""

    text: str
    calls: tuple[RecordedCall, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """A message that only goes into the context: system messages, and all but a turn's last prompt."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """What one `session.execute()` replays."""

    before: tuple[ContextMessage, ...]
    prompt: str | None
    """None where the LLM spoke without a user message; the turn then starts with an empty prompt."""
    said: tuple[AssistantMessage, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded run, ready to be played."""

    number: int
    """Counted from 1 through the file."""
    name: str
    turns: tuple[RecordedTurn, ...]
    tools: tuple[str, ...]
    """Every tool name in the run, in order of appearance."""
    trailing_users: int = 0
    """User messages at the end that nothing answers; they are skipped and reported."""
    stray_results: int = 0
    """Tool messages that belong to no call."""

    @property
    def calls(self) -> Iterator[RecordedCall]:
        """Every tool call, in order."""
        return (call for turn in self.turns for said in turn.said for call in said.calls)


def arguments_key(arguments: dict[str, Any]) -> str:
    """The same text for equal arguments, whatever the order of their names."""
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True)
class RunArchive:
    """All runs of a file, and what its tools returned for which arguments."""

    source: str
    runs: tuple[Run, ...]
    _by_run: dict[int, dict[tuple[str, str], str]] = field(default_factory=dict, repr=False)
    _anywhere: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for run in self.runs:
            here = self._by_run.setdefault(run.number, {})
            for call in run.calls:
                if call.result is not None:
                    key = call.tool, arguments_key(call.arguments)
                    here.setdefault(key, call.result)
                    self._anywhere.setdefault(key, call.result)

    @property
    def tools(self) -> tuple[str, ...]:
        """Every tool name in the file, in order of appearance."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.tools))

    def find_result(self, run: Run, tool: str, arguments: dict[str, Any]) -> tuple[str, str] | None:
        """The first result recorded for this tool and these arguments, and where: `run`, else `file`."""
        key = tool, arguments_key(arguments)
        if (here := self._by_run[run.number].get(key)) is not None:
            return here, "run"
        if (there := self._anywhere.get(key)) is not None:
            return there, "file"
        return None
