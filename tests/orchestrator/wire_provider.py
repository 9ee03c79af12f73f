"""What the small providers share: a request to the SDK, and its answer, whole or in pieces, as blocks."""

from collections.abc import AsyncIterator
from typing import Any, ClassVar

from amplifier_core import ChatRequest, ChatResponse, ProviderInfo, ToolCall, ToolCallBlock
from amplifier_core.llm_errors import LLMError
from openai_server import Server

__all__ = ["Wire", "WireProvider", "said", "wanted"]

Wire = dict[str, Any]


class WireProvider:
    """A provider over an SDK; a subclass says what is sent, and how an answer is read."""

    name = "llm"
    model: ClassVar[str]
    errors: ClassVar[type[Exception]]

    def __init__(self, server: Server, *, streams: bool = False) -> None:
        self.streams = streams
        self.client = self.connect(server.url.removesuffix("/v1"))
        if streams:
            self.stream = self._stream

    def connect(self, url: str) -> Any:
        """The SDK's client."""
        raise NotImplementedError

    def params(self, request: ChatRequest, thinks: bool) -> Wire:
        """The request as the SDK takes it."""
        raise NotImplementedError

    async def whole(self, params: Wire) -> Any:
        """The SDK's answer."""
        raise NotImplementedError

    def pieces(self, params: Wire) -> AsyncIterator[Any]:
        """Pieces of text, and last the SDK's answer."""
        raise NotImplementedError

    def blocks(self, answer: Any) -> tuple[list[Any], dict[str, Any]]:
        """The answer as the kernel's blocks, and what the provider wants to keep."""
        raise NotImplementedError

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name=type(self).__name__, defaults={"model": self.model})

    async def list_models(self) -> list[Any]:
        return []

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return list(response.tool_calls or [])

    async def complete(self, request: ChatRequest, **options: Any) -> ChatResponse:
        if self.streams:
            return [each async for each in self._stream(request, **options)][-1]
        try:
            answer = await self.whole(self.params(request, options.get("extended_thinking") is True))
        except self.errors as error:
            raise LLMError(str(error)) from error
        return self._response(answer)

    async def _stream(self, request: ChatRequest, **options: Any) -> AsyncIterator[Any]:
        try:
            async for piece in self.pieces(self.params(request, options.get("extended_thinking") is True)):
                if isinstance(piece, dict):
                    yield piece
                else:
                    yield self._response(piece)
        except self.errors as error:
            raise LLMError(str(error)) from error

    def _response(self, answer: Any) -> ChatResponse:
        content, metadata = self.blocks(answer)
        calls = [
            ToolCall(id=block.id, name=block.name, arguments=block.input)
            for block in content
            if isinstance(block, ToolCallBlock)
        ]
        return ChatResponse(content=content, tool_calls=calls or None, metadata=metadata or None)


def said(text: str, kind: str = "text") -> Wire:
    """A piece of text, or of thinking, in a stream."""
    return {"type": f"{kind}.delta", "text": text}


def wanted(id_: str, name: str, arguments: Any) -> Wire:
    """A whole call in a stream."""
    return {"type": "tool_call.end", "id": id_, "name": name, "arguments": arguments}
