"""What a line of the logs says, and what it never does: for every logger, and without a configuration.

A line belongs to a decision and a session (`about`). Its values are bounded, and stay on it. If a process
holds secrets (`hide_in_logs`), no line has them, and none the words of an exception, which may repeat one.
`loggers` makes the lines, `logging` shows them in commands.
"""

import sys
import traceback
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar, Token
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol
from weakref import WeakSet

from toolgate_bus.telemetry.printable import visible
from toolgate_bus.telemetry.trace_context import trace_id_of

Event = MutableMapping[str, Any]
"""Fields of a line, as structlog hands them from processor to processor."""

MAX_TEXT: Final = 2_000
"""Maximum length of one value in a line, in characters."""
MAX_TRACEBACK: Final = 16_000
MAX_PARTS: Final = 32
"""Maximum number of entries of a list or a map in a line, and of exceptions of a chain."""
MAX_DEPTH: Final = 4
_REPEATING: Final = ("amplifier_core", "_engine", "asyncio")
"""Libraries that put the words of other people's exceptions into their own, behind a colon."""

# ---------------------------------------------------------------------- what a line belongs to

DECISION: Final[ContextVar[Any]] = ContextVar("structlog_decision")
"""Id of the decision that lines are about, for code in which `about` takes too long; `...` is none."""
SESSION: Final[ContextVar[Any]] = ContextVar("structlog_session")
_TRACE_ID: ContextVar[Any] = ContextVar("structlog_trace_id")
"""Id of the trace that lines are about. structlog finds these variables by the beginning of their names, also
in programs with a configuration of their own."""
_ABOUT: Final[tuple[tuple[str, ContextVar[Any]], ...]] = (("decision", DECISION), ("session", SESSION))


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


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception, which shows no values of variables."""
    if not _hiding:
        return "".join(traceback.format_exception(error)).rstrip("\n")
    return "".join(_without_words(error, [MAX_PARTS])).rstrip("\n")


def shorten_line(event: Event) -> Event:
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


class LogLine:
    """Message of a log record of ours. It keeps the event and the fields as they were given.

        the scheduler raised (decision='0b4f…', scheduler='policy')

    A program's own handlers see these words, on one line, and the bounded fields (`shown`, the record's
    `toolgate`). Handlers of the commands make the line anew from the event and the fields.
    """

    def __init__(self, event: str, fields: Mapping[str, Any]) -> None:
        given = dict(fields)
        error = given.pop("exc_info", None)
        self.event, self.fields = event, given
        self.error: BaseException | None = sys.exception() if error is True else error
        self.shown_error = None if _hiding else self.error
        """Exception whose traceback the program's own handlers show."""
        told = {"error": where(self.error)} if self.error is not None and _hiding else {}
        context = {name: found for name, var in _ABOUT if (found := var.get(None)) not in (None, ..., "")}
        line = shorten_line({"event": event, **context, **given, **told})
        said = str(line.pop("event"))
        words = ", ".join(f"{name}={value!r}" for name, value in line.items())
        self.shown = line
        self._words = visible(f"{said} ({words})" if words else said)

    def __str__(self) -> str:
        return self._words
