"""The spans of a turn in every loop: how they nest and what they hold; none without a provider."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from amplifier_core import HookResult, ToolResult
from four_loops import LOOPS
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from questions import decide as decide_on
from toolgate_bus.protocol.events import Continue, Deny, Modify
from toolgate_bus.telemetry import tracing
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate

ASKED = {"toolgate": {"agent": "clerk"}}
SECRET = "hunter2-canary"

Told = Callable[[], dict[str, list[ReadableSpan]]]


@pytest.fixture
def spans() -> Iterator[Told]:
    """What was recorded, by name; inside a test that takes it, tracing is on."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))

    def by_name() -> dict[str, list[ReadableSpan]]:
        found: dict[str, list[ReadableSpan]] = {}
        for span in kept.get_finished_spans():
            found.setdefault(span.name, []).append(span)
        return found

    with tracing.use(provider):
        yield by_name


def parents(*spans: ReadableSpan) -> set[int]:
    return {span.parent.span_id if span.parent else 0 for span in spans}


def ids(*spans: ReadableSpan) -> set[int]:
    return {span.context.span_id for span in spans if span.context}


def value(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {}).get(name)


def denied(told: dict[str, Any]) -> HookResult:
    return HookResult(action="deny", reason=f"{SECRET} is not to be told")


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_turn_holds_its_requests_its_decisions_and_its_tools(
    agent: Any, tool: Any, calls: Any, spans: Told, loop: str
) -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    turns = [{**calls("a", "b"), "usage": usage}, {"text": "ok"}]
    async with agent(turns, tools=[tool("a"), tool("b")], loop=loop, config=ASKED) as a:
        a.on("tool:selecting")
        await a.ask()
    told = spans()
    (turn,) = told["invoke_agent clerk"]
    chats, decisions = told["chat scripted-1"], told["toolgate.decide a"] + told["toolgate.decide b"]
    runs = told["execute_tool a"] + told["execute_tool b"]
    assert parents(turn) == {0}
    assert parents(*chats, *decisions, *runs) == ids(turn)
    assert (len(chats), len(decisions), len(runs)) == (2, 2, 2)
    assert {span.kind for span in chats} == {SpanKind.CLIENT}
    assert {span.status.status_code for span in (turn, *chats, *decisions, *runs)} == {StatusCode.UNSET}
    assert value(turn, "gen_ai.operation.name") == "invoke_agent"
    assert value(turn, "gen_ai.agent.name") == "clerk"
    assert value(turn, "gen_ai.conversation.id") == "s-1"
    assert (value(turn, "toolgate.loop"), value(turn, "toolgate.status")) == (loop, "completed")
    assert value(chats[0], "gen_ai.usage.input_tokens") == 3
    assert value(chats[0], "gen_ai.usage.output_tokens") == 4
    assert value(chats[0], "gen_ai.provider.name") == "scripted"
    by_call = {value(span, "gen_ai.tool.call.id"): span for span in runs}
    assert {call: value(span, "gen_ai.tool.name") for call, span in by_call.items()} == {"c1": "a", "c2": "b"}
    for decision in decisions:
        run = by_call[value(decision, "gen_ai.tool.call.id")]
        assert value(run, "toolgate.decision.id") == value(decision, "toolgate.decision.id")
        assert value(run, "gen_ai.operation.name") == "execute_tool"
        assert value(decision, "toolgate.outcome") == "continue"


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming", "loop-reactive"])
async def test_side_by_side_what_a_tool_does_belongs_to_its_own_span(
    agent: Any, tool: Any, calls: Any, spans: Told, loop: str
) -> None:
    both_run = asyncio.Barrier(2)

    def works(name: str) -> Any:
        async def answer(_: dict[str, Any]) -> str:
            await both_run.wait()
            with tracing.span(f"inside {name}"):
                await both_run.wait()
            return "done"

        return tool(name, answer)

    async with agent([calls("a", "b"), {"text": "ok"}], tools=[works("a"), works("b")], loop=loop) as a:
        await a.ask()
    told = spans()
    for name in "ab":
        assert parents(*told[f"inside {name}"]) == ids(*told[f"execute_tool {name}"])


