"""One request to the LLM: built from the context, announced, sent, its answer announced.

    provider:request ─▶ LLM ─▶ content_block:start, :delta, :end … ─▶ provider:response

`Llm` is the provider of one turn. It reads the provider's stream where the loop wants that and the
provider has one, else it asks for the whole. A provider's exception becomes provider:error and
`LlmFailed`; what becomes of that is the loop's affair. It stores nothing in the context.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from amplifier_core import ToolSpec
from amplifier_core.events import PROVIDER_ERROR, PROVIDER_REQUEST, PROVIDER_RESPONSE
from pydantic import BaseModel

from toolgate_orchestrator.turn.consult import Hooks
from toolgate_orchestrator.turn.content_blocks import ContentBlocks, OnText
from toolgate_orchestrator.turn.interruption import being_cancelled
from toolgate_orchestrator.turn.jsonable import jsonable
from toolgate_orchestrator.turn.messages import chat_request, reader_of, text_of
from toolgate_orchestrator.turn.provider_choice import model_of
from toolgate_orchestrator.turn.streamed import CallDone, Piece, Streamed, Text
from toolgate_orchestrator.turn.tool_call import Note

__all__ = ["Llm", "LlmFailed", "OnCall", "Reply", "RequestDenied"]

OnCall = Callable[[Any], None]
"""Told each raw tool call the moment it is complete."""


class LlmFailed(Exception):  # noqa: N818 - control flow inside the turn engine, caught by it
    """The provider could not answer; the text is fit for the user."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"The language model could not answer: {type(error).__name__}: {error}")
        self.error = error


class RequestDenied(Exception):  # noqa: N818 - as above
    """A hook on provider:request said no."""


class Reply(NamedTuple):
    """What the LLM answered."""

    response: Any
    calls: list[Any]
    """Raw: objects, or dicts with id, name and arguments (an object, or the text that it was)."""
    stopped: bool = False
    """Whether reading ended early, as the session was cancelled; the calls are not to be run."""


