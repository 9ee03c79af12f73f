"""Reads one answer from a provider: in pieces if the provider streams, else as a whole.

Each piece is announced when it comes (`content_block:*`), and the loop gets each complete call at once. If
the session is cancelled, reading stops. This module reports nothing about the request, catches no error and
stores nothing.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

from amplifier_core.events import CONTENT_BLOCK_DELTA, CONTENT_BLOCK_END, CONTENT_BLOCK_START
from pydantic import BaseModel

from toolgate_orchestrator.turn.cancellation import CancellationWatch
from toolgate_orchestrator.turn.hooks.dispatch import Emitter
from toolgate_orchestrator.turn.llm.response import CompletedCall, Piece, ResponseAssembler, Text
from toolgate_orchestrator.turn.values.jsonable import jsonable
from toolgate_orchestrator.turn.values.messages import text_of
from toolgate_orchestrator.turn.values.raw_call import plain_call, reader_of

OnCall = Callable[[dict[str, Any]], None]
"""Gets each raw tool call the moment it is complete."""

OnText = Callable[[str], Awaitable[None]]
"""Takes each piece of the answer's text as it is produced."""

_EVENTS = (CONTENT_BLOCK_START, CONTENT_BLOCK_DELTA, CONTENT_BLOCK_END)


class ContentBlocks:
    """Announces the blocks of one response to hooks: content_block:start, :delta, :end.

    A block ends when the next one begins. The last one ends with the response, and carries its usage and the
    number of blocks. Text also goes to `on_text`. A response in one piece is announced in the same way. As
    everything is known by then, each of its blocks carries usage and number.
    """

    def __init__(
        self,
        hooks: Emitter,
        provider: str,
        iteration: int,
        on_text: OnText | None = None,
        *,
        is_silent: bool = False,
    ) -> None:
        """Make the announcements of one response; silent ones if it must be ruled on first."""
        self._hooks, self._on_text = hooks, on_text
        self._told = {"provider": provider, "iteration": iteration}
        self._heard = not is_silent and any(hooks.has_listeners(event) for event in _EVENTS)
        self._open: dict[str, Any] | None = None
        self._texts: list[str] = []
        self._index = 0
        self._total: int | None = None
        self._usage: dict[str, Any] | None = None

    def foresee(self, response: Any, calls: Sequence[dict[str, Any]]) -> list[Piece]:
        """Return all pieces of a response that is whole, and note that they are known."""
        pieces: list[Piece] = [*_texts_in(response), *map(CompletedCall, calls)]
        kinds = [None if isinstance(piece, CompletedCall) else piece.kind for piece in pieces]
        self._total = sum(kind is None or kind != before for before, kind in pairwise(["", *kinds]))
        self._usage = usage_of(response)
        return pieces

    async def announce(self, response: Any, calls: Sequence[dict[str, Any]]) -> None:
        """Announce a response that was gathered."""
        for piece in self.foresee(response, calls):
            await self.take(piece)
        await self.close(self._usage)

    async def take(self, piece: Piece) -> None:
        """Announce one piece of the response."""
        if self._on_text is not None and not isinstance(piece, CompletedCall) and piece.kind == "text":
            await self._on_text(piece.text)
        if not self._heard:
            return
        if isinstance(piece, CompletedCall):
            raw, given = piece.raw, piece.raw["arguments"]
            told = {"id": raw["id"], "name": raw["name"], "arguments": given, "input": given}
            await self._begin({"type": "tool_call", **told})
            return
        if self._open is None or self._open["type"] != piece.kind:
            await self._begin({"type": piece.kind})
        self._texts.append(piece.text)
        if piece.signature and self._open is not None:
            self._open["signature"] = piece.signature
        delta = {"type": piece.kind, "text": piece.text}
        await self._hooks.emit(
            CONTENT_BLOCK_DELTA, {**self._place(piece.kind), "delta": delta, "text": piece.text}
        )

    async def close(self, usage: Any = None) -> None:
        """End the last block, as the response is over."""
        await self._end(total=self._index + 1, usage=usage)

    async def _begin(self, block: dict[str, Any]) -> None:
        if self._open is not None:
            await self._end()
            self._index += 1
        self._open = block
        told = {key: block[key] for key in ("id", "name") if block.get(key)}
        await self._hooks.emit(
            CONTENT_BLOCK_START, {**self._place(block["type"]), "total_blocks": self._total, **told}
        )

    async def _end(self, total: int | None = None, usage: Any = None) -> None:
        block, self._open = self._open, None
        texts, self._texts = self._texts, []
        if block is None:
            return
        if texts:
            block |= {"text" if block["type"] == "text" else "thinking": "".join(texts)}
        told = {**self._place(block["type"]), "total_blocks": total or self._total, "block": block}
        usage = usage or self._usage
        await self._hooks.emit(CONTENT_BLOCK_END, told | ({"usage": usage} if usage else {}))

    def _place(self, kind: str) -> dict[str, Any]:
        return {**self._told, "block_type": kind, "block_index": self._index}


