"""The facts of a turn: what each loop tells of turns, requests and tools, and that they are counted."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from amplifier_core import ToolResult
from opentelemetry.sdk.trace import TracerProvider
from toolgate_bus.facts import record
from toolgate_bus.protocol import packing
from toolgate_bus.telemetry import metrics, tracing
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_orchestrator.loops.basic import LoopBasic
from toolgate_orchestrator.loops.events import LoopEvents
from toolgate_orchestrator.loops.reactive import LoopReactive
from toolgate_orchestrator.loops.streaming import LoopStreaming

CLASSES = {loop.name: loop for loop in (LoopBasic, LoopStreaming, LoopEvents, LoopReactive)}
LOOPS = tuple(CLASSES)
USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
ASKED = {"agent": "clerk", "labels": {"team": "north"}}
WHO = {"session": "s-1", "root_session": "s-1", "agent": "clerk"}


class Record:
    """What was told on a bus where somebody reads facts."""

    def __init__(self, hub: MemoryHub, gate: Gate) -> None:
        self._hub, self._gate = hub, gate

    async def listens(self, a: Any, loop: str) -> None:
        """This session's turns are those of a loop with our gate."""
        coordinator = a.session.coordinator
        await coordinator.unmount("orchestrator")
        await coordinator.mount("orchestrator", CLASSES[loop]({"toolgate": ASKED}, self._gate))

    def __call__(self, *events: str) -> list[dict[str, Any]]:
        told = [record.read_facts(packing.items(packing.frame([raw]))[0])[0] for raw in self._hub.facts]
        return [fact for fact in told if fact["event"] in events]


@pytest.fixture
async def facts() -> AsyncIterator[Record]:
    hub = MemoryHub()
    hub.is_read = True
    client = GateClient(hub.orchestrator())
    await client.start()
    yield Record(hub, Gate(parse(ASKED), client))
    await client.bus.aclose()


def growth(name: str, **labels: str) -> Callable[[], float]:
    """A function that says how much a counter grew since now."""
    before = metrics.value(name, **labels)
    return lambda: metrics.value(name, **labels) - before


