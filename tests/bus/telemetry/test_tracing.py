"""Tracing: the context that travels, spans without words, and nothing at all without a provider."""

import asyncio
import re
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider, StatusCode, format_trace_id
from toolgate_bus.errors import ConfigError
from toolgate_bus.installation import how_to_install
from toolgate_bus.telemetry import tracing

pytestmark = pytest.mark.pure

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def spans():
    """What was recorded; inside a test that takes it, tracing is on."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    with tracing.use(provider):
        yield lambda: {span.name: span for span in kept.get_finished_spans()}


@pytest.fixture
def environment(monkeypatch):
    """`environment(NAME=value)`: the OTEL variables are these and no others."""

    def only(**values):
        for name in [name for name in tracing.environ if name.startswith("OTEL_")]:
            monkeypatch.delenv(name)
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    only()
    return only


# ---------------------------------------------------------------------- the context that travels


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "x",
        PARENT.upper(),
        f"{PARENT}-more",
        f"{PARENT}\n",
        f" {PARENT}",
        PARENT.replace("00-", "ff-", 1),
        PARENT.replace("00-", "01-", 1),
        PARENT.replace(TRACE, "0" * 32),
        PARENT.replace("00f067aa0ba902b7", "0" * 16),
        PARENT.replace("4bf9", "４bf9"),
        PARENT.replace("4bf9", "\ud8004bf"),
        PARENT * 1000,
        None,
        7,
        ["00"],
    ],
)
def test_a_malformed_parent_does_not_travel(parent):
    assert tracing.filter_context({"traceparent": parent, "tracestate": "a=1"}) == {}
    assert tracing.trace_id_of({"traceparent": parent}) is None


@pytest.mark.parametrize("state", ["", "a=" + "x" * 511, "a=1\nb=2", "a=ü", "a=\ud800", None, 7])
def test_a_malformed_or_long_state_is_left_out(state):
    assert tracing.filter_context({"traceparent": PARENT, "tracestate": state}) == {"traceparent": PARENT}


def test_nothing_but_parent_and_state_travels():
    given = {"traceparent": PARENT, "tracestate": "a=1", "baggage": "user=secret"}
    assert tracing.filter_context(given) == {"traceparent": PARENT, "tracestate": "a=1"}
    assert tracing.trace_id_of(given) == TRACE


def test_a_span_is_a_child_of_the_context_that_it_is_given(spans):
    with tracing.span("child", parent={"traceparent": PARENT, "tracestate": "a=1"}):
        assert tracing.headers()["tracestate"] == "a=1"
        assert tracing.current_trace_id() == TRACE
    child = spans()["child"]
    assert format_trace_id(child.context.trace_id) == TRACE
    assert child.parent.is_remote


@pytest.mark.parametrize("parent", [{}, {"traceparent": "nonsense"}])
def test_without_a_sound_parent_in_the_message_a_trace_begins(spans, parent):
    """Whatever span is current there belongs to somebody else."""
    with tracing.span("somebody's"), tracing.span("first", parent=parent):
        pass
    assert spans()["first"].parent is None


def test_without_a_message_the_current_span_is_the_parent(spans):
    with tracing.span("outer"), tracing.span("inner"):
        pass
    told = spans()
    assert told["inner"].parent.span_id == told["outer"].context.span_id


async def test_side_by_side_each_task_has_its_own_current_span(spans):
    both_open = asyncio.Barrier(2)

    async def work(name):
        with tracing.span(f"outer {name}"):
            await both_open.wait()
            with tracing.span(f"inner {name}"):
                await both_open.wait()

    with tracing.span("all"):
        await asyncio.gather(work("a"), work("b"))
    told = spans()
    for name in "ab":
        assert told[f"inner {name}"].parent.span_id == told[f"outer {name}"].context.span_id
        assert told[f"outer {name}"].parent.span_id == told["all"].context.span_id


# ---------------------------------------------------------------------- what a span holds


def test_an_error_is_told_by_its_type_and_never_by_its_words(spans):
    with pytest.raises(ValueError, match="hunter2"), tracing.span("failed"):
        raise ValueError("hunter2")
    failed = spans()["failed"]
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.status.description, failed.attributes["error.type"]) == ("ValueError", "ValueError")
    assert failed.events == ()


@pytest.mark.parametrize("kind", ["the key hunter2 is wrong", "", "x" * 65, "ü"])
def test_a_kind_of_error_that_is_no_name_is_told_as_other(spans, kind):
    with tracing.span("failed") as span:
        span.fail(kind)
    assert spans()["failed"].status.description == "_OTHER"


def test_a_cancellation_is_no_error(spans):
    with pytest.raises(asyncio.CancelledError), tracing.span("cancelled"):
        raise asyncio.CancelledError
    cancelled = spans()["cancelled"]
    assert cancelled.status.status_code is StatusCode.UNSET
    assert cancelled.attributes["toolgate.cancelled"] is True


def test_names_and_values_are_short_and_fit_for_utf8(spans):
    """An LLM may have written them; one lone surrogate would lose a whole batch of spans."""
    with tracing.span("n\ud800" + "n" * 1000, attributes={"a": "\ud800" + "x" * 1000, "none": None}):
        pass
    (span,) = spans().values()
    assert span.name.startswith("n?")
    assert len(span.name) == tracing.MAX_TEXT
    assert len(span.attributes["a"]) == tracing.MAX_TEXT
    assert "none" not in span.attributes


class Broken(SpanProcessor):
    """Somebody's processor that raises wherever it can."""

    def on_start(self, span, parent_context=None):
        if span.name == "never begun":
            raise RuntimeError("start")

    def on_end(self, span):
        raise RuntimeError("end")