@pytest.mark.parametrize("loop", LOOPS)
async def test_no_argument_result_reason_or_error_is_in_a_span(
    agent: Any, tool: Any, calls: Any, spans: Told, loop: str
) -> None:
    def raises(_: dict[str, Any]) -> Any:
        raise ValueError(f"{SECRET} is wrong")

    def fails(_: dict[str, Any]) -> Any:
        return ToolResult(success=False, error={"type": f"{SECRET} is no name", "message": SECRET})

    tools = [tool("raises", raises), tool("fails", fails), tool("gives", lambda _: SECRET), tool("denied")]
    told_to = [(name, {"key": SECRET}) for name in ("raises", "fails", "gives", "denied")]
    turns = [{**calls(*told_to), "text": SECRET}, {"text": SECRET}]
    async with agent(turns, tools=tools, loop=loop, config=ASKED) as a:
        a.on(
            "tool:selecting",
            *[lambda data: denied(data) if data["tool_name"] == "denied" else HookResult()] * 4,
        )
        await a.ask(SECRET)
    told = spans()
    everything = "".join(span.to_json() for several in told.values() for span in several)
    assert "execute_tool raises" in everything
    assert SECRET not in everything
    (raised,), (failed,), (decision,) = (
        told[name] for name in ("execute_tool raises", "execute_tool fails", "toolgate.decide denied")
    )
    assert (raised.status.status_code, value(raised, "error.type")) == (StatusCode.ERROR, "ValueError")
    assert (failed.status.status_code, value(failed, "error.type")) == (StatusCode.ERROR, "_OTHER")
    assert (decision.status.status_code, decision.status.description) == (StatusCode.ERROR, "denied")
    assert decision.events == ()
    assert "execute_tool denied" not in told
    assert told["invoke_agent clerk"][0].status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("loop", LOOPS)
async def test_an_error_of_the_provider_marks_its_request_and_the_turn(
    agent: Any, llm: Any, spans: Told, loop: str
) -> None:
    async with agent(loop=loop, llm=llm([ValueError(SECRET)])) as a:
        if loop == "loop-events":  # tells the error as its answer
            await a.ask()
        else:
            with pytest.raises(RuntimeError):
                await a.ask()
    told = spans()
    (chat,), (turn,) = told["chat llm-1"], told["invoke_agent"]
    assert (chat.status.status_code, chat.status.description) == (StatusCode.ERROR, "ValueError")
    assert turn.status.status_code is StatusCode.ERROR
    assert value(turn, "toolgate.status") == "error"
    assert SECRET not in chat.to_json() + turn.to_json()


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_turn_that_is_cancelled_closes_every_span(
    agent: Any, tool: Any, calls: Any, spans: Told, loop: str
) -> None:
    runs = asyncio.Event()

    async def hangs(_: dict[str, Any]) -> None:
        runs.set()
        await asyncio.Event().wait()

    async with agent([calls("a")], tools=[tool("a", hangs)], loop=loop) as a:
        orchestrator, get = a.session.coordinator.get("orchestrator"), a.session.coordinator.get
        turn = asyncio.ensure_future(
            orchestrator.execute("hi", get("context"), get("providers"), get("tools"), a.hooks)
        )
        await asyncio.wait_for(runs.wait(), 10)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
    told = spans()
    assert value(told["execute_tool a"][0], "toolgate.cancelled") is True
    assert value(told["invoke_agent"][0], "toolgate.status") == "cancelled"
    assert told["invoke_agent"][0].status.status_code is StatusCode.UNSET


