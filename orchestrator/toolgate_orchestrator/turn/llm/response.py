"""Assembles a response from the pieces that a provider streams.

It takes events in the form of the kernel's streaming_event_v1 (text.delta, thinking.delta,
tool_call.start/delta/end, message.end, error), the plain chunks of older providers (`{"content": …,
"block_type": …}`), `ToolCall` objects, and a final `ChatResponse`. It ignores anything else. Text, and each
complete call, can be announced at once; `response` is the whole.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from amplifier_core import ChatResponse, LLMError, TextBlock, ToolCallBlock, Usage
from amplifier_core.message_models import ThinkingBlock
from pydantic import ValidationError

from toolgate_orchestrator.turn.values.jsonable import MAX_CHARS, readable
from toolgate_orchestrator.turn.values.messages import text_of
from toolgate_orchestrator.turn.values.raw_call import EXECUTION_MODE, plain_call


class Text(NamedTuple):
    """A further piece of the answer's text."""

    text: str
    kind: str = "text"
    """Kind of the text: `text` or `thinking`."""
    signature: str = ""
    """Signature of the provider on whole thinking; empty without one."""


class CompletedCall(NamedTuple):
    """A tool call that is complete."""

    raw: dict[str, Any]
    """Normalised call: id, name, arguments, and the problem if there is one (`raw_call`)."""


Piece = Text | CompletedCall


