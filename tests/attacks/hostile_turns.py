"""What a hostile LLM and a hostile tool may send, and one turn of a real session that is sent it.

No test in here: `test_turn_attacks` goes through all of it, under every loop.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from amplifier_core import AmplifierSession, ChatResponse, HookResult, ProviderInfo, ToolResult
from amplifier_core.events import ALL_EVENTS
from toolgate_orchestrator.turn.values.jsonable import MAX_RESULT_DEPTH
from toolgate_orchestrator.turn.values.raw_call import MAX_DEPTH

__all__ = ["CALLS", "OUTPUTS", "Turned", "sound", "turned"]

TURN_S = 20.0


class Hostile:
    """An LLM that sends these raw calls, in one piece or as a stream, and then says "done"."""

    name = "hostile"

    def __init__(self, calls: Callable[[], list[Any]], *, streams: bool) -> None:
        self._calls, self._asked = calls, 0
        self.requests: list[Any] = []
        if streams:
            self.stream = self._stream

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name="a hostile LLM", defaults={"model": "m"})

    async def list_models(self) -> list[Any]:
        return []

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return list(response["tool_calls"] if isinstance(response, dict) else response.tool_calls or ())

    async def _stream(self, request: Any, **_: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        self._asked += 1
        if self._asked > 1:
            yield {"type": "text.delta", "text": "done"}
            return
        for call in self._calls():
            event = {"type": "tool_call.end", **call} if isinstance(call, Mapping) else call
            yield event
        yield {"type": "message.end", "finish_reason": "tool_calls"}

    async def complete(self, request: Any, **_: Any) -> Any:
        self.requests.append(request)
        self._asked += 1
        if self._asked > 1:
            return ChatResponse(content=[{"type": "text", "text": "done"}])
        return {"content": "", "tool_calls": self._calls()}


class Tool:
    """A tool that does what its function does."""

    description = "does something"
    input_schema: Mapping[str, Any] = MappingProxyType({"type": "object"})

    def __init__(self, name: str, does: Callable[[dict[str, Any]], Any]) -> None:
        self.name, self._does, self.ran = name, does, 0

    async def execute(self, arguments: dict[str, Any]) -> Any:
        self.ran += 1
        return self._does(arguments)


class Turned:
    """What came of a turn."""

    def __init__(self) -> None:
        self.answer = ""
        self.messages: list[dict[str, Any]] = []
        self.events: list[str] = []
        self.logged: list[str] = []
        self.ran = 0

    def result_of(self, call: str) -> Any:
        """What the LLM is told of a call."""
        return next(one["content"] for one in self.messages if one.get("tool_call_id") == call)

    @property
    def called(self) -> list[str]:
        return [call["id"] for one in self.messages for call in one.get("tool_calls") or ()]

    @property
    def answered(self) -> list[str]:
        return [one["tool_call_id"] for one in self.messages if one["role"] == "tool"]


async def turned(
    loop: str,
    calls: Callable[[], list[Any]],
    does: Callable[[dict[str, Any]], Any] = lambda _: "ran",
    *,
    log: Path | None = None,
    toolgate: Mapping[str, Any] | None = None,
    agents: Mapping[str, Any] | None = None,
) -> Turned:
    """One turn of a session under a loop; what ends it badly is raised."""
    plan: dict[str, Any] = {
        "session": {
            "orchestrator": {"module": loop, "config": {"toolgate": dict(toolgate or {})}},
            "context": "context-simple",
        },
        "providers": [{"module": "provider-scripted", "config": {"turns": []}}],
        "tools": [],
    }
    if agents is not None:
        plan |= {"agents": dict(agents)}
    if log is not None:
        plan["hooks"] = [{"module": "hooks-logging", "config": {"directory": str(log)}}]
    told = Turned()

    async def note(event: str, data: dict[str, Any]) -> HookResult:
        told.events.append(event)
        return HookResult()

    async with AmplifierSession(plan, session_id="s-1") as session:
        coordinator = session.coordinator
        await coordinator.unmount("providers", "scripted")
        llm = Hostile(calls, streams=loop != "loop-basic")
        await coordinator.mount("providers", llm, name="hostile")
        tools = [Tool("do", does), Tool("other", lambda _: "fine")]
        for tool in tools:
            await coordinator.mount("tools", tool, name=tool.name)
        for event in [*ALL_EVENTS, "tool:selecting", "tool:selected"]:
            coordinator.hooks.register(event, note, name="test-notes")
        told.answer = await asyncio.wait_for(session.execute("hello"), TURN_S)
        told.messages = list(await coordinator.get("context").get_messages())
        told.ran = tools[0].ran
    if log is not None:
        told.logged = [line for file in log.glob("*.jsonl") for line in file.read_text().splitlines()]
    return told


# ---------------------------------------------------------------------- what a tool gives or does


def nested(depth: int, kind: str = "dict") -> Any:
    """A value within a value, so many times."""
    value: Any = "bottom"
    for _ in range(depth):
        value = {"a": value} if kind == "dict" else [value]
    return value


def _raising(name: str, error: type[BaseException] = ValueError) -> Any:
    def raise_(*_: Any, **__: Any) -> Any:
        raise error(name)

    return raise_


class BadRepr:
    __repr__ = __str__ = _raising("repr")


class BadIter(list):
    __iter__ = __len__ = __repr__ = _raising("iter")


class BadMapping(Mapping):
    __getitem__ = __iter__ = __len__ = items = _raising("items")


class BadText(str):
    isascii = encode = __str__ = __repr__ = _raising("text")


class BadNumber(int):
    __le__ = __ge__ = __lt__ = __gt__ = __int__ = __str__ = __repr__ = _raising("number")


class BadAttributes:
    __getattr__ = _raising("attribute")
    __class__ = property(_raising("class"))
    __repr__ = __str__ = _raising("repr")


class BadError(Exception):
    __str__ = __repr__ = _raising("str")


class ExitsInStr:
    __repr__ = __str__ = _raising("str", SystemExit)


class BadResult:
    """A result of another make, all of whose parts raise."""

    success = output = error = content = property(_raising("part"))
    get_serialized_output = _raising("serialize")


class Serialized:
    """A result of another make that is said to be no text."""

    success, output, error, content = True, "x", None, None

    def get_serialized_output(self) -> Any:
        return {"not": "text"}


class BadBool:
    success = type("Never", (), {"__bool__": _raising("bool")})()
    output, error, content = "x", None, [1, 2]

    def get_serialized_output(self) -> str:
        return "x"


def _cyclic(width: int = 2) -> Any:
    value: list[Any] = []
    value.extend([value] * width)
    return value


def _cyclic_map() -> Any:
    value: dict[str, Any] = {}
    value |= {"a": value, "b": value}
    return value


def _raise(error: BaseException) -> Callable[[dict[str, Any]], Any]:
    def does(_: dict[str, Any]) -> Any:
        raise error

    return does


def _generator() -> Any:
    yield from range(3)


async def _async_generator() -> Any:
    yield 1


async def _coroutine() -> Any:
    return "late"


OUTPUTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nested 700 deep": lambda _: nested(700),
    "nested as deep as is told": lambda _: ToolResult(output=nested(MAX_RESULT_DEPTH)),
    "nested 100,000 deep": lambda _: nested(100_000, "list"),
    "a result nested 100,000 deep": lambda _: ToolResult(output=nested(100_000)),
    "an integer of 5,000 digits": lambda _: 10**5000,
    "a result with an integer of 5,000 digits": lambda _: ToolResult(output={"n": -(10**5000)}),
    "repr raises": lambda _: BadRepr(),
    "a result whose repr raises": lambda _: ToolResult(output={"x": BadRepr()}),
    "iter raises": lambda _: BadIter([1]),
    "items raises": lambda _: {"x": BadMapping()},
    "a text whose methods raise": lambda _: BadText("x"),
    "a key whose methods raise": lambda _: {BadText("x"): 1, BadRepr(): 2},
    "a number whose methods raise": lambda _: BadNumber(3),
    "attributes raise": lambda _: BadAttributes(),
    "str exits": lambda _: {"x": ExitsInStr()},
    "every part of a result raises": lambda _: BadResult(),
    "a result that is no text": lambda _: Serialized(),
    "a success that is no truth": lambda _: BadBool(),
    "a list of itself": lambda _: _cyclic(),
    "a map of itself": lambda _: ToolResult(output=_cyclic_map()),
    "not a number": lambda _: {"x": float("nan"), "y": float("-inf")},
    "lone surrogates": lambda _: {"\ud800": "\udfff"},
    "a text of lone surrogates": lambda _: "\ud800x",
    "a result of lone surrogates": lambda _: ToolResult(output="caf\udce9"),
    "an error of lone surrogates": lambda _: ToolResult(success=False, error={"message": "caf\udce9"}),
    "bytes": lambda _: b"\xff\x00" * 10,
    "5 MB": lambda _: ToolResult(output="ä" * 4_100_000),
    "a generator": lambda _: _generator(),
    "an asynchronous generator": lambda _: _async_generator(),
    "a set, a type, a function": lambda _: [{1}, int, print, ..., object()],
    "a cost of a million digits": lambda _: ToolResult(output={"cost_usd": "1e999980"}),
    "raises an error that cannot be told": _raise(BadError()),
    "raises an error of lone surrogates": _raise(FileNotFoundError("caf\udce9")),
    "raises a group": _raise(ExceptionGroup("several", [ValueError("x")])),
    "raises a group with an exit": _raise(BaseExceptionGroup("several", [SystemExit(3)])),
    "exits": lambda _: sys.exit(3),
    "exits with words": lambda _: sys.exit("no more"),
    "raises KeyboardInterrupt": _raise(KeyboardInterrupt()),
    "raises GeneratorExit": _raise(GeneratorExit()),
    "raises CancelledError": _raise(asyncio.CancelledError()),
    "raises StopIteration": _raise(StopIteration(1)),
    "raises StopAsyncIteration": _raise(StopAsyncIteration()),
    "raises TimeoutError": _raise(TimeoutError()),
    "raises RecursionError": _raise(RecursionError()),
    "raises MemoryError": _raise(MemoryError()),
    "raises BaseException": _raise(BaseException("bare")),
}


# ---------------------------------------------------------------------- what an LLM calls


class RawCall:
    """A call as an object of a provider's."""

    def __init__(self, id: Any, name: Any, arguments: Any) -> None:  # noqa: A002 - the field's name
        self.id, self.name, self.arguments = id, name, arguments