class Reply(NamedTuple):
    """Answer of the LLM."""

    response: Any
    calls: list[dict[str, Any]]
    """Normalised calls: dicts with id, name, arguments, and the problem if there is one (`raw_call`)."""
    stopped: bool = False
    """True if reading ended early because the session was cancelled; the calls must not run."""


@dataclass(frozen=True, slots=True)
class ResponseReader:
    """Reader of one answer."""

    _provider: Any
    _blocks: ContentBlocks
    _on_call: OnCall | None
    _stopping: Callable[[], bool]
    _streamed: ResponseAssembler = field(default_factory=ResponseAssembler)

    @property
    def text(self) -> str:
        """Text that has come so far in a stream."""
        return self._streamed.text

    @property
    def has_begun(self) -> bool:
        """True if anything has come in a stream."""
        return not self._streamed.empty

    async def read(self, request: Any, options: Mapping[str, Any], *, stream: bool) -> Reply:
        """Return the whole answer, or the part that came before the session was cancelled.

        Raise the errors of the provider.
        """
        with CancellationWatch(self._stopping):
            if stream and callable(getattr(self._provider, "stream", None)):
                reply = await self._stream(request, options)
                if reply is not None:
                    return reply
            given = await self._provider.complete(request, **options)
            calls = self._calls_of(given)
            response = SimpleNamespace(**given) if isinstance(given, Mapping) else given
            pieces = self._blocks.foresee(response, calls)
            await self._take(pieces)
            await self._blocks.close(usage_of(response))
            return Reply(response, calls)
        await self._blocks.close(None)
        return Reply(self._streamed.begun, self._collect_calls(), stopped=True)

    async def _stream(self, request: Any, options: Mapping[str, Any]) -> Reply | None:
        """Read the provider's stream; None if it was empty, so that the answer must be requested as a
        whole."""
        streamed, stopped = self._streamed, False
        stream = self._provider.stream(request.model_copy(update={"stream": True}), **options)
        async with aclosing(_closable(await stream if inspect.isawaitable(stream) else stream)) as events:
            async for event in events:
                await self._take(streamed.feed(event))
                if stopped := self._stopping():
                    break
        if not stopped:
            await self._take(streamed.close())
            if streamed.empty:
                return None
        response = streamed.begun if stopped else streamed.response
        await self._blocks.close(usage_of(response))
        return Reply(response, self._collect_calls(), stopped)

    async def _take(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, CompletedCall) and self._on_call is not None:
                self._on_call(piece.raw)
            await self._blocks.take(piece)

    def _collect_calls(self) -> list[Any]:
        """Return the streamed calls, and those that only the provider finds in its response."""
        calls = self._streamed.calls
        if self._streamed.final is None:
            return calls
        seen = {call["id"] for call in calls}
        return calls + [call for call in self._calls_of(self._streamed.final) if call["id"] not in seen]

    def _calls_of(self, response: Any) -> list[dict[str, Any]]:
        """Return the normalised tool calls of a response: as the provider parses them, else as they are in
        it."""
        parse = getattr(self._provider, "parse_tool_calls", None)
        parsed = parse(response) if callable(parse) else None
        if isinstance(parsed, list | tuple) and parsed:
            return list(map(plain_call, parsed))
        listed = reader_of(response)("tool_calls")
        return list(map(plain_call, listed)) if isinstance(listed, list | tuple) else []


def usage_of(response: Any) -> dict[str, Any] | None:
    """Return the usage of a response as exact JSON; None if the provider reports none."""
    usage = getattr(response, "usage", None)
    if isinstance(usage, BaseModel | Mapping):
        told: dict[str, Any] = jsonable(usage)
        return told
    return None


def _texts_in(response: Any) -> list[Text]:
    """Return the thinking and text of a response that came in one piece."""
    content = getattr(response, "content", None)
    if not isinstance(content, list | tuple):
        return [Text(text)] if (text := text_of(response)) else []
    pieces: list[Text] = []
    for block in content:
        read = reader_of(block)
        for kind in ("thinking", "text"):
            said = read(kind)
            if isinstance(said, str) and said and read("type") in (None, kind):
                signed = read("signature") if kind == "thinking" else None
                if kind == "text" and pieces and pieces[-1].kind == "text":
                    said = f"\n\n{said}"  # they are told as one, and were ruled on so (`text_of`)
                pieces.append(Text(said, kind, signed if isinstance(signed, str) else ""))
    return pieces


async def _closable(stream: Any) -> AsyncGenerator[Any, None]:
    """Turn any asynchronous iterator into a generator whose close also closes the iterator."""
    try:
        async for event in stream:
            yield event
    finally:
        close = getattr(stream, "aclose", None)
        if callable(close) and inspect.isawaitable(closing := close()):
            await closing
