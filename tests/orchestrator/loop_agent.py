"""A real AmplifierSession with a scripted LLM, and its events: for tests of the loops, and for long runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import AmplifierSession, ChatResponse, HookResult, ProviderInfo, ToolCall, ToolResult
from amplifier_core.events import ALL_EVENTS
from toolgate_orchestrator.turn.llm.response import ResponseAssembler

__all__ = ["Agent", "FakeTool", "Llm", "open_agent", "untimed"]


@dataclass
class FakeTool:
    """A tool that answers with what its function gives, and remembers its calls."""

    name: str
    answer: Callable[[dict[str, Any]], Any] = lambda arguments: "done"
    input_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object"})
    calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def description(self) -> str:
        return f"The tool {self.name}"

    async def execute(self, arguments: dict[str, Any]) -> Any:
        self.calls.append(dict(arguments))
        result = self.answer(arguments)
        if isinstance(result, Awaitable):
            result = await result
        return result if isinstance(result, ToolResult) else ToolResult(success=True, output=result)


def untimed(message: dict[str, Any]) -> dict[str, Any]:
    """A stored message without the time that the context gave it."""
    metadata = {key: value for key, value in message.get("metadata", {}).items() if key != "timestamp"}
    rest = {key: value for key, value in message.items() if key != "metadata"}
    return {**rest, "metadata": metadata} if metadata else rest


@dataclass
class Agent:
    """A session under test: its parts, and every event that its hooks were told."""

    session: Any
    events: list[tuple[str, dict[str, Any]]]
    tools: dict[str, FakeTool]

    async def ask(self, prompt: str = "hello") -> str:
        answer: str = await self.session.execute(prompt)
        return answer

    @property
    def hooks(self) -> Any:
        return self.session.coordinator.hooks

    @property
    def requests(self) -> list[Any]:
        """What the LLM was sent, request by request."""
        provider = next(iter(self.session.coordinator.get("providers").values()))
        requests: list[Any] = provider.requests
        return requests

    async def messages(self) -> list[dict[str, Any]]:
        """The stored conversation, without when its messages were stored."""
        messages: list[dict[str, Any]] = await self.session.coordinator.get("context").get_messages()
        return list(map(untimed, messages))

    async def results(self) -> list[Any]:
        """The contents of the stored tool results, in order."""
        return [message["content"] for message in await self.messages() if message["role"] == "tool"]

    def names(self, *only: str) -> list[str]:
        """The names of the events so far, or of those among `only`."""
        return [name for name, _ in self.events if not only or name in only]

    def told(self, event: str) -> list[dict[str, Any]]:
        """The payloads of one event."""
        return [data for name, data in self.events if name == event]

    def on(self, event: str, *answers: Any, priority: int = 0, name: str | None = None) -> None:
        """Register a hook that gives these answers one after the other, then continues.

        An answer is a HookResult, or a function of the payload that gives one.
        """
        left = list(answers)

        async def hook(_event: str, data: dict[str, Any]) -> HookResult:
            answer = left.pop(0) if left else HookResult()
            result = answer(data) if callable(answer) else answer
            return await result if isinstance(result, Awaitable) else result

        self.hooks.register(event, hook, priority=priority, name=name or f"hook-{id(hook)}")


class Llm:
    """A provider that answers as each test tells it, and remembers what it was asked.

    An answer is a list of stream events; in it an `asyncio.Event` is waited for, and an exception is
    raised. With `whole=True` it cannot stream: the events of an answer come in one piece.
    """

    name = "llm"
    model = "llm-1"

    def __init__(self, *answers: Sequence[Any], whole: bool = False) -> None:
        self.answers = [list(answer) for answer in answers]
        self.requests: list[Any] = []
        self.options: list[dict[str, Any]] = []
        self.closed = 0
        """How many streams were read to their end or closed."""
        if not whole:
            self.stream = self._stream

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name="LLM of a test", defaults={"model": self.model})

    async def list_models(self) -> list[Any]:
        return []

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return list(response.tool_calls or [])

    def _asked(self, request: Any, options: dict[str, Any]) -> list[Any]:
        self.requests.append(request)
        self.options.append(options)
        return self.answers.pop(0) if self.answers else [{"type": "text.delta", "text": "done"}]

    async def _stream(self, request: Any, **options: Any) -> AsyncIterator[Any]:
        try:
            for event in self._asked(request, options):
                if isinstance(event, asyncio.Event):
                    await event.wait()
                elif isinstance(event, Exception):
                    raise event
                else:
                    yield event
        finally:
            self.closed += 1

    async def complete(self, request: Any, **options: Any) -> ChatResponse:
        streamed = ResponseAssembler()
        for event in self._asked(request, options):
            if isinstance(event, asyncio.Event):
                await event.wait()
            elif isinstance(event, Exception):
                raise event
            else:
                streamed.feed(event)
        response = streamed.response
        return response.model_copy(
            update={"tool_calls": [ToolCall(**call) for call in streamed.calls] or None}
        )


@asynccontextmanager
async def open_agent(
    turns: Sequence[Mapping[str, Any]] = (),
    *,
    tools: Iterable[FakeTool] = (),
    loop: str = "loop-events",
    llm: Llm | None = None,
    config: Mapping[str, Any] | None = None,
    approvals: Any = None,
    plan: Mapping[str, Any] | None = None,
    deaf: bool = False,
    **session: Any,
) -> AsyncIterator[Agent]:
    """Open a session, of loop-events if `loop` names no other, with a scripted LLM if `llm` gives none."""
    mount = {
        "session": {
            "orchestrator": {"module": loop, "config": dict(config or {})},
            "context": "context-simple",
        },
        "providers": [{"module": "provider-scripted", "config": {"turns": list(turns)}}],
        **(plan or {}),
    }
    opened = AmplifierSession(mount, approval_system=approvals, **{"session_id": "s-1", **session})
    async with opened:
        events: list[tuple[str, dict[str, Any]]] = []

        async def note(event: str, data: dict[str, Any]) -> HookResult:
            events.append((event, data))
            return HookResult()

        for event in [] if deaf else [*ALL_EVENTS, "tool:selected"]:
            opened.coordinator.hooks.register(event, note, priority=-1000, name="test-notes")
        for provider in opened.coordinator.get("providers").values():
            provider.requests = []
        if llm is not None:
            await opened.coordinator.unmount("providers", "scripted")
            await opened.coordinator.mount("providers", llm, name=llm.name)
        mounted = {tool.name: tool for tool in tools}
        for tool in mounted.values():
            await opened.coordinator.mount("tools", tool, name=tool.name)
        yield Agent(opened, events, mounted)