class RaisingCall:
    """A call of which only the name can be read."""

    name = "do"
    id = arguments = property(_raising("field"))
    __repr__ = __str__ = _raising("repr")


def _call(id_: Any = None, name: Any = "do", arguments: Any = None) -> dict[str, Any]:
    return {"id": id_, "name": name, "arguments": {} if arguments is None else arguments}


def _these(*calls: Any) -> Callable[[], list[Any]]:
    """These calls, the same objects each time."""
    return lambda: list(calls)


def sound() -> dict[str, Any]:
    """A call that nothing is wrong with, of a tool that says "fine"."""
    return _call("sound", "other")


CALLS: dict[str, Callable[[], list[Any]]] = {
    "nested as deep as may be": _these(_call("deepest", arguments=nested(MAX_DEPTH - 1))),
    "nested one level deeper": _these(_call("too-deep", arguments=nested(MAX_DEPTH))),
    "nested 700 deep": _these(_call(arguments=nested(700))),
    "nested 100,000 deep": lambda: [_call(arguments=nested(100_000))],
    "text nested 100,000 deep": _these(_call(arguments='{"a":' * 100_000 + "1" + "}" * 100_000)),
    "text nested 700 deep": _these(_call(arguments='{"a":' * 700 + "1" + "}" * 700)),
    "an integer of 5,000 digits": _these(_call(arguments={"n": 10**5000})),
    "text of an integer of 5,000 digits": _these(_call(arguments='{"n": 1' + "0" * 5000 + "}")),
    "not a number": _these(_call(arguments='{"n": NaN, "m": -Infinity, "k": 1e999}')),
    "lone surrogates": _these(_call(arguments='{"\\ud800": "\\udfff"}')),
    "a list of itself": lambda: [_call(arguments={"x": _cyclic()})],
    "a map of itself": lambda: [_call(arguments=_cyclic_map())],
    "objects in arguments": _these(_call(arguments={"x": BadRepr(), "y": BadIter(), "z": {1, 2}, 3: b"x"})),
    "a text whose methods raise": _these(_call(arguments={BadText("k"): BadText("x"), "n": BadNumber(2)})),
    "a mapping that raises": _these(_call(arguments=BadMapping())),
    "arguments that are a list": _these(_call(arguments=[1])),
    "arguments that are a number": _these(_call(arguments=3)),
    "arguments that are bytes": _these(_call(arguments=b"{}")),
    "arguments that raise": _these(_call(arguments=BadAttributes())),
    "text of a list": _these(_call(arguments="[]")),
    "text that is no JSON": _these(_call(arguments="{")),
    "text whose methods raise": _these(_call(arguments=BadText("{}"))),
    "110,000 values": _these(_call(arguments={str(n): 1 for n in range(110_000)})),
    "no name": _these(_call(name="")),
    "no name at all": _these(_call(name=None)),
    "a name of 1 MB": _these(_call(name="do" * 500_000)),
    "a name of lone surrogates": _these(_call(name="do\ud800")),
    "a name that is a number": _these(_call(name=10**5000)),
    "a name that is a list of itself": lambda: [_call(name=_cyclic())],
    "a name that raises": _these(_call(name=BadRepr())),
    "a name whose methods raise": _these(_call(name=BadText("do"))),
    "an id of 1 MB": _these(_call("c" * 1_000_000)),
    "an id that is a number": _these(_call(10**5000)),
    "an id that raises": _these(_call(BadRepr())),
    "an id of lone surrogates": _these(_call("c\ud800")),
    "ids that are the same": lambda: [_call("same"), _call("same"), _call("same", "other")],
    "ids that are lists": lambda: [_call(["a"]), _call({"a": 1})],
    "an object that raises": _these(RaisingCall()),
    "objects": _these(RawCall("o1", "do", {"x": BadRepr()}), RawCall("o2", BadRepr(), 3)),
    "an agent that is none": _these(_call(None, "do", {"agent": {"x": 1}, "agent_name": ["y"]})),
}
