"""Logging for the commands: structlog, with the standard library's loggers routed through it.

    {"event": "the scheduler raised", "decision": "0b4f…", "trace_id": "4bf9…", "level": "error", …}

Every line says what it belongs to, whoever logs it: the decision and the session (`about`), and the
trace of the current span. What stands in a line is bounded, and nothing in it can break a line or
steer a terminal. Tracebacks show where, never the values of variables; where a process holds secrets
(`hide_in_logs`) they do not show the words of exceptions either, as those may repeat an argument.
Only commands call `configure_logging`; a library leaves logging to the program that uses it. Logs go
to stderr, since stdout belongs to results.

structlog is slow to load, and most commands never say a line: it is loaded with the first, or by whoever
else imports it, and configured then.
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
"""A line as structlog hands it from processor to processor."""

MAX_TEXT: Final = 2_000
"""Characters of one value in a line."""
MAX_TRACEBACK: Final = 16_000
MAX_PARTS: Final = 32
"""Entries of a list or a map in a line, and exceptions of a chain."""
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
"""At DEBUG they log whole requests: the conversation, with the arguments of every call."""
_REPEATING: Final = ("amplifier_core", "_engine", "asyncio")
"""They put the words of other people's exceptions into their own, behind a colon."""

# ---------------------------------------------------------------------- what a line belongs to

DECISION: Final[ContextVar[Any]] = ContextVar("structlog_decision")
"""The id of the decision that lines are about, for where `about` would take too long; `...` is none."""
SESSION: Final[ContextVar[Any]] = ContextVar("structlog_session")
_TRACE_ID: ContextVar[Any] = ContextVar("structlog_trace_id")
"""Context of structlog (`merge_contextvars` knows it by this beginning), also in programs with a
configuration of their own."""


class about:  # noqa: N801 - reads as a word: `with about(decision=id):`
    """Inside, every line says what it is about; outside, as before.

    A `session` begins without a decision. `trace` is a context as messages carry it, for where no
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
    """A processor of structlog: adds what `about` says, and `trace_id` and `span_id` of the current span."""
    # Here: whoever calls this has loaded structlog, and no line is said where nothing happens.
    from structlog.contextvars import merge_contextvars

    from toolgate_bus.telemetry import tracing

    event = merge_contextvars(logger, method, event)
    parent = tracing.headers().get("traceparent")
    if parent is not None:
        _, event["trace_id"], event["span_id"], _ = parent.split("-")
    return event


# ---------------------------------------------------------------------- what a line must not hold


class Hides(Protocol):
    """Knows what secrets look like."""

    def hide(self, text: str) -> str:
        """The text without them."""


_hiding: WeakSet[Any] = WeakSet()


def hide_in_logs(secrets: Hides) -> None:
    """As long as this object lives, what it knows as secret is in no line, and exceptions have no words."""
    _hiding.add(secrets)


def where(error: BaseException) -> str:
    """An exception without its words, which may repeat arguments: `KeyError at tool.py:7 in execute`."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    at = "".join(f" at {Path(one.filename).name}:{one.lineno} in {one.name}" for one in frames)
    return type(error).__name__ + at


def _without_words(error: BaseException, left: list[int]) -> list[str]:
    """The traceback of an exception and of its causes, types only; `left` bounds how many."""
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
    """The fields of a line as they may be said: bounded, and without what is to be hidden."""
    return _shorten_values(None, "", event)


def has_secrets() -> bool:
    """Whether this process hides something: then nobody says an exception's words."""
    return bool(_hiding)


def _traceback(exc_info: Any) -> str:
    error = exc_info[1]
    if not _hiding:
        return "".join(traceback.format_exception(error)).rstrip("\n")
    return "".join(_without_words(error, [MAX_PARTS])).rstrip("\n")


def _shorten_values(_logger: Any, _method: str, event: Event) -> Event:
    """No value is too long, and none holds what is to be hidden."""
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
    """The beginning and the end: that of a traceback says most."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]} … ({len(text)} characters) … {text[-limit // 2 :]}"


def _tame(_logger: Any, _method: str, event: Event) -> Event:
    """For people: what others wrote makes no lines and does not steer the terminal."""
    return {
        name: (clean(value) if name == "exception" else visible(value)) if isinstance(value, str) else value
        for name, value in event.items()
    }


# ---------------------------------------------------------------------- for commands


def configure_logging(level: str = "WARNING", form: LogFormat | None = None) -> None:
    """Log from `level` up to stderr; by default readable on a terminal, one JSON object a line otherwise.

    Raises ValueError for a level that logging does not know.
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
    """Meanwhile tell a person at the terminal what is logged, in a few words, instead of logging it.

    Whoever asked for more than warnings, or logs elsewhere than to a terminal, gets the log as it is.
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
    """Hands each line to a function."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self.setFormatter(_LateFormatter("words"))

    def emit(self, record: logging.LogRecord) -> None:
        """Say the line."""
        self._say(self.format(record))


def _in_words(_logger: Any, _method: str, event: Event) -> str:
    """What happened, and the rest of what is known of it: no time, no logger, no ids."""
    said = [str(event[name]) for name in ("event", "error") if event.get(name)]
    rest = [f"{name} {value}" for name, value in event.items() if name not in _NOT_FOR_PEOPLE]
    last = str(event.get("exception", "")).strip().rpartition("\n")[2]
    more = [*([last] if last else []), *rest]
    return visible(": ".join(said) + (f" ({', '.join(more)})" if more else ""))


class _LateFormatter(logging.Formatter):
    """Writes lines as `_formatter` says, which is made with the first of them."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._form = form
        self._made: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        if self._made is None:
            self._made = _formatter(self._form)
        return self._made.format(record)


# Within the functions below, since they are called once structlog is needed, or is there already.


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