def told(fact: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: fact.get(name) for name in names}


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_turn_tells_how_it_ended_and_whose_it_was(
    agent: Any, tool: Any, calls: Any, facts: Record, loop: str
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")]) as a:
        await facts.listens(a, loop)
        await a.ask()
    (turn,) = facts("turn")
    assert told(turn, *WHO) == WHO
    assert told(turn, "loop", "status", "iterations") == {
        "loop": loop,
        "status": "completed",
        "iterations": 2,
    }
    assert turn["labels"] == {"team": "north"}
    assert 0 < turn["seconds"] < 60
    assert not {"parent", "trace"} & turn.keys()


@pytest.mark.parametrize("loop", LOOPS)
async def test_each_request_tells_its_seconds_its_model_and_what_it_used(
    agent: Any, facts: Record, loop: str
) -> None:
    async with agent([{"text": "ok", "usage": USAGE}]) as a:
        await facts.listens(a, loop)
        await a.ask()
    (usage,) = facts("usage")
    assert told(usage, *WHO) == WHO
    assert told(usage, "provider", "model", "iteration", "input_tokens", "output_tokens") == {
        "provider": "scripted",
        "model": "scripted-1",
        "iteration": 1,
        "input_tokens": 3,
        "output_tokens": 4,
    }
    assert usage["labels"] == {"team": "north"}
    assert 0 <= usage["seconds"] < 60


async def test_what_a_provider_calls_its_figures_does_not_change_whose_they_are(
    agent: Any, llm: Any, facts: Record
) -> None:
    class Odd(llm):
        async def complete(self, request: Any, **options: Any) -> dict[str, Any]:
            usage = {"agent": "boss", "session": "s-9", "provider": "dear", "seconds": -1, "labels": {}}
            return {"content": "ok", "usage": usage}

        def parse_tool_calls(self, response: Any) -> list[Any]:
            return []

    async with agent(llm=Odd(whole=True)) as a:
        await facts.listens(a, "loop-events")
        await a.ask()
    (usage,) = facts("usage")
    assert told(usage, *WHO) == WHO
    assert (usage["provider"], usage["labels"]) == ("llm", {"team": "north"})
    assert usage["seconds"] >= 0


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_request_that_fails_tells_the_errors_type_and_the_turn_that_it_broke(
    agent: Any, llm: Any, facts: Record, loop: str
) -> None:
    async with agent(llm=llm([ValueError("hunter2")])) as a:
        await facts.listens(a, loop)
        if loop == "loop-events":  # tells the error as its answer
            await a.ask()
        else:
            with pytest.raises(RuntimeError):
                await a.ask()
    (failed,) = facts("provider:error")
    assert told(failed, *WHO) == WHO
    assert told(failed, "provider", "model", "error") == {
        "provider": "llm",
        "model": "llm-1",
        "error": "ValueError",
    }
    assert failed["seconds"] >= 0
    assert [fact["status"] for fact in facts("turn")] == ["error"]
    assert facts("usage") == []


@pytest.mark.parametrize("loop", LOOPS)
async def test_tools_tell_whose_they_are_and_a_name_that_is_not_mounted_is_other(
    agent: Any, tool: Any, calls: Any, facts: Record, loop: str
) -> None:
    def breaks(_: dict[str, Any]) -> Any:
        raise ValueError("hunter2")

    async with agent(
        [calls("a", "breaks", "made_up"), {"text": "ok"}], tools=[tool("a"), tool("breaks", breaks)]
    ) as a:
        await facts.listens(a, loop)
        await a.ask()
    ran = {fact["tool"]: fact for fact in facts("tool:post", "tool:error", "tool:unused")}
    assert {name: fact["event"] for name, fact in ran.items() if name != "other"} == {
        "a": "tool:post",
        "breaks": "tool:error",
    }
    for fact in [*ran.values(), *facts("tool:selected")]:
        assert told(fact, *WHO) == WHO
    if loop != "loop-reactive":  # which refuses such a call as it arrives
        assert ran["other"]["event"] == "tool:unused"
    assert "made_up" not in {fact["tool"] for fact in facts("tool:selected")}


class _TooManyError(Exception):
    status_code, retry_after = 429, 2


@pytest.mark.parametrize("loop", LOOPS)
async def test_what_a_failed_tool_says_of_itself_stands_in_its_fact(
    agent: Any, tool: Any, calls: Any, facts: Record, loop: str
) -> None:
    def raises(_: dict[str, Any]) -> Any:
        raise _TooManyError

    def fails(_: dict[str, Any]) -> Any:
        return ToolResult(success=False, error={"message": "no", "status": 503})

    async with agent(
        [calls("a", "raises", "fails"), {"text": "ok"}],
        tools=[tool("a"), tool("raises", raises), tool("fails", fails)],
    ) as a:
        await facts.listens(a, loop)
        await a.ask()
    ran = {fact["tool"]: fact for fact in facts("tool:post", "tool:error")}
    assert told(ran["raises"], "error", "signal", "retry_after") == {
        "error": "_TooManyError",
        "signal": "429",
        "retry_after": 2,
    }
    assert told(ran["fails"], "event", "success", "signal") == {
        "event": "tool:post",
        "success": False,
        "signal": "503",
    }
    assert not {"signal", "retry_after"} & ran["a"].keys()


class _BusyError(ValueError):
    status_code = 529


async def test_what_a_provider_that_fails_says_of_itself_stands_in_its_fact(
    agent: Any, llm: Any, facts: Record
) -> None:
    async with agent(llm=llm([_BusyError("hunter2")])) as a:
        await facts.listens(a, "loop-events")
        await a.ask()
    (failed,) = facts("provider:error")
    assert failed["signal"] == "529"


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_cancelled_turn_is_told_as_cancelled(
    agent: Any, tool: Any, calls: Any, facts: Record, loop: str
) -> None:
    runs = asyncio.Event()

    async def hangs(_: dict[str, Any]) -> None:
        runs.set()
        await asyncio.Event().wait()

    async with agent([calls("a")], tools=[tool("a", hangs)]) as a:
        await facts.listens(a, loop)
        get, coordinator = a.session.coordinator.get, a.session.coordinator
        turn = asyncio.ensure_future(
            get("orchestrator").execute(
                "hi", get("context"), get("providers"), get("tools"), a.hooks, coordinator=coordinator
            )
        )
        await asyncio.wait_for(runs.wait(), 10)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
    assert [fact["status"] for fact in facts("turn")] == ["cancelled"]
    assert [fact["error"] for fact in facts("tool:error")] == ["CancelledError"]


async def test_a_turn_that_is_traced_tells_its_trace(agent: Any, facts: Record) -> None:
    with tracing.use(TracerProvider(shutdown_on_exit=False)), tracing.span("an app's"):
        async with agent([{"text": "ok"}]) as a:
            await facts.listens(a, "loop-events")
            await a.ask()
        assert tracing.trace_id_of({"traceparent": facts("turn")[0]["trace"]}) == tracing.current_trace_id()


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming"])
async def test_a_loop_that_asks_nobody_counts_all_the_same(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    turns = growth("toolgate_turns_total", agent="", loop=loop, status="completed")
    runs = growth("toolgate_tool_calls_total", tool="counted", agent="", outcome="ok")
    asked = growth("toolgate_provider_requests_total", provider="scripted", agent="", outcome="ok")
    async with agent([calls("counted"), {"text": "ok"}], tools=[tool("counted")], loop=loop) as a:
        await a.ask()
    assert (turns(), runs(), asked()) == (1, 1, 2)


async def test_with_a_gate_each_is_counted_once(agent: Any, tool: Any, calls: Any, facts: Record) -> None:
    turns = growth("toolgate_turns_total", agent="clerk", loop="loop-events", status="completed")
    runs = growth("toolgate_tool_calls_total", tool="counted", agent="clerk", outcome="ok")
    async with agent([calls("counted"), {"text": "ok"}], tools=[tool("counted")]) as a:
        await facts.listens(a, "loop-events")
        await a.ask()
    assert (turns(), runs()) == (1, 1)
