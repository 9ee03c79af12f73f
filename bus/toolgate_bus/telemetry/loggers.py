"""Loggers that load structlog with their first line: most processes never say one, and it is slow to load.

No configuration is read or made here: that is `logs`' affair, and the program's.
"""

from typing import Any

__all__ = ["Logger", "get_logger", "load"]


class Logger:
    """The logger of structlog that has this name, from the first line on."""

    __slots__ = ("_name", "_proxy")

    def __init__(self, name: str) -> None:
        self._name = name
        self._proxy: Any = None

    def __getattr__(self, method: str) -> Any:
        """What structlog's logger has: `info`, `warning`, `error` …"""
        if self._proxy is None:
            import structlog  # here, since loading it late is what this class is for

            self._proxy = structlog.get_logger(self._name)
        return getattr(self._proxy, method)


def get_logger(name: str) -> Any:
    """A logger by name, to be called as one of structlog's."""
    return Logger(name)


def load() -> None:
    """Load structlog now: for a process that lives long, and may not stand still at its first line."""
    import structlog  # noqa: F401 - to have it loaded
