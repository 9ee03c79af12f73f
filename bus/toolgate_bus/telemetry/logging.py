"""Logging for the commands: structlog, with the standard library's loggers routed through it.

    {"event": "the scheduler raised", "decision": "0b4f…", "trace_id": "4bf9…", "level": "error", …}

Every line says what it belongs to, whoever logs it: the decision and the session (`about`), and the
trace of the current span. The values in a line are bounded, and cannot break a line or steer a
terminal. Tracebacks show where, never the values of variables. If a process holds secrets
(`hide_in_logs`), they do not show the words of exceptions either, as those may repeat an argument.
Only commands call `configure_logging`; a library leaves logging to the program that uses it. Logs go
to stderr, since stdout belongs to results.

structlog is slow to load, and most commands never log a line. It is loaded with the first line, and before
that by commands that last, or run code of others (`load_structlog`).
"""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

from toolgate_bus.telemetry.log_line import DECISION as DECISION
from toolgate_bus.telemetry.log_line import Event, LogLine, shorten_line, traceback_of
from toolgate_bus.telemetry.log_line import about as about
from toolgate_bus.telemetry.log_line import hide_in_logs as hide_in_logs
from toolgate_bus.telemetry.log_line import where as where
from toolgate_bus.telemetry.printable import clean, visible

if TYPE_CHECKING:
    import structlog

LogFormat = Literal["json", "text"]
_NOT_FOR_PEOPLE: Final = frozenset(
    {
        "event",
        "error",
        "exception",
        "level",
        "logger",
        "timestamp",
        "decision",
        "session",
        "trace_id",
        "span_id",
    }
)
_TALKATIVE: Final = ("openai", "httpcore")
"""Libraries that log whole requests at DEBUG: the conversation, with the arguments of every call."""


def add_context(logger: Any, method: str, event: Event) -> Event:
    """Add what `about` says, and `trace_id` and `span_id` of the current span. A processor of structlog."""
    # Imported here: the caller has loaded structlog, while most processes log no line.
    from structlog.contextvars import merge_contextvars

    from toolgate_bus.telemetry import tracing

    event = merge_contextvars(logger, method, event)
    parent = tracing.headers().get("traceparent")
    if parent is not None:
        _, event["trace_id"], event["span_id"], _ = parent.split("-")
    return event


def _tame(_logger: Any, _method: str, event: Event) -> Event:
    """Return the fields for people: texts of others make no lines and do not steer the terminal."""
    return {
        name: (clean(value) if name == "exception" else visible(value)) if isinstance(value, str) else value
        for name, value in event.items()
    }


# ---------------------------------------------------------------------- for commands


def configure_logging(level: str = "WARNING", form: LogFormat | None = None) -> None:
    """Log from `level` up to stderr; by default readable on a terminal, one JSON object a line otherwise.

    Raise ValueError for a level that logging does not know.
    """
    as_json = form == "json" if form else not sys.stderr.isatty()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LateFormatter("json" if as_json else "text"))
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.handlers = [handler]
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(root.level, logging.INFO))
    if "structlog" in sys.modules:
        load_structlog()


def load_structlog() -> None:
    """Load and configure structlog if this process is a command. Any other process is left alone.

    For a command that lives long, and may not stand still at its first line, and before code of others that
    may log by structlog.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, _LateFormatter):
            handler.formatter.load()


@contextlib.contextmanager
def say_logs(say: Callable[[str], None]) -> Iterator[None]:
    """Tell a person at the terminal what is logged meanwhile, in a few words, instead of logging it.

    If more than warnings are asked for, or logs do not go to a terminal, the log stays as it is.
    """
    root = logging.getLogger()
    before = root.handlers
    if root.level < logging.WARNING or not sys.stderr.isatty():
        yield
        return
    root.handlers = [_SayHandler(say)]
    try:
        yield
    finally:
        root.handlers = before


class _SayHandler(logging.Handler):
    """Handler that hands each line to a function."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self.setFormatter(_LateFormatter("words"))

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the line over."""
        self._say(self.format(record))


def _in_words(_logger: Any, _method: str, event: Event) -> str:
    """Return what happened, and the fields that people need: no time, no logger, no ids."""
    said = [str(event[name]) for name in ("event", "error") if event.get(name)]
    rest = [f"{name} {value}" for name, value in event.items() if name not in _NOT_FOR_PEOPLE]
    last = str(event.get("exception", "")).strip().rpartition("\n")[2]
    more = [*([last] if last else []), *rest]
    return visible(": ".join(said) + (f" ({', '.join(more)})" if more else ""))


class _LateFormatter(logging.Formatter):
    """Formatter that makes the real one (`_formatter`) with its first line, or earlier (`load`)."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._form = form
        self._made: logging.Formatter | None = None

    def load(self) -> logging.Formatter:
        """Return the real formatter. Others who log by structlog have their lines here from then on."""
        if self._made is None:
            _configure_structlog()
            self._made = _formatter(self._form)
        return self._made

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        return self.load().format(record)


def _unfold(_logger: Any, _method: str, event: Event) -> Event:
    """Return a line of ours with the fields that its logger was given, in place of the words of them."""
    record = event["_record"]
    line = record.msg
    if not isinstance(line, LogLine):
        return event
    del record.toolgate  # the same fields, cut short already
    said = {**line.fields, "event": line.event}
    said |= {name: event[name] for name in ("_record", "_from_structlog")}
    return said if line.error is None else {**said, "exc_info": line.error}


# These import structlog themselves: they are called once it is needed, or is there already.


def _common_processors() -> "list[structlog.typing.Processor]":
    import structlog

    return [
        add_context,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _configure_structlog() -> None:
    import structlog

    if structlog.is_configured():  # by an author, who may
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_common_processors(),
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _formatter(form: str) -> logging.Formatter:
    import structlog

    plain = os.environ.get("TERM") == "dumb" or os.environ.get("NO_COLOR")
    colours = sys.stderr.isatty() and not plain
    renderers: dict[str, list[structlog.typing.Processor]] = {
        "json": [structlog.processors.JSONRenderer()],
        "text": [_tame, structlog.dev.ConsoleRenderer(colors=colours)],
        "words": [_in_words],
    }
    render = renderers[form]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[_unfold, *_common_processors()],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.ExceptionRenderer(lambda exc_info: traceback_of(exc_info[1])),
            lambda _logger, _method, event: shorten_line(event),
            *render,
        ],
    )
