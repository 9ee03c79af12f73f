"""Turn the chunks of a chat completion into stream events, and join them to the whole answer. Pure.

    chunk ─▶ ChunkAssembler.feed ─▶ [text.delta, thinking.delta, tool_call.start/delta/end …]
      end ─▶ ChunkAssembler.close: open calls end; an answer that broke off is an error

A call is reported complete (`tool_call.end`) as soon as its arguments are a whole, non-empty JSON object,
with its closing brace, so that a loop can start it while the LLM still writes the next one. An empty object
waits for the next call (some proxies begin with `{}` and go on). All other arguments, bad JSON included,
wait for the end, as fragments of several calls may come interleaved. Bad JSON is reported as text. Calls are
told apart by index, and by id if a server gives all of them one index. (The SDK's ChatCompletionStreamState
does none of this.)
"""

import json
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from toolgate_bus.protocol.json_values import UnreadableJson, read_json

logger = logging.getLogger(__name__)

MAX_CHARS = 16 * 1024 * 1024
"""Maximum number of characters of text, thinking and arguments together: an endless answer must not fill the
memory."""
MAX_CALLS = 512
_EARLY_TRIES = 4
"""Maximum number of times that a call's arguments are parsed before its end."""

Event = dict[str, Any]


@dataclass(slots=True)
class ObjectEnd:
    """Scanner of JSON fragments for the brace that closes the outermost object; linear in their length."""

    closed: bool = False
    """True if every bracket that was opened is closed again."""
    _depth: int = 0
    _in_string: bool = False
    _escaped: bool = False

    def feed(self, fragment: str) -> bool:
        """Take a fragment; return True if it closed a bracket and none is open now."""
        closing = False
        for char in fragment:
            if self._in_string:
                self._string(char)
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                closing = True
        self.closed = (self.closed or closing) and self._depth == 0 and not self._in_string
        return closing and self.closed

    def _string(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False


def arguments_of(raw: str) -> dict[str, Any] | None:
    """Return the arguments in a text; None if it is no JSON object that all programs read alike.

    An empty text, and `null`, mean no arguments. An empty object in front of the real one is dropped: some
    proxies begin every call with one.
    """
    text = raw.strip()
    if text in ("", "null"):
        return {}
    for candidate in (text, text.removeprefix("{}")):
        try:
            value = read_json(candidate)
        except UnreadableJson:
            continue
        if isinstance(value, dict):
            if "\\ud" in raw.lower():  # lone surrogates: JSON allows them, UTF-8 does not
                value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
            return cast("dict[str, Any]", value)
    return None


class BadReply(Exception):  # noqa: N818 - becomes an LLMError at the edge
    """The server's answer makes no sense; `retryable` if another try may succeed."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


@dataclass(slots=True)
class JoinedCall:
    """Tool call that is coming in."""

    id: str
    wire_id: str | None
    name: str = ""
    parts: list[str] = field(default_factory=list)
    done: bool = False
    begun: bool = False
    """True if its beginning was reported."""
    end: ObjectEnd = field(default_factory=ObjectEnd)
    tries: int = 0

    @property
    def raw(self) -> str:
        """Arguments as text."""
        return "".join(self.parts)

    @property
    def arguments(self) -> dict[str, Any] | str:
        """Arguments; as text if they are no JSON object."""
        parsed = arguments_of(self.raw)
        return self.raw if parsed is None else parsed


class ChunkAssembler:
    """Assembler of one answer; an answer in one piece counts as a single chunk."""

    def __init__(self, original: Callable[[str], str] = lambda name: name) -> None:
        self.id: str | None = None
        self.model: str | None = None
        self.finish_reason: str | None = None
        self.usage: Mapping[str, Any] | None = None
        self.calls: list[JoinedCall] = []
        """Complete calls, in the order in which they were complete."""
        self._original = original
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._at: dict[int, JoinedCall] = {}
        self._every: list[JoinedCall] = []
        self._started = False
        self._chars = 0

    @property
    def text(self) -> str:
        """Text of the answer so far."""
        return "".join(self._text)

    @property
    def thinking(self) -> str:
        """Thinking of the LLM so far, if the server tells it."""
        return "".join(self._thinking)

    def feed(self, chunk: Any) -> list[Event]:
        """Take one chunk; return its events. Raise BadReply for nonsense and for too much."""
        if not isinstance(chunk, Mapping):
            raise BadReply(f"a chunk of the answer is no JSON object, but {type(chunk).__name__}")
        self.id, self.model = self.id or _str(chunk.get("id")), self.model or _str(chunk.get("model"))
        events: list[Event] = []
        if not self._started:
            self._started = True
            events.append({"type": "message.start", "id": self.id, "model": self.model, "role": "assistant"})
        if isinstance(usage := chunk.get("usage"), Mapping):
            self.usage = usage
        choices = chunk.get("choices")
        # The first choice; others were not asked for.
        listed = choices if isinstance(choices, list | tuple) else ()
        choice = next((one for one in listed if isinstance(one, Mapping) and not one.get("index")), {})
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, Mapping):
            events += self._delta(delta)
        if isinstance(reason := choice.get("finish_reason"), str) and reason:
            self.finish_reason = reason
            events += self._end(self._every)
        return events

    def close(self) -> list[Event]:
        """End the answer; raise BadReply if it is not whole."""
        if self.finish_reason is None:
            raise BadReply("the answer ended before it was complete", retryable=True)
        return self._end(self._every)

    # ------------------------------------------------------------------ the parts of a chunk

    def _delta(self, delta: Mapping[str, Any]) -> list[Event]:
        thinking = _str(delta.get("reasoning_content")) or _str(delta.get("reasoning"))
        events = self._add_text("thinking", thinking, self._thinking)
        for kind, text in _texts(delta.get("content")):
            events += self._add_text(kind, text, self._text if kind == "text" else self._thinking)
        events += self._add_text("text", _str(delta.get("refusal")), self._text)
        calls = delta.get("tool_calls")
        for position, part in enumerate(calls if isinstance(calls, list | tuple) else ()):
            if isinstance(part, Mapping):
                events += self._part(part, position)
        return events

    def _add_text(self, kind: str, text: str | None, kept: list[str]) -> list[Event]:
        if not text:
            return []
        self._count(text)
        kept.append(text)
        return [{"type": f"{kind}.delta", "text": text}]

    def _part(self, part: Mapping[str, Any], position: int) -> list[Event]:
        """Take one fragment of one call."""
        function = part.get("function")
        told = function if isinstance(function, Mapping) else {}
        name, arguments = _str(told.get("name")), told.get("arguments")
        # Some servers send the object itself.
        fragment = json.dumps(arguments) if isinstance(arguments, Mapping) else _str(arguments) or ""
        index = part.get("index")
        key = index if isinstance(index, int) else position
        call, events = self._call(key, _str(part.get("id")), name)
        call.name = call.name or (self._original(name) if name else "")
        return events + self._more(call, fragment)

    def _call(self, key: int, wire_id: str | None, name: str | None) -> tuple[JoinedCall, list[Event]]:
        """Return the call that a fragment belongs to; if it begins one, empty calls before it end."""
        call = self._at.get(key)
        if call is not None:
            # A fragment at the same index begins another call if it has a name, and another id or none.
            other = wire_id != call.wire_id if wire_id else call.end.closed
            if not name or not other:
                return call, []
        if len(self._every) >= MAX_CALLS:
            raise BadReply(f"the answer makes more than {MAX_CALLS} tool calls")
        events = self._end([each for each in self._every if each.end.closed])
        # Make ids unique within an answer, as some servers repeat them.
        taken = {each.id for each in self._every}
        fresh = wire_id or f"call_{secrets.token_hex(12)}"
        while fresh in taken:
            fresh = f"{wire_id}_{secrets.token_hex(3)}"
        call = self._at[key] = JoinedCall(fresh, wire_id)
        self._every.append(call)
        return call, events

    def _more(self, call: JoinedCall, fragment: str) -> list[Event]:
        if call.done:
            if fragment.strip():
                logger.warning("the server sent more arguments for a tool call that was complete")
            return []
        self._count(fragment)
        events: list[Event] = []
        told = fragment
        if call.name and not call.begun:
            call.begun = True
            events.append({"type": "tool_call.start", "id": call.id, "name": call.name})
            told = call.raw + fragment
        call.parts.append(fragment)
        if call.begun and told:
            events.append({"type": "tool_call.delta", "id": call.id, "arguments_fragment": told})
        if call.end.feed(fragment):
            # Parse only a few times, not at every brace of a long text: the call may be complete now.
            call.tries += 1
            if call.name and call.tries <= _EARLY_TRIES and arguments_of(call.raw):
                events += self._end([call])
        return events

    def _end(self, calls: Iterable[JoinedCall]) -> list[Event]:
        events = []
        for call in calls:
            if not call.done:
                call.done = True
                self.calls.append(call)
                end = {"type": "tool_call.end", "id": call.id, "name": call.name, "arguments": call.arguments}
                events.append(end)
        return events

    def _count(self, text: str) -> None:
        self._chars += len(text)
        if self._chars > MAX_CHARS:
            raise BadReply(f"the answer is longer than {MAX_CHARS} characters")


def _texts(content: Any) -> Iterable[tuple[str, str]]:
    """Yield the pieces of content, each with its kind; some servers send parts instead of a text."""
    if isinstance(content, str):
        yield "text", _str(content) or ""
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, Mapping):
                thought = part.get("thinking")
                yield from (("thinking", text) for _, text in _texts(thought))
                yield "text", _str(part.get("text")) or ""


def _str(value: Any) -> str | None:
    """Return a non-empty text without lone surrogates, which the kernel refuses; else None."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and value else None
