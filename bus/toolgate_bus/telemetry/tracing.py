"""Traces: the one door to OpenTelemetry.

    with tracing.span("execute_tool add", attributes={"gen_ai.tool.name": "add"}) as span:
        …                                       # spans opened in here are its children
        span.set({"toolgate.outcome": "ok"})

Only the API is needed. Without a provider nothing is recorded, and `is_active` is all that is done.
A span holds names, ids and numbers: never a tool's arguments or results, never the words of an
error, which may repeat them. Whatever a provider does wrong, nothing is raised into a decision.
Commands `configure` the SDK from the standard environment variables; a program that hosts a `Gate`
brings a provider of its own.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from os import environ
from types import TracebackType
from typing import Any, Final, Literal, Self

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.environment_variables import OTEL_PYTHON_TRACER_PROVIDER
from opentelemetry.trace import NoOpTracer, NoOpTracerProvider, ProxyTracerProvider, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from toolgate_bus.errors import ConfigError
from toolgate_bus.installation import how_to_install
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.trace_context import filter_context as filter_context
from toolgate_bus.telemetry.trace_context import trace_id_of as trace_id_of

Kind = Literal["internal", "client", "consumer"]
Value = str | int | float | bool | None

MAX_TEXT: Final = 256
"""Maximum length of a name or an attribute, in characters. An LLM may give longer names."""
FLUSH_SECONDS: Final = 3.0
"""Maximum seconds that the end of a command waits for its last spans to be taken."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")
_KINDS: Final = {
    "internal": trace.SpanKind.INTERNAL,
    "client": trace.SpanKind.CLIENT,
    "consumer": trace.SpanKind.CONSUMER,
}
_NAMED: Final = OTEL_PYTHON_TRACER_PROVIDER in environ
"""True if the environment names a provider, which the first request for one loads."""
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_log = get_logger("toolgate.tracing")

_given: trace.TracerProvider | None = None
"""Provider of `use`, which comes before the global one."""
_met: tuple[trace.TracerProvider | None, trace.Tracer | None] = (None, None)
"""Provider that was looked at last, and its tracer; None if it records nothing."""


# ---------------------------------------------------------------------- is anybody recording


def is_active() -> bool:
    """Return whether there is a provider that may record. Otherwise nothing else here does anything."""
    return _tracer() is not None


def _tracer() -> trace.Tracer | None:
    global _given
    if _given is None and not _NAMED and getattr(trace, "_TRACER_PROVIDER", trace) is None:
        return None  # nobody has set one; to ask for it reads the environment, which is slow
    try:
        provider = _given or trace.get_tracer_provider()
        return _met[1] if provider is _met[0] else _meet(provider)
    except Exception as error:  # noqa: BLE001 - a provider named in the environment may not load
        _given = NoOpTracerProvider()
        _log.warning("there will be no traces", error=type(error).__name__)
        return None


def _meet(provider: trace.TracerProvider) -> trace.Tracer | None:
    global _met
    tracer = None
    if not isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        tracer = provider.get_tracer("toolgate", version("toolgate-bus"))
    _met = (provider, None if isinstance(tracer, NoOpTracer) else tracer)
    return _met[1]


@contextmanager
def use(provider: trace.TracerProvider) -> Iterator[None]:
    """Record by this provider, instead of the global one, during the block."""
    global _given
    before, _given = _given, provider
    try:
        yield
    finally:
        _given = before


# ---------------------------------------------------------------------- the context that travels


def headers() -> dict[str, str]:
    """Return `traceparent` and `tracestate` of the current span; empty if there is none."""
    if not is_active():
        return {}
    written: dict[str, str] = {}
    _PROPAGATOR.inject(written)
    return filter_context(written)


def current_trace_id() -> str | None:
    """Return the trace id of the current span, as 32 hexadecimal digits; None if there is none."""
    return trace_id_of(headers())


# ---------------------------------------------------------------------- spans