@pytest.mark.parametrize("name", ["never begun", "never ended"])
def test_a_broken_processor_ends_nothing(name):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken())
    done = []
    with tracing.use(provider), tracing.span(name) as span:
        span.set({"a": 1})
        done.append(name)
    assert done == [name]
    assert trace.get_current_span() is trace.INVALID_SPAN


# ---------------------------------------------------------------------- without a provider


def test_without_a_provider_nothing_is_active_and_nothing_travels():
    for provider in (NoOpTracerProvider(), trace.ProxyTracerProvider()):
        with tracing.use(provider), tracing.span("nobody's", parent={"traceparent": PARENT}) as span:
            assert not tracing.is_active()
            assert span is tracing.NO_SPAN
            assert tracing.headers() == {}
            assert tracing.current_trace_id() is None


def test_a_provider_that_cannot_be_loaded_means_no_traces(monkeypatch):
    def broken():
        raise RuntimeError("no such provider")

    monkeypatch.setattr(tracing, "_given", None)
    monkeypatch.setattr(trace, "get_tracer_provider", broken)
    assert not tracing.is_active()
    assert not tracing.is_active()


# ---------------------------------------------------------------------- what commands ask for


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
)
def test_nobody_asks_for_traces(environment, values):
    environment(**values)
    with tracing.configure("toolgate-test"):
        assert not tracing.is_active()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "otlp"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://localhost:4318/v1/traces"),
    ],
)
def test_whoever_asks_without_the_sdk_is_told_what_to_install(environment, monkeypatch, name, value):
    environment(**{name: value})
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    command = re.escape(how_to_install("otel"))
    with pytest.raises(ConfigError, match=f"{name} asks for traces, and .*: run `{command}`, or set"):
        tracing.configure("toolgate-test")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "jaeger"}, "OTEL_TRACES_EXPORTER: 'jaeger'"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTLP_PROTOCOL: 'grpc'"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json",
            },
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'http/json'",
        ),
    ],
)
def test_what_cannot_be_done_is_named(environment, values, said):
    environment(**values)
    with pytest.raises(ConfigError, match=said):
        tracing.configure("toolgate-test")


def test_a_provider_that_is_there_is_left_alone(environment, spans):
    environment(OTEL_TRACES_EXPORTER="otlp")
    with tracing.configure("toolgate-test"), tracing.span("recorded"):
        pass
    assert "recorded" in spans()