class Llm:
    """The provider that answers one turn, and what it has used so far."""

    def __init__(
        self,
        name: str,
        provider: Any,
        context: Any,
        hooks: Hooks,
        *,
        thinking: bool = False,
        streams: bool = False,
        note: Note | None = None,
        on_text: OnText | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = name
        self.provider = provider
        self.iterations = 0
        """Requests sent in this turn."""
        self.tokens = 0
        self._streamed: Streamed | None = None
        """The response on its way in."""
        self._context = context
        self._hooks = hooks
        self._options: dict[str, Any] = {"extended_thinking": True} if thinking else {}
        self._note, self._on_text, self._cancelled = note, on_text, cancelled
        self._spoken = self._apart = False
        self._streams = streams and callable(getattr(provider, "stream", None))

    @property
    def partial(self) -> str:
        """Text of a response that broke off: it was shown, and is not in the conversation."""
        return self._streamed.text if self._streamed is not None else ""

    async def ask(
        self,
        specs: Sequence[ToolSpec],
        *,
        on_call: OnCall | None = None,
        notes: Sequence[Mapping[str, Any]] = (),
        tool_choice: str | None = None,
    ) -> Reply:
        """The response to the conversation; raises LlmFailed, RequestDenied.

        `notes` are messages for this request only. `on_call` hears of each call as soon as it is
        complete, which in a stream is before the response is.
        """
        self.iterations += 1
        self._apart = self._spoken
        messages = await self._messages()
        consulted = await self._hooks.consult(PROVIDER_REQUEST, lambda: self._announced(messages, specs))
        if consulted.denied is not None:
            raise RequestDenied(consulted.denied)
        if self._hooks.injections.held:
            await self._hooks.injections.store(self._context, self._hooks.coordinator)
            messages = await self._messages()
        request = chat_request([*self._hooks.injections.into(messages), *notes], list(specs), tool_choice)
        try:
            reply = await self._reply(request, on_call or _ignore)
        except Exception as error:
            await self._failed(error)
            raise LlmFailed(error) from error
        await self._answered(reply)
        return reply

    async def _reply(self, request: Any, on_call: OnCall) -> Reply:
        try:
            blocks = ContentBlocks(
                self._hooks, self.name, self.iterations, self._tell if self._on_text is not None else None
            )
            if self._streams:
                reply = await self._stream(request, on_call, blocks)
                if reply is not None:
                    return reply
            return await self._complete(request, on_call, blocks)
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            raise RuntimeError("the provider cancelled its own request") from None

    async def _stream(self, request: Any, on_call: OnCall, blocks: ContentBlocks) -> Reply | None:
        """Read the provider's stream; None where nothing came, so that it must be asked in one piece."""
        streamed = self._streamed = Streamed()
        stopped = False
        stream = self.provider.stream(request.model_copy(update={"stream": True}), **self._options)
        async with aclosing(_closable(await stream if inspect.isawaitable(stream) else stream)) as events:
            async for event in events:
                await self._take(streamed.feed(event), on_call, blocks)
                if stopped := self._cancelled():
                    break
        await self._take([] if stopped else streamed.close(), on_call, blocks)
        if streamed.empty and not stopped:
            return None
        self._streamed = None
        response = streamed.response
        await blocks.close(usage_of(response))
        return Reply(response, self._streamed_calls(streamed), stopped)

    def _streamed_calls(self, streamed: Streamed) -> list[Any]:
        """The calls as they were streamed, and those that only the provider finds in its response."""
        calls = streamed.calls
        if streamed.final is None:
            return calls
        seen = {_id_of(call) for call in calls}
        return calls + [call for call in self._calls_of(streamed.final) if _id_of(call) not in seen]

    async def _complete(self, request: Any, on_call: OnCall, blocks: ContentBlocks) -> Reply:
        response = await self.provider.complete(request, **self._options)
        calls = self._calls_of(response)
        await self._take([*_texts_in(response), *map(CallDone, calls)], on_call, blocks)
        await blocks.close(usage_of(response))
        return Reply(response, calls)

    async def _tell(self, text: str) -> None:
        """Pass text on; what two responses say stands on lines of their own."""
        if self._on_text is not None:
            await self._on_text(f"\n{text}" if self._apart else text)
        self._apart, self._spoken = False, True

    async def _take(self, pieces: Sequence[Piece], on_call: OnCall, blocks: ContentBlocks) -> None:
        for piece in pieces:
            if isinstance(piece, CallDone):
                on_call(piece.raw)
            await blocks.take(piece)

    def _calls_of(self, response: Any) -> list[Any]:
        """The raw tool calls of a response: as the provider parses them, else as they lie in it."""
        parse = getattr(self.provider, "parse_tool_calls", None)
        parsed = parse(response) if callable(parse) else None
        if isinstance(parsed, list | tuple) and parsed:
            return list(parsed)
        listed = getattr(response, "tool_calls", None)
        return list(listed) if isinstance(listed, list | tuple) else []

    async def _messages(self) -> list[dict[str, Any]]:
        return list(await self._context.get_messages_for_request(provider=self.provider))

    def _announced(self, messages: list[dict[str, Any]], specs: Sequence[ToolSpec]) -> dict[str, Any]:
        return {
            "provider": self.name,
            "model": model_of(self.provider),
            "iteration": self.iterations,
            "messages": messages,
            "message_count": len(messages),
            "tools": [spec.name for spec in specs],
        }

    async def _answered(self, reply: Reply) -> None:
        response, calls = reply.response, bool(reply.calls)
        usage = usage_of(response)
        self.tokens += _count(usage, "total_tokens")
        if self._note is not None and usage:
            self._note("usage", {"provider": self.name, "iteration": self.iterations, **usage})
        await self._hooks.consult(PROVIDER_RESPONSE, lambda: self._told(response, usage, calls))

    def _told(self, response: Any, usage: dict[str, Any] | None, calls: bool) -> dict[str, Any]:
        return {
            "provider": self.name,
            "model": model_of(self.provider),
            "iteration": self.iterations,
            "response": response if isinstance(response, BaseModel) else {"content": text_of(response)},
            "usage": usage,
            "tool_calls": calls,
        }

    async def _failed(self, error: Exception) -> None:
        retryable = getattr(error, "retryable", False)
        await self._hooks.consult(
            PROVIDER_ERROR,
            {
                "provider": self.name,
                "model": model_of(self.provider),
                "iteration": self.iterations,
                "error": {"type": type(error).__name__, "msg": str(error)},
                "retryable": retryable is True,
                "status_code": getattr(error, "status_code", None),
            },
        )


def _ignore(call: Any) -> None:
    """Nobody waits for single calls."""


def _id_of(call: Any) -> Any:
    return reader_of(call)("id")


def _texts_in(response: Any) -> list[Piece]:
    """Thinking and text of a response that came in one piece."""
    content = getattr(response, "content", None)
    if not isinstance(content, list | tuple):
        return [Text(text)] if (text := text_of(response)) else []
    pieces: list[Piece] = []
    for block in content:
        read = reader_of(block)
        for kind in ("thinking", "text"):
            said = read(kind)
            if isinstance(said, str) and said and read("type") in (None, kind):
                pieces.append(Text(said, kind))
    return pieces


async def _closable(stream: Any) -> AsyncGenerator[Any, None]:
    """Any asynchronous iterator as one that can be closed, which closes it in turn."""
    try:
        async for event in stream:
            yield event
    finally:
        close = getattr(stream, "aclose", None)
        if callable(close) and inspect.isawaitable(closing := close()):
            await closing


def usage_of(response: Any) -> dict[str, Any] | None:
    """The usage of a response as exact JSON; None where the provider tells none."""
    usage = getattr(response, "usage", None)
    if isinstance(usage, BaseModel | Mapping):
        told: dict[str, Any] = jsonable(usage)
        return told
    return None


def _count(usage: dict[str, Any] | None, field: str) -> int:
    value = (usage or {}).get(field)
    return value if isinstance(value, int) else 0