async def test_the_tool_that_runs_is_named_where_a_scheduler_replaced_the_call(
    agent: Any, tool: Any, calls: Any, spans: Told
) -> None:
    change = HookResult(action="modify", data={"tool": "b", "arguments": {}})
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a"), tool("b")], config=ASKED) as a:
        a.on("tool:selecting", change)
        await a.ask()
    told = spans()
    (decision,), (run,) = told["toolgate.decide a"], told["execute_tool b"]
    assert value(decision, "toolgate.outcome") == "modify"
    assert (value(decision, "toolgate.tool"), value(decision, "toolgate.final_tool")) == ("a", "b")
    assert value(run, "gen_ai.tool.name") == "b"
    assert "execute_tool a" not in told


async def test_a_name_that_is_not_mounted_makes_no_span_name(agent: Any, calls: Any, spans: Told) -> None:
    async with agent([calls("made_up"), {"text": "ok"}], config=ASKED) as a:
        a.on("tool:selecting")
        await a.ask()
    told = spans()
    assert {"toolgate.decide other", "execute_tool other"} < told.keys()
    assert value(told["execute_tool other"][0], "error.type") == "UnknownTool"


# ---------------------------------------------------------------------- the gate alone


async def decide(gate: Gate, answer: Any = None, **given: Any) -> tuple[Any, dict[str, str]]:
    """The decision, and the trace context that the question carried."""
    asked: list[Any] = []

    async def local(question: Any) -> list[Any]:
        asked.append(question)
        return [answer or Continue()]

    decision = await decide_on(gate, "search", {"q": SECRET}, ["search", "fetch"], local=local, **given)
    return decision, asked[0].trace


async def test_the_question_carries_the_context_of_the_decisions_own_span(spans: Told) -> None:
    _, carried = await decide(Gate(parse({}), None))
    (decision,) = spans()["toolgate.decide search"]
    assert decision.context is not None
    assert carried["traceparent"].split("-")[2] == trace.format_span_id(decision.context.span_id)


async def test_both_phases_carry_the_same_context(spans: Told) -> None:
    phases: dict[str, str] = {}

    async def local(question: Any) -> list[Any]:
        phases[question.phase] = question.trace["traceparent"]
        return [Modify(tool="fetch") if question.phase == "select" else Deny(reason="not that one")]

    await Gate(parse({}), None).decide(Call("search", {}, ["search", "fetch"]), local=local)
    assert set(phases) == {"select", "verify"}
    assert len(set(phases.values())) == 1


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_a_context_that_is_given_comes_before_the_current_span(spans: Told) -> None:
    with tracing.span("current"):
        await decide(Gate(parse({}), None), trace={"traceparent": PARENT})
        await decide(Gate(parse({}), None))
    given, current = spans()["toolgate.decide search"]
    assert given.context is not None
    assert trace.format_trace_id(given.context.trace_id) == PARENT[3:35]
    assert parents(current) == ids(*spans()["current"])


async def test_a_malformed_context_is_refused_and_the_call_still_ruled_on(spans: Told) -> None:
    decision, carried = await decide(
        Gate(parse({}), None), trace={"traceparent": "x" * 10_000, "more": "\ud800"}
    )
    assert decision.outcome == "continue"
    assert set(carried) == {"traceparent"}
    assert parents(*spans()["toolgate.decide search"]) == {0}


async def test_without_a_provider_a_given_context_travels_as_it_is() -> None:
    given = {"traceparent": PARENT, "tracestate": "a=1"}
    assert (await decide(Gate(parse({}), None), trace={**given, "more": "x"}))[1] == given
    assert (await decide(Gate(parse({}), None)))[1] == {}


async def test_without_a_provider_a_decision_looks_once_whether_there_is_one() -> None:
    """Counted in calls, as times say little on a busy machine."""
    gate, made = Gate(parse({}), None), Counter[str]()
    api = str(Path(trace.__file__).parent.parent)

    def count(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and (code.co_filename.startswith(api) or code.co_filename == tracing.__file__):
            made[code.co_name] += 1

    await decide(gate)
    sys.setprofile(count)
    try:
        await decide(gate)
    finally:
        sys.setprofile(None)
    assert made == {"is_active": 1, "_tracer": 1}
