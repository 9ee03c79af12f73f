"""Recorded agent runs as values: what the LLM said and what the tools returned, turn by turn. Pure.

A `Run` is a list of `RecordedTurn`s; each is one `session.execute()`. `RunArchive` is a file's runs, and
knows which result was recorded for which tool and arguments. Files and their errors are `recording_file`'s
affair, playing them back `playback`'s.

`read_run` makes a `Run` of recorded messages. Results belong to calls by their place, not by id, for recorded
ids repeat: within the block of one assistant message the id (then the name, then the order) tells parallel
results apart; only a result that the block has no use for may still answer an older call, by its id.
"""

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolgate_orchestrator.commands.replay.recorded_message import RecordedMessage, RecordedToolCall


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


def read_run(number: int, name: str, messages: Sequence[RecordedMessage]) -> Run:
    """Cut checked messages into turns and give every call its id and result."""
    blocks = _number_calls(messages)
    results, strays = _match_results(messages, blocks)
    turns, trailing = _cut(messages, blocks, results)
    names: dict[str, None] = {}  # of calls, and of results that carry one
    for message in messages:
        names.update(dict.fromkeys(call.tool for call in message.calls))
        if message.is_result and message.name:
            names[message.name] = None
    return Run(number, name, turns, tuple(names), trailing, strays)


@dataclass(frozen=True, slots=True)
class _PlacedCall:
    """A recorded call with its place, before its result is known."""

    position: int
    id: str
    recorded: RecordedToolCall


_Blocks = dict[int, list[_PlacedCall]]
"""The calls of each assistant message, by the message's index."""


def _number_calls(messages: Sequence[RecordedMessage]) -> _Blocks:
    """Give each call its position and an id that no other call of the run has."""
    pairs = [(at, call) for at, message in enumerate(messages) for call in message.calls]
    recorded = {call.id for _, call in pairs if call.id}
    used: set[str] = set()
    blocks: _Blocks = defaultdict(list)
    for position, (at, call) in enumerate(pairs):
        call_id = wanted = call.id or f"call-{position + 1}"
        if call.id is None or call.id in used:  # the first suffix that nobody has
            suffixes = (f"{wanted}-{count}" for count in itertools.count(2))
            call_id = next(one for one in itertools.chain([wanted], suffixes) if one not in used | recorded)
        used.add(call_id)
        blocks[at].append(_PlacedCall(position, call_id, call))
    return blocks


def _match_results(messages: Sequence[RecordedMessage], blocks: _Blocks) -> tuple[dict[int, str], int]:
    """Result text by position of its call, and how many tool messages belong to none."""
    results: dict[int, str] = {}
    older: dict[str, list[_PlacedCall]] = defaultdict(list)
    block: list[_PlacedCall] = []
    pending: list[RecordedMessage] = []
    strays = 0
    for at, message in enumerate(messages):
        if message.is_result:
            pending.append(message)
        elif message.role == "assistant":
            strays += _match_block(pending, block, older, results)
            for call in block:
                older[call.recorded.id or ""].append(call)
            pending, block = [], blocks.get(at, [])
    return results, strays + _match_block(pending, block, older, results)


_MatchPredicate = Callable[[_PlacedCall, RecordedMessage], bool]


def _match_block(
    pending: list[RecordedMessage],
    block: Sequence[_PlacedCall],
    older: dict[str, list[_PlacedCall]],
    results: dict[int, str],
) -> int:
    """Match the results that stand between two assistant messages; how many are left over."""

    def match(calls: Callable[[RecordedMessage], Iterable[_PlacedCall]], agrees: _MatchPredicate) -> None:
        for said in list(pending):
            for call in calls(said):
                if call.position not in results and agrees(call, said):
                    results[call.position] = said.text
                    pending.remove(said)
                    break

    match(lambda said: block, lambda call, said: _same_id(call, said) and call.recorded.tool == said.name)
    match(lambda said: block, _same_id)
    match(lambda said: reversed(older.get(said.tool_call_id or "", [])), _same_id)
    match(lambda said: block, lambda call, said: call.recorded.tool == said.name)
    match(lambda said: block, lambda call, said: said.name is None)
    return len(pending)


def _same_id(call: _PlacedCall, said: RecordedMessage) -> bool:
    return said.tool_call_id is not None and call.recorded.id == said.tool_call_id


@dataclass(slots=True)
class _OpenTurn:
    before: list[ContextMessage] = field(default_factory=list)
    prompt: str | None = None
    said: list[AssistantMessage] = field(default_factory=list)
    next_before: list[ContextMessage] = field(default_factory=list)

    def add(self, message: RecordedMessage, calls: tuple[RecordedCall, ...]) -> None:
        """Put one message where it belongs; what comes after the LLM spoke waits for the next turn."""
        if message.role == "assistant":
            self.said.append(AssistantMessage(message.text, calls))
        elif message.role == "user":
            if self.prompt is not None:
                self.before.append(ContextMessage("user", self.prompt))
            self.prompt = message.text
        else:
            (self.next_before if self.said else self.before).append(
                ContextMessage(message.role, message.text)
            )

    def close(self) -> RecordedTurn:
        """The turn as a value."""
        return RecordedTurn(tuple(self.before), self.prompt, tuple(self.said))


def _cut(
    messages: Sequence[RecordedMessage], blocks: _Blocks, results: dict[int, str]
) -> tuple[tuple[RecordedTurn, ...], int]:
    """The turns, and how many user messages at the end nothing answers."""
    turns: list[RecordedTurn] = []
    turn = _OpenTurn()
    for at, message in enumerate(messages):
        if message.is_result:
            continue
        # A user message starts a turn; so does an assistant message after one that called no tool.
        if turn.said and (
            message.role == "user" or (message.role == "assistant" and not turn.said[-1].calls)
        ):
            turns.append(turn.close())
            turn = _OpenTurn(before=turn.next_before)
        calls = [
            RecordedCall(
                one.position, one.id, one.recorded.tool, one.recorded.arguments, results.get(one.position)
            )
            for one in blocks.get(at, ())
        ]
        turn.add(message, tuple(calls))
    if turn.said:
        return (*turns, turn.close()), 0
    skipped = sum(spoken.role == "user" for spoken in turn.before) + (turn.prompt is not None)
    return tuple(turns), skipped
