"""One trace from an agent's process through its schedulers' processes, as a collector receives it."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id, format_trace_id
from toolgate_bus.telemetry import tracing
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate
from trace_collector import Collected, Told, collector

pytestmark = pytest.mark.acceptance

SECRET = "hunter2-canary"
INTERNAL, CLIENT, CONSUMER = 1, 3, 5
UNSET, ERROR = 0, 2

REPLACE = {"action": "modify", "tool": "calculate", "arguments": {"expression": "6*7"}, "reason": SECRET}
CALL = {"name": "search_files", "arguments": {"pattern": SECRET, "rules": {"beta": REPLACE}}}
DENIED = {
    "name": "calculate",
    "arguments": {"expression": SECRET, "rules": {"alpha": {"action": "deny", "reason": SECRET}}},
}


@pytest.fixture
def collected() -> Iterator[Collected]:
    with collector() as collected:
        yield collected


@pytest.fixture
async def traced(collected: Collected, schedulers: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """alpha and beta as processes that export to the collector."""
    for name, value in collected.soon.items():
        monkeypatch.setenv(name, value)
    for child in [schedulers.run("obedient:alpha"), schedulers.run("obedient:beta")]:
        await schedulers.ready(child)
    for name in collected.soon:
        monkeypatch.delenv(name)
    return schedulers


@pytest.fixture
def ask(process: Any, tmp_path: Path, traced: Any) -> Any:
    """`ask(call, env)`: `toolgate run` of an agent whose LLM makes this call."""

    def start(call: dict[str, Any], env: dict[str, str]) -> Any:
        turns = [{"tool_calls": [call]}, {"text": "done"}]
        asking = {"agent": "clerk", "required": ["alpha", "beta"], "patience_ms": 20_000}
        plan = {
            "session": {"orchestrator": "loop-events"},
            "orchestrator": {"config": {"toolgate": asking}},
            "tools": [
                "tool-calculator",
                {"module": "tool-folder-search", "config": {"root": str(tmp_path)}},
            ],
            "providers": [{"module": "provider-scripted", "config": {"turns": turns}}],
        }
        path = tmp_path / "plan.yaml"
        path.write_text(json.dumps(plan))
        where = ("--redis", traced.url, "--namespace", traced.namespace)
        return process("toolgate", "run", f"tell {SECRET}", "--plan", path, *where, env=env)

    return start


def one(spans: list[Told]) -> Told:
    (span,) = spans
    return span


async def test_one_trace_joins_the_agent_with_each_schedulers_process(
    ask: Any, collected: Collected, wait_until: Any
) -> None:
    run = ask(CALL, collected.env)
    assert await asyncio.to_thread(run.wait) == 0, run.stderr
    await wait_until(lambda: len(collected.named("toolgate.verdict alpha")) == 2)
    await wait_until(lambda: len(collected.named("toolgate.verdict beta")) == 1)

    turn = one(collected.named("invoke_agent clerk"))
    chats = collected.named("chat scripted-1")
    decide = one(collected.named("toolgate.decide search_files"))
    tool = one(collected.named("execute_tool calculate"))
    verdicts = [span for span in collected.spans if span.name.startswith("toolgate.verdict")]

    assert {span.trace for span in collected.spans} == {turn.trace}
    assert turn.parent == ""
    assert [span.parent for span in [*chats, decide, tool]] == [turn.id] * 4
    assert {span.parent for span in verdicts} == {decide.id}
    assert {span.service for span in verdicts} == {"toolgate-scheduler"}
    assert {span.service for span in (turn, decide, tool, *chats)} == {"toolgate-run"}
    assert {span.kind for span in verdicts} == {CONSUMER}
    assert {span.kind for span in chats} == {CLIENT}
    assert (turn.kind, decide.kind, tool.kind) == (INTERNAL,) * 3

    said = {
        (span.attributes["toolgate.scheduler"], span.attributes["toolgate.phase"]): (
            span.attributes["toolgate.action"],
            span.attributes["toolgate.priority"],
        )
        for span in verdicts
    }
    assert said == {
        ("alpha", "select"): ("continue", 10),
        ("beta", "select"): ("modify", 20),
        ("alpha", "verify"): ("continue", 10),
    }
    assert len({span.attributes["toolgate.replica"] for span in verdicts}) == 2
    assert decide.attributes["toolgate.outcome"] == "modify"
    assert decide.attributes["toolgate.scheduler"] == "beta"
    assert decide.attributes["toolgate.final_tool"] == tool.attributes["gen_ai.tool.name"] == "calculate"
    assert tool.attributes["gen_ai.tool.call.id"] == decide.attributes["gen_ai.tool.call.id"]
    assert {span.attributes["toolgate.decision.id"] for span in (decide, tool, *verdicts)} == {
        decide.attributes["toolgate.decision.id"]
    }
    assert SECRET.encode() not in b"".join(collected.raw)


async def test_a_denial_is_told_by_status_and_kind_and_its_words_stay_out(
    ask: Any, collected: Collected, wait_until: Any
) -> None:
    run = ask(DENIED, collected.env)
    assert await asyncio.to_thread(run.wait) == 0, run.stderr
    denied = await wait_until(lambda: collected.named("toolgate.verdict alpha"))
    decide = one(collected.named("toolgate.decide calculate"))
    assert (decide.status, decide.message, decide.events) == (ERROR, "denied", 0)
    assert decide.attributes["toolgate.why"] == "denied"
    assert "toolgate.final_tool" not in decide.attributes
    assert (denied[0].status, denied[0].attributes["toolgate.action"]) == (UNSET, "deny")
    assert collected.named("execute_tool calculate") == []
    assert one(collected.named("invoke_agent clerk")).status == UNSET
    assert SECRET.encode() not in b"".join(collected.raw)


async def test_a_program_of_its_own_is_joined_by_its_current_span(
    traced: Any, collected: Collected, wait_until: Any
) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    with tracing.use(provider):
        async with Gate.open(
            redis=traced.url, namespace=traced.namespace, required=["alpha"], patience_ms=20_000
        ) as gate:
            with provider.get_tracer("a program").start_as_current_span("its own") as own:
                decision = await gate.decide(Call("search", {"q": SECRET}, ["search"]))
    assert decision.why == "agreed"
    decide, outer = kept.get_finished_spans()
    assert (decide.name, outer.name) == ("toolgate.decide search", "its own")
    assert decide.parent is not None
    assert decide.parent.span_id == own.get_span_context().span_id
    (verdict,) = await wait_until(lambda: collected.named("toolgate.verdict alpha"))
    assert verdict.trace == format_trace_id(outer.context.trace_id)
    assert verdict.parent == format_span_id(decide.context.span_id)


async def test_a_collector_that_is_away_does_not_keep_a_command_from_its_end(ask: Any) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        nobody.listen()  # takes connections, and never answers
        port = nobody.getsockname()[1]
        run = ask(CALL, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"})
        assert await asyncio.to_thread(run.wait) == 0, run.stderr
    assert run.stdout == "done\n"
    assert "the last spans were not taken" in run.stderr


async def test_an_exporter_that_cannot_be_used_is_named(ask: Any) -> None:
    run = ask(CALL, {"OTEL_TRACES_EXPORTER": "zipkin"})
    assert await asyncio.to_thread(run.wait) == 2
    assert "OTEL_TRACES_EXPORTER: 'zipkin' cannot be used here: set otlp or none" in run.stderr
