"""Logging for the commands: structlog, with the standard library's loggers routed through it.

    {"event": "the scheduler raised", "decision": "0b4f…", "trace_id": "4bf9…", "level": "error", …}

Every line says what it belongs to, whoever logs it: the decision and the session (`about`), and the
trace of the current span. The values in a line are bounded, and cannot break a line or steer a
terminal. Tracebacks show where, never the values of variables. If a process holds secrets
(`hide_in_logs`), they do not show the words of exceptions either, as those may repeat an argument.
Only commands call `configure_logging`; a library leaves logging to the program that uses it. Logs go
to stderr, since stdout belongs to results.

structlog is slow to load, and most commands never log a line. It is loaded with the first line, or when
anything else imports it, and configured then.
"""

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextvars import ContextVar, Token
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from weakref import WeakSet

from toolgate_bus.telemetry.loggers import use_structlog, when_loaded
from toolgate_bus.telemetry.printable import clean, visible
from toolgate_bus.telemetry.trace_context import trace_id_of

if TYPE_CHECKING:
    import structlog

LogFormat = Literal["json", "text"]
Event = MutableMapping[str, Any]
"""Line as structlog hands it from processor to processor."""

MAX_TEXT: Final = 2_000
"""Maximum length of one value in a line, in characters."""
MAX_TRACEBACK: Final = 16_000
MAX_PARTS: Final = 32
"""Maximum number of entries of a list or a map in a line, and of exceptions of a chain."""
MAX_DEPTH: Final = 4
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
_REPEATING: Final = ("amplifier_core", "_engine", "asyncio")
"""Libraries that put the words of other people's exceptions into their own, behind a colon."""

# ---------------------------------------------------------------------- what a line belongs to

DECISION: Final[ContextVar[Any]] = ContextVar("structlog_decision")
"""Id of the decision that lines are about, for code in which `about` takes too long; `...` is none."""
SESSION: Final[ContextVar[Any]] = ContextVar("structlog_session")
_TRACE_ID: ContextVar[Any] = ContextVar("structlog_trace_id")
"""Id of the trace that lines are about. structlog's `merge_contextvars` finds these variables by the
beginning of their names, also in programs with a configuration of their own."""


class about:  # noqa: N801 - reads as a word: `with about(decision=id):`
    """Context in which every line says what it is about. After it, lines are as before.

    A `session` begins without a decision. `trace` is a context as messages carry it, for code in which no
    span of our own is current.
    """

    __slots__ = ("_tokens",)

    def __init__(
        self,
        *,
        decision: str | None = None,
        session: str | None = None,
        trace: Mapping[str, Any] | None = None,
    ) -> None:
        tokens: list[tuple[ContextVar[Any], Token[Any]]] = []
        if session is not None:
            tokens.append((SESSION, SESSION.set(session or ...)))
            tokens.append((DECISION, DECISION.set(...)))
        if decision is not None:
            tokens.append((DECISION, DECISION.set(decision)))
        if trace and (found := trace_id_of(trace)):
            tokens.append((_TRACE_ID, _TRACE_ID.set(found)))
        self._tokens = tokens

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for variable, token in reversed(self._tokens):
            variable.reset(token)


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


# ---------------------------------------------------------------------- what a line must not hold


class SecretFilter(Protocol):
    """Object that knows what secrets look like."""

    def hide(self, text: str) -> str:
        """Return the text without secrets."""


_hiding: WeakSet[Any] = WeakSet()


def hide_in_logs(secrets: SecretFilter) -> None:
    """Hide the secrets that this object knows, and all words of exceptions, for as long as it lives."""
    _hiding.add(secrets)


def where(error: BaseException) -> str:
    """Return an exception without its words, which may repeat arguments: `KeyError at tool.py:7 in run`."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    at = "".join(f" at {Path(one.filename).name}:{one.lineno} in {one.name}" for one in frames)
    return type(error).__name__ + at


def _without_words(error: BaseException, left: list[int]) -> list[str]:
    """Return the traceback of an exception and of its causes, types only. `left` bounds their number."""
    left[0] -= 1
    if left[0] < 0:
        return ["…\n"]
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    lines = [] if before is None else [*_without_words(before, left), "\nwhich led to:\n\n"]
    lines += ["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__)]
    lines.append(f"{type(error).__module__}.{type(error).__qualname__} (its words are not logged)\n")
    for one in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        lines += ["\nin a group:\n\n", *_without_words(one, left)]
    return lines


def shorten_line(event: Event) -> Event:
    """Return the fields of a line as they may be logged: bounded, and without secrets."""
    return _shorten_values(None, "", event)


def has_secrets() -> bool:
    """Return whether this process hides secrets. If so, no line has an exception's words."""
    return bool(_hiding)


def _traceback(exc_info: Any) -> str:
    error = exc_info[1]
    if not _hiding:
        return "".join(traceback.format_exception(error)).rstrip("\n")
    return "".join(_without_words(error, [MAX_PARTS])).rstrip("\n")


def _shorten_values(_logger: Any, _method: str, event: Event) -> Event:
    """Return the fields of a line with bounded values, and without secrets."""
    said = event.setdefault("event", None)
    if _hiding and isinstance(said, str) and str(event.get("logger")).partition(".")[0] in _REPEATING:
        event["event"] = said.partition("\n")[0].partition(": ")[0]
    told = {str(name): _short(value) for name, value in event.items() if name != "exception"}
    if "exception" in event:
        told["exception"] = _ends(_hide_secrets(str(event["exception"])), MAX_TRACEBACK)
    return told


def _hide_secrets(text: str) -> str:
    for secrets in list(_hiding):
        text = secrets.hide(text)
    return text


def _short(value: Any, depth: int = 0) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        fits = -(2**63) <= value < 2**64
        return (
            value if fits and _hide_secrets(str(value)) == str(value) else _short(str(value)) if fits else "…"
        )
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        kept = list(value.items())[:MAX_PARTS]
        return {_short(str(name), MAX_DEPTH): _short(part, depth + 1) for name, part in kept}
    if isinstance(value, list | tuple) and depth < MAX_DEPTH:
        return [_short(part, depth + 1) for part in value[:MAX_PARTS]]
    try:
        text = value if type(value) is str else str(value)
    except Exception:  # noqa: BLE001 - somebody's __str__; the line matters more
        text = f"<{type(value).__name__}>"
    return _ends(_hide_secrets(text), MAX_TEXT)


def _ends(text: str, limit: int) -> str:
    """Return the beginning and the end of a text. The end of a traceback says most."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]} … ({len(text)} characters) … {text[-limit // 2 :]}"


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
    use_structlog()
    when_loaded("structlog", _configure_structlog)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LateFormatter("json" if as_json else "text"))
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.handlers = [handler]
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(root.level, logging.INFO))


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
    """Formatter that makes the real one (`_formatter`) with its first line."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._form = form
        self._made: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        if self._made is None:
            self._made = _formatter(self._form)
        return self._made.format(record)


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
        foreign_pre_chain=_common_processors(),
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.ExceptionRenderer(_traceback),
            _shorten_values,
            *render,
        ],
    )
