"""What the tests of loop-reactive share: sessions of it, tools that wait, what came of the calls."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from amplifier_core import HookResult

INTEGER = {"type": "integer"}
ADD = {"type": "object", "properties": {"x": INTEGER, "y": INTEGER}, "required": ["x"]}
BOUND_S = 30
LOOP: dict[str, Any] = {"loop": "loop-reactive"}

Reactive = Callable[..., contextlib.AbstractAsyncContextManager[Any]]


def sessions(agent: Any, llm: Any) -> Reactive:
    """`async with make([event, …], …, tools=[…]) as a:` a session of loop-reactive; a list a request."""

    @contextlib.asynccontextmanager
    async def make(*answers: Any, schema: Any = None, whole: bool = False, **more: Any) -> AsyncIterator[Any]:
        config = {**more.pop("config", {}), **({} if schema is None else {"output_schema": schema})}
        async with agent(llm=llm(*answers, whole=whole), config=config, **LOOP, **more) as a:
            if not more.get("deaf"):

                async def note(event: str, data: dict[str, Any]) -> HookResult:
                    a.events.append((event, data))
                    return HookResult()

                a.hooks.register("tool:selecting", note, priority=-1000)
            yield a

    return make


class Gate:
    """A tool's function that says when it began and how it ended, and ends when it may."""

    def __init__(self, result: Any = "finished") -> None:
        self.began, self.may_end, self.result, self.ended = asyncio.Event(), asyncio.Event(), result, ""

    async def __call__(self, arguments: dict[str, Any]) -> Any:
        self.began.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        self.ended = "finished"
        return self.result


class Reached(asyncio.Event):
    """A point in a stream: says that the stream has come to it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def wait(self) -> Any:
        self.reached.set()
        return await super().wait()


def wait_for(event: asyncio.Event, result: Any) -> Callable[[dict[str, Any]], Any]:
    """A tool's function that gives its result once an event is set."""

    async def run(_: dict[str, Any]) -> Any:
        await event.wait()
        return result

    return run


async def stream_over() -> None:
    """Wait until the request of the running turn is over, its error told."""
    while any(getattr(task.get_coro(), "__qualname__", "") == "Tick._read" for task in asyncio.all_tasks()):
        await asyncio.sleep(0)


async def until_told(a: Any, event: str) -> None:
    """Wait until hooks were told of an event; the turn goes on meanwhile."""
    async with asyncio.timeout(BOUND_S):
        while event not in a.names():
            await asyncio.sleep(0)


async def ask(a: Any, prompt: str = "hello") -> str:
    """One turn, with a bound: what waits for ever fails."""
    answer: str = await asyncio.wait_for(a.ask(prompt), BOUND_S)
    return answer


async def results(a: Any) -> dict[str, Any]:
    """By id of the call, in the order stored, as the LLM reads them; each call has exactly one."""
    messages = await a.messages()
    called = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert sorted(called) == sorted(answered)
    return {each["tool_call_id"]: read(each["content"]) for each in messages if each["role"] == "tool"}


async def told(a: Any) -> list[Any]:
    """The results as the LLM reads them, in the order stored."""
    return [read(content) for content in await a.results()]


def read(content: Any) -> Any:
    """A Data Message or an Error Message; of a result that is told plainly, `{"plain": it}`."""
    is_message = isinstance(content, str) and content.startswith('{"type": "data"')
    return json.loads(content) if is_message else {"plain": content}


def error_of(result: Any) -> dict[str, Any]:
    """The error in an Error Message."""
    error: dict[str, Any] = result["data"]["error"]
    return error


def phases(found: dict[str, Any]) -> dict[str, str]:
    """How each call came out: `ok`, or the phase of its error."""
    return {call: error_of(each)["phase"] if "kind" in each else "ok" for call, each in found.items()}


def ends(a: Any) -> list[tuple[str, str]]:
    """How the turn was reported to have ended."""
    return [(n, d["status"]) for n, d in a.events if n in ("execution:end", "orchestrator:complete")]


def requests(a: Any) -> list[str]:
    """Each request, all of its messages as one text."""
    sent = a.session.coordinator.get("providers")["llm"].requests
    return ["\n".join(f"{message.role}: {message.content}" for message in each.messages) for each in sent]


def state(a: Any) -> dict[str, Any]:
    """The state of the session."""
    found: dict[str, Any] = a.session.coordinator.get("orchestrator").data.state
    return found
