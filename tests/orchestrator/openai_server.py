"""A server on loopback that speaks the chat-completions wire format, as each test tells it to.

A test gives one answer for each request, in order: an async function that is handed the `Exchange`.

    async with Server() as server:
        server.answers(completion("hello"))                 # one JSON answer
        server.answers(streamed(text("he"), text("llo"), finish()))
        server.answers(my_function)                         # `async def f(exchange): await exchange.send(…)`

HTTP/1.1 by hand: what is tested is what lies on the wire, broken pieces included.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

MODEL = "test-model"
DONE = b"data: [DONE]\n\n"


@dataclass
class Exchange:
    """One request, and the means to answer it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the client has closed the connection."""
    chunked: bool = False

    async def json(self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer."""
        await self.raw(
            json.dumps(body).encode(), status, {"content-type": "application/json", **(headers or {})}
        )

    async def raw(self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer of any kind."""
        self._head(status, {"content-length": str(len(body)), **(headers or {})})
        self.writer.write(body)
        await self.writer.drain()

    async def begin(self, headers: Mapping[str, str] | None = None, *, chunked: bool = True) -> None:
        """Begin a stream; without `chunked` it ends where the connection does."""
        self.chunked = chunked
        coding = {"transfer-encoding": "chunked"} if chunked else {"connection": "close"}
        self._head(200, {"content-type": "text/event-stream", **coding, **(headers or {})})
        await self.writer.drain()

    async def send(self, *chunks: Any) -> None:
        """Chunks of a stream: JSON values, or bytes as they are."""
        for chunk in chunks:
            data = chunk if isinstance(chunk, bytes) else b"data: " + json.dumps(chunk).encode() + b"\n\n"
            self.writer.write(b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data)
            await self.writer.drain()

    async def end(self, *, done: bool = True) -> None:
        """End the stream properly."""
        if done:
            await self.send(DONE)
        if self.chunked:
            self.writer.write(b"0\r\n\r\n")
            await self.writer.drain()
        else:
            self.writer.close()

    def drop(self) -> None:
        """Break the connection off, in the middle of whatever it is."""
        self.writer.close()

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Told", *(f"{key}: {value}" for key, value in headers.items()), "", ""]
        self.writer.write("\r\n".join(lines).encode())


Answer = Callable[[Exchange], Awaitable[None]]


class Server:
    """Answers requests in order, and keeps them."""

    def __init__(self) -> None:
        self.requests: list[Exchange] = []
        self.default: Answer = _unexpected
        """What requests beyond those answers get."""
        self._answers: list[Answer] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def answers(self, *answers: Answer) -> None:
        """What the next requests get."""
        self._answers += answers

    @property
    def url(self) -> str:
        """The base URL to configure."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def bodies(self) -> list[Any]:
        """What was asked, request by request."""
        return [request.body for request in self.requests]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            first = await reader.read(1)
            while first:
                first = await self._exchange(await _read(first, reader, writer), reader)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client or the test is over
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _exchange(self, exchange: Exchange, reader: asyncio.StreamReader) -> bytes:
        """Answer one request; gives the first byte of the next."""
        self.requests.append(exchange)
        following = asyncio.ensure_future(_next_byte(reader, exchange.gone))
        answer = self._answers.pop(0) if self._answers else self.default
        try:
            with contextlib.suppress(ConnectionError):
                await answer(exchange)
            return await following
        finally:
            following.cancel()


async def _read(first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
    head = (first + await reader.readuntil(b"\r\n\r\n")).decode()
    request, *lines = head.rstrip().split("\r\n")
    method, path, _ = request.split(" ")
    headers = {key.lower(): value.strip() for key, value in (line.split(":", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Exchange(method, path, headers, json.loads(body) if body else None, writer)


async def _next_byte(reader: asyncio.StreamReader, gone: asyncio.Event) -> bytes:
    """The first byte of the next request; nothing once the client is gone, which is told at once."""
    try:
        byte = await reader.read(1)
    except ConnectionError:
        byte = b""
    if not byte:
        gone.set()
    return byte


async def _unexpected(exchange: Exchange) -> None:
    await exchange.json({"error": {"message": "the test expected no further request"}}, 418)


# ---------------------------------------------------------------------- answers


def chunk(
    delta: Mapping[str, Any] | None = None, finish_reason: str | None = None, **more: Any
) -> dict[str, Any]:
    """One chunk of a stream."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    return {
        "id": "c-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": choices,
        **more,
    }


def text(said: str) -> dict[str, Any]:
    """A chunk with some text."""
    return chunk({"content": said})


def call(
    index: int | None, arguments: str | None = None, call_id: str | None = None, name: str | None = None
) -> dict[str, Any]:
    """A chunk with a fragment of a tool call; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    part = {"index": index, "id": call_id, "type": "function" if call_id else None, "function": function}
    return chunk({"tool_calls": [{key: value for key, value in part.items() if value is not None}]})


def finish(reason: str = "stop") -> dict[str, Any]:
    """The chunk that ends the answer."""
    return chunk({}, reason)


def usage(prompt: int = 10, completion: int = 5, **more: Any) -> dict[str, Any]:
    """The chunk that tells the usage."""
    told = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return chunk(usage={**told, **more})


def streamed(*chunks: Any, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer that is streamed at once."""

    async def answer(exchange: Exchange) -> None:
        await exchange.begin(headers)
        await exchange.send(*chunks)
        await exchange.end()

    return answer


def completion(said: str | None = "", *, headers: Mapping[str, str] | None = None, **more: Any) -> Answer:
    """A whole answer; `message`, `finish_reason` and `usage` may be given."""
    message = {"role": "assistant", "content": said, **more.pop("message", {})}
    reason = more.pop("finish_reason", "stop")
    choices = [{"index": 0, "message": message, "finish_reason": reason}]
    body = {
        "id": "c-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": choices,
        **more,
    }

    async def answer(exchange: Exchange) -> None:
        await exchange.json(body, headers=headers)

    return answer


def error(status: int, message: str = "no", headers: Mapping[str, str] | None = None, **more: Any) -> Answer:
    """An error, in OpenAI's form."""

    async def answer(exchange: Exchange) -> None:
        await exchange.json({"error": {"message": message, "type": "t", **more}}, status, headers)

    return answer
