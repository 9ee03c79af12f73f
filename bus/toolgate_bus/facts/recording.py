"""Recorded agent runs as values: the LLM's messages and the tools' results, turn by turn. Pure.

A `Run` is a list of `RecordedTurn`s; each stands for one `session.execute()`. A `RunArchive` holds a file's
runs, and finds the result that was recorded for a tool and its arguments. `recording_file` reads files, and
`playback` plays them.

`read_run` makes a `Run` of recorded messages. It matches results to calls by place, because recorded ids
repeat. Within the block of one assistant message, the id (then the name, then the order) tells parallel
results apart. Only a result that fits no call of its block may answer an older call, by id.
"""

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolgate_bus.facts.recorded_message import RecordedMessage, RecordedToolCall


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One tool call of a run, at its place."""

    position: int
    """Number of the call in the run, from 0."""
    id: str
    """Id of the call. It is unique in the run: a repeated recorded id gets a suffix."""
    tool: str
    arguments: dict[str, Any]
    result: str | None
    """Actual result of the tool; None if none was recorded."""


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """One assistant message: text, tool calls, or both."""

    text: str
    calls: tuple[RecordedCall, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """A message that only goes into the context: a system message, or any prompt but a turn's last."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """One turn, which one `session.execute()` replays."""

    before: tuple[ContextMessage, ...]
    prompt: str | None
    """Prompt of the turn. None if the LLM spoke without a user message; the turn then starts with an empty
    prompt."""
    said: tuple[AssistantMessage, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded run, ready to be played."""

    number: int
    """Number of the run in the file, from 1."""
    name: str
    turns: tuple[RecordedTurn, ...]
    tools: tuple[str, ...]
    """All tool names of the run, in order of appearance."""
    trailing_users: int = 0
    """Number of user messages at the end without an answer; they are skipped and reported."""
    stray_results: int = 0
    """Number of tool messages that belong to no call."""

    @property
    def calls(self) -> Iterator[RecordedCall]:
        """All tool calls, in order."""
        return (call for turn in self.turns for said in turn.said for call in said.calls)


def arguments_key(arguments: dict[str, Any]) -> str:
    """Return a text that is the same for equal arguments, whatever the order of their names."""
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True)
class RunArchive:
    """All runs of a file, with a search for recorded results."""

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
        """All tool names of the file, in order of appearance."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.tools))

    def find_result(self, run: Run, tool: str, arguments: dict[str, Any]) -> tuple[str, str] | None:
        """Return the first result recorded for this tool and these arguments, and its place: `run`, else
        `file`."""
        key = tool, arguments_key(arguments)
        if (here := self._by_run[run.number].get(key)) is not None:
            return here, "run"
        if (there := self._anywhere.get(key)) is not None:
            return there, "file"
        return None


def read_run(number: int, name: str, messages: Sequence[RecordedMessage]) -> Run:
    """Split checked messages into turns, and give each call its id and result."""
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
"""Calls of each assistant message, by the message's index."""


def _number_calls(messages: Sequence[RecordedMessage]) -> _Blocks:
    """Give each call its position, and an id that no other call of the run has."""
    pairs = [(at, call) for at, message in enumerate(messages) for call in message.calls]
    recorded = {call.id for _, call in pairs if call.id}
    used: set[str] = set()
    blocks: _Blocks = defaultdict(list)
    for position, (at, call) in enumerate(pairs):
        call_id = wanted = call.id or f"call-{position + 1}"
        if call.id is None or call.id in used:  # take the first free suffix
            suffixes = (f"{wanted}-{count}" for count in itertools.count(2))
            call_id = next(one for one in itertools.chain([wanted], suffixes) if one not in used | recorded)
        used.add(call_id)
        blocks[at].append(_PlacedCall(position, call_id, call))
    return blocks


def _match_results(messages: Sequence[RecordedMessage], blocks: _Blocks) -> tuple[dict[int, str], int]:
    """Return the result texts by position of the call, and the number of tool messages without a call."""
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
    """Match the results between two assistant messages to calls; return the number of results left over."""

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
        """Add one message to the turn. A message after the LLM's first one goes before the next turn."""
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
        """Return the turn as a value."""
        return RecordedTurn(tuple(self.before), self.prompt, tuple(self.said))


def _cut(
    messages: Sequence[RecordedMessage], blocks: _Blocks, results: dict[int, str]
) -> tuple[tuple[RecordedTurn, ...], int]:
    """Return the turns, and the number of user messages at the end without an answer."""
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
