"""Log lines by the standard library's `logging`, in words, in a program that does not use structlog.

    the scheduler raised (scheduler='policy', decision='0b4f…')

So they go where the program's own lines go: without a configuration warnings go to stderr, and nothing to
stdout. The values in a line are bounded and stay on it, and secrets (`hide_in_logs`) are hidden here too.
"""

import logging
import sys
from contextvars import ContextVar
from typing import Any, Final

from toolgate_bus.telemetry.logging import DECISION, SESSION, has_secrets, shorten_line, where
from toolgate_bus.telemetry.printable import visible

_ABOUT: Final[tuple[tuple[str, ContextVar[Any]], ...]] = (("decision", DECISION), ("session", SESSION))
_DEPTH: Final = 3
"""Number of frames between the line that logs something and the call of `logging`."""


class PlainLogger:
    """Logger that is called as structlog's are: with an event, and fields that belong to it."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        """Log a detail for somebody who looks for a fault."""
        self._say(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._say(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log something that somebody should look at."""
        self._say(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log an error."""
        self._say(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Log an error with the exception that is handled: with its traceback, or without it if this process
        hides secrets."""
        error = sys.exception()
        if error is None or has_secrets():
            self._say(logging.ERROR, event, fields if error is None else {**fields, "error": where(error)})
        else:
            self._say(logging.ERROR, event, fields, error)

    def _say(
        self, level: int, event: str, fields: dict[str, Any], error: BaseException | None = None
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        about = {name: found for name, var in _ABOUT if (found := var.get(None)) not in (None, ..., "")}
        line = shorten_line({"event": event, **about, **fields})
        said = str(line.pop("event"))
        told = ", ".join(f"{name}={value!r}" for name, value in line.items())
        words = visible(f"{said} ({told})" if told else said)
        self._logger.log(level, "%s", words, exc_info=error, stacklevel=_DEPTH, extra={"toolgate": line})