class Span:
    """Span for a `with` block. This class itself records nothing."""

    __slots__ = ()

    def set(self, attributes: Mapping[str, Value]) -> None:
        """Add attributes: names, ids, numbers. None is left out, a long text is cut."""

    def fail(self, kind: str) -> None:
        """Mark it as failed with this kind of error, a name. Anything else is told as `_OTHER`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """End it. An exception marks the span with its type, a cancellation with `toolgate.cancelled`."""


NO_SPAN: Final = Span()
"""Span that records nothing."""


class _ProviderSpan(Span):
    """Span of a provider, current while it is open."""

    __slots__ = ("_span", "_token")

    def __init__(self, recorded: trace.Span) -> None:
        self._span = recorded

    def set(self, attributes: Mapping[str, Value]) -> None:
        """Add attributes, as `Span` says."""
        _harmless(lambda: self._span.set_attributes(_clean(attributes)))

    def fail(self, kind: str) -> None:
        """Mark it as failed, as `Span` says."""
        kind = kind if _NAME.fullmatch(kind) else "_OTHER"
        self.set({"error.type": kind})
        _harmless(lambda: self._span.set_status(StatusCode.ERROR, kind))

    def __enter__(self) -> Self:
        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        context.detach(self._token)
        if isinstance(error, Exception):
            self.fail(type(error).__name__)
        elif error is not None:
            self.set({"toolgate.cancelled": True})
        _harmless(self._span.end)


def span(
    name: str,
    *,
    parent: Mapping[str, str] | None = None,
    attributes: Mapping[str, Value] | None = None,
    kind: Kind = "internal",
) -> Span:
    """Return a span for a `with` block, in which it is the current one.

    `parent` is the context out of a message: one that is empty or malformed makes this the first
    span of a trace. Without `parent` it is a child of the current span.
    """
    tracer = _tracer()
    if tracer is None:
        return NO_SPAN
    try:
        return _ProviderSpan(
            tracer.start_span(
                _text(name),
                context=None if parent is None else _PROPAGATOR.extract(filter_context(parent), Context()),
                kind=_KINDS[kind],
                attributes=_clean(attributes or {}),
            )
        )
    except Exception as error:  # noqa: BLE001 - somebody's sampler or processor
        _log.warning("a span was not begun", error=type(error).__name__)
        return NO_SPAN


def _clean(attributes: Mapping[str, Value]) -> dict[str, str | int | float | bool]:
    return {
        key: _text(value) if isinstance(value, str) else value
        for key, value in attributes.items()
        if value is not None
    }


def _text(text: str) -> str:
    """Return a short text, fit for UTF-8: one lone surrogate would lose a whole batch of spans."""
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()


def _harmless(step: Callable[[], Any]) -> None:
    try:
        step()
    except Exception as error:  # noqa: BLE001 - somebody's processor; tracing must not end a turn
        _log.warning("a span was not written", error=type(error).__name__)


# ---------------------------------------------------------------------- commands


def configure(service: str) -> ExitStack:
    """Export traces if the OTEL_… environment asks for it: `with tracing.configure("toolgate-run"):`.

    The end of the block hands over the last spans, for at most three seconds. A provider that is
    there already (`opentelemetry-instrument`) is left alone. Raise ConfigError that names the variable.
    """
    stack, asked = ExitStack(), _find_trace_variable()
    if asked is None or is_active():
        return stack
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{asked} asks for traces, and {error.name} is not installed: "
            f"run `{how_to_install('otel')}`, or set OTEL_TRACES_EXPORTER=none"
        ) from None
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    exporter = OTLPSpanExporter()
    provider = TracerProvider(
        resource=Resource.create({} if named else {"service.name": service}), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    stack.callback(_hand_over, provider.shutdown, exporter.shutdown)
    return stack


def _find_trace_variable() -> str | None:
    """Return the variable that asks for traces, if one does. Raise ConfigError for what cannot be done."""
    wanted = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if wanted == "none" or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    addresses = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    asked = (
        "OTEL_TRACES_EXPORTER" if wanted else next((name for name in addresses if environ.get(name)), None)
    )
    if wanted not in ("", "otlp"):
        raise ConfigError(f"OTEL_TRACES_EXPORTER: {wanted[:40]!r} cannot be used here: set otlp or none")
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environ.get(name) or "http/protobuf"
        if asked and protocol != "http/protobuf":
            raise ConfigError(
                f"{name}: {protocol[:40]!r} cannot be used here: set http/protobuf (port 4318, as a rule)"
            )
    return asked


def _hand_over(shutdown: Callable[[], None], give_up: Callable[[], None]) -> None:
    thread = threading.Thread(target=shutdown, name="toolgate-last-spans", daemon=True)
    thread.start()
    thread.join(FLUSH_SECONDS)
    if thread.is_alive():
        _log.warning("the last spans were not taken", waited_s=FLUSH_SECONDS)
        give_up()  # wakes the exporter out of its pause between two attempts
