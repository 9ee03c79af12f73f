"""Loggers of the library: the standard library's `logging`, called with fields.

    _log = get_logger("toolgate.gate")
    _log.warning("the scheduler raised", scheduler="policy")

Nothing is configured or loaded here: that is up to the program. In a program that has configured structlog
the lines go there. In any other program they go where its own lines go, by `logging`: without a configuration
warnings go to stderr, and nothing to stdout. `log_line` says what a line holds.
"""

import logging
import sys
from typing import Any, Final

from toolgate_bus.telemetry.log_line import LogLine

_DEPTH: Final = 3
"""Number of frames between the line that logs something and the call of `logging`."""


class FieldLogger:
    """Logger that takes an event, and as keywords the fields that belong to it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def debug(self, event: str, **fields: Any) -> None:
        """Log a detail for somebody who looks for a fault."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log something that somebody should look at."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log an error."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Log an error with the exception that is handled."""
        self._log(logging.ERROR, event, {"exc_info": True, **fields})

    def _log(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if (structlog := _configured_structlog()) is not None:
            write = getattr(structlog.get_logger(self.name), logging.getLevelName(level).lower())
            write(event, **fields)
            return
        # Found anew for each line: `logging.config` turns off the loggers that it finds.
        logger = logging.getLogger(self.name)
        if logger.isEnabledFor(level):
            line = LogLine(event, fields)
            more = {"toolgate": line.shown}
            logger.log(level, line, exc_info=line.shown_error, stacklevel=_DEPTH, extra=more)


def get_logger(name: str) -> FieldLogger:
    """Return a logger by name."""
    return FieldLogger(name)


def _configured_structlog() -> Any:
    """Return structlog if the program has configured it. If not, it would print to stdout, which may be a
    protocol's."""
    if "structlog" not in sys.modules:
        return None
    import structlog  # another thread may be loading it: this waits for it

    return structlog if structlog.is_configured() else None
