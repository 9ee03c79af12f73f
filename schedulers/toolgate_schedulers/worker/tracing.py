"""Record a span for each verdict, a child of the decision's span in the orchestrator's process.

The question carries the trace context. A span has names, ids and numbers; the reason stays in the record.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import codec
from toolgate_bus.protocol.events import Failure, ToolSelecting, Verdict
from toolgate_bus.telemetry import tracing
from toolgate_bus.telemetry.logging import about

from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.worker.holds import ReplyTo

_open: ContextVar[tracing.Span] = ContextVar("toolgate_verdict_span", default=tracing.NO_SPAN)


@contextmanager
def span_of_verdict(scheduler: Scheduler, question: ToolSelecting, replica: str) -> Iterator[None]:
    """Record a span while one question is decided. If it is held in place, the span ends with the answer.

    If this process records nothing, its log lines carry the trace all the same.
    """
    if not tracing.is_active():
        with about(trace=question.trace) if question.trace else nullcontext():
            yield
        return
    recorded = tracing.span(
        f"toolgate.verdict {scheduler.name}",
        parent=question.trace,
        kind="consumer",
        attributes={
            "toolgate.scheduler": scheduler.name,
            "toolgate.replica": replica,
            "toolgate.decision.id": question.id,
            "toolgate.phase": question.phase,
            "toolgate.tool": question.tool_name,
            "toolgate.shadow": scheduler.shadow,
            "gen_ai.agent.name": question.agent or None,
        },
    )
    with recorded as span:
        token = _open.set(span)
        try:
            yield
        finally:
            _open.reset(token)


@contextmanager
def span_of_answer(scheduler: Scheduler, asked: ReplyTo, replica: str) -> Iterator[None]:
    """Record a span for the answer to a stored hold, which a person or another replica gives."""
    question = _question(asked) if tracing.is_active() and _open.get() is tracing.NO_SPAN else None
    if question is None:
        yield
        return
    with span_of_verdict(scheduler, question, replica):
        yield


def tell(verdict: Verdict | Failure, priority: int) -> None:
    """Set the answer on the open span. `priority` is the scheduler's, for a verdict that names none."""
    span = _open.get()
    if span is tracing.NO_SPAN:
        return
    named = priority if verdict.priority is None else verdict.priority
    span.set({"toolgate.action": verdict.action, "toolgate.priority": named})
    if isinstance(verdict, Failure):
        span.fail("failed")


def _question(asked: ReplyTo) -> ToolSelecting | None:
    try:
        return codec.question(asked.item)
    except CodecError:
        return None