class ResponseAssembler:
    """Assembler of one response."""

    def __init__(self) -> None:
        self.final: Any | None = None
        """The provider's own final response; None without one."""
        self._blocks: list[Text | CompletedCall] = []
        self._open: dict[str, dict[str, Any]] = {}
        self._seen: set[str] = set()
        self._usage: Any = None
        self._finish: str | None = None
        self._chars = 0

    @property
    def empty(self) -> bool:
        """True if nothing has come."""
        return self.final is None and not self._blocks and not self._open and self._finish is None

    @property
    def text(self) -> str:
        """Text so far, without thinking."""
        return "".join(one.text for one in self._blocks if isinstance(one, Text) and one.kind == "text")

    def feed(self, event: Any) -> list[Piece]:
        """Take one event, and return the new pieces. Raise LLMError for an error event and for too long a
        response."""
        if isinstance(event, ChatResponse):
            return self._take_final_response(event)
        if not isinstance(event, Mapping):
            return self._call(event) if getattr(event, "name", None) else []
        kind = event.get("type")
        if kind in ("text.delta", "thinking.delta"):
            return self._text(event.get("text", event.get("delta")), str(kind).partition(".")[0])
        if isinstance(kind, str) and kind.startswith("tool_call."):
            return self._call_event(kind, event)
        if kind == "message.end":
            self._usage, self._finish = event.get("usage"), str(event.get("finish_reason") or "stop")
        elif kind == "error":
            raise _parse_error(event.get("error", event))
        elif kind is None and event.get("block_type") in (None, "text", "thinking"):
            return self._text(event.get("content"), event.get("block_type") or "text")
        return []

    def close(self) -> list[Piece]:
        """End the stream, and return the calls that were begun and never ended: they count as complete."""
        return [piece for call_id in list(self._open) for piece in self._end_call(call_id, {})]

    @property
    def calls(self) -> list[Any]:
        """The raw calls, in the order of their completion."""
        return [one.raw for one in self._blocks if isinstance(one, CompletedCall)]

    @property
    def response(self) -> Any:
        """The whole response: the provider's own, else one made of the pieces."""
        return self._assemble(self._blocks) if self.final is None else self.final

    @property
    def begun(self) -> Any:
        """The part so far of a response that breaks off: its text and calls. Thinking and the provider's
        state are left out, as providers take them back only whole."""
        return self._assemble(
            [one for one in self._blocks if isinstance(one, CompletedCall) or one.kind == "text"]
        )

    def _assemble(self, blocks: list[Piece]) -> ChatResponse:
        content: list[Any] = []
        for one in _merge_texts(blocks):
            if isinstance(one, CompletedCall):
                raw = one.raw
                content.append(ToolCallBlock(id=raw["id"], name=raw["name"], input=raw["arguments"]))
            elif one.kind == "text":
                content.append(TextBlock(text=one.text))
            else:
                content.append(ThinkingBlock(thinking=one.text))
        usage = _usage(self._usage if self.final is None else self.final.usage)
        return ChatResponse(content=content, usage=usage, finish_reason=self._finish)

    # ------------------------------------------------------------------ the kinds of events

    def _text(self, text: Any, kind: str) -> list[Piece]:
        if not isinstance(text, str) or not text:
            return []
        self._count(len(text))
        self._blocks.append(Text(readable(text), kind))
        return [self._blocks[-1]]

    def _call_event(self, kind: str, event: Mapping[str, Any]) -> list[Piece]:
        call_id = plain_call({"id": event.get("id") or event.get("tool_call_id")})["id"] or str(
            len(self._seen)
        )
        if kind == "tool_call.end":
            return self._end_call(call_id, event)
        begun = self._open.setdefault(call_id, {"id": call_id, "name": "", "parts": []})
        begun["name"] = event.get("name") or begun["name"]
        fragment = event.get("arguments_fragment", event.get("delta"))
        if isinstance(fragment, str):
            self._count(len(fragment))
            begun["parts"].append(fragment)
        return []

    def _end_call(self, call_id: str, event: Mapping[str, Any]) -> list[Piece]:
        begun = self._open.pop(call_id, {"name": "", "parts": []})
        arguments = event.get("arguments")
        raw = {
            "id": call_id,
            "name": event.get("name") or begun["name"],
            "arguments": "".join(begun["parts"]) if arguments is None else arguments,
            EXECUTION_MODE: event.get(EXECUTION_MODE),
        }
        return self._call(raw)

    def _call(self, raw: Any) -> list[Piece]:
        done = CompletedCall(plain_call(raw))
        self._count(len(done.raw["name"]))
        self._seen.add(done.raw["id"])
        self._blocks.append(done)
        return [done]

    def _take_final_response(self, response: ChatResponse) -> list[Piece]:
        """Take the provider's final response, and return what it holds beyond the stream."""
        new: list[Piece] = []
        if not self.text and (text := text_of(response)):
            new += self._text(text, "text")
        for call in response.tool_calls or ():
            if (plain := plain_call(call))["id"] not in self._seen:
                new += self._call(plain)
        self.final = response
        return new

    def _count(self, chars: int) -> None:
        self._chars += chars
        if self._chars > MAX_CHARS:
            raise LLMError(f"the response is longer than {MAX_CHARS} characters")


def _parse_error(error: Any) -> LLMError:
    """Return the error in an error event."""
    if not isinstance(error, Mapping):
        return LLMError(str(error))
    message = str(error.get("message") or error.get("msg") or error.get("type") or "the stream failed")
    status = error.get("status_code")
    return LLMError(
        message,
        retryable=error.get("retryable") is True,
        status_code=status if isinstance(status, int) else None,
    )


def _merge_texts(blocks: list[Piece]) -> list[Piece]:
    """Join neighbouring texts of one kind."""
    parts: list[tuple[str, list[str]]] = []
    joined: list[Piece] = []
    for one in [*blocks, None]:
        if isinstance(one, Text) and parts and parts[-1][0] == one.kind:
            parts[-1][1].append(one.text)
            continue
        joined += [Text("".join(texts), kind) for kind, texts in parts]
        parts = [(one.kind, [one.text])] if isinstance(one, Text) else []
        if isinstance(one, CompletedCall):
            joined.append(one)
    return joined


def _usage(told: Any) -> Usage | None:
    if isinstance(told, Usage):
        return told
    if not isinstance(told, Mapping):
        return None
    try:
        return Usage.model_validate({"input_tokens": 0, "output_tokens": 0, "total_tokens": 0, **told})
    except ValidationError:
        return None  # an invalid count; the answer is still valid
