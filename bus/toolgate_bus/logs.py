"""Logging for the commands: structlog, with the standard library's loggers routed through it.

Only commands call this; a library leaves logging to the program that uses it. Logs go to stderr,
since stdout belongs to results.
"""

import logging
import os
import sys
from typing import Any

import structlog

__all__ = ["configure_logging"]


def configure_logging(level: str = "WARNING", json: bool | None = None) -> None:
    """Log from `level` up to stderr: readable on a terminal, one JSON object a line otherwise.

    `json` forces one or the other. Raises ValueError for a level that logging does not know.
    """
    as_json = not sys.stderr.isatty() if json is None else json
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(shared, as_json=as_json))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())


def _formatter(shared: list[Any], *, as_json: bool) -> logging.Formatter:
    render: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=_colours())]
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
    )


def _colours() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
