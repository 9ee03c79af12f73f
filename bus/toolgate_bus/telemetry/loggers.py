"""Libraries that are loaded late, and loggers that load their library with their first line.

Most processes never log a line, and structlog is slow to load. No configuration is read or made here: that
is up to `logging` and the program. If a program has not configured structlog, its lines go through the
standard library's `logging`, never to stdout. `when_loaded` calls a function as soon as anybody loads a
module.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

_PLAIN: Final = "toolgate_bus.telemetry.plain_log"


def when_loaded(module: str, then: Callable[[], None]) -> None:
    """Call `then` now if the module is loaded, else right after it is loaded, in the thread that loads it."""
    if module in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Watch(module, then))


class _Watch:
    """Finder of one module. It finds it as the others do, and calls a function once it was executed."""

    def __init__(self, module: str, then: Callable[[], None]) -> None:
        self._module, self._then = module, then
        self._looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the module; None for any other one."""
        if fullname != self._module or self._looking:
            return None
        self._looking = True  # another watch of this module asks us in turn
        try:
            others = (
                finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self
            )
            spec = next((found for found in others if found is not None), None)
        finally:
            self._looking = False
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            execute = loader.exec_module

            def execute_and_tell(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:  # the first time
                    sys.meta_path.remove(self)
                    self._then()

            loader.exec_module = execute_and_tell
        return spec


class Logger:
    """Logger of this name: structlog's if the program uses that, else one of the standard library."""

    __slots__ = ("_name", "_plain", "_structured")

    def __init__(self, name: str) -> None:
        self._name = name
        self._structured: Any = None
        self._plain: Any = None

    def __getattr__(self, method: str) -> Any:
        """Return a method of both: `debug`, `info`, `warning`, `error`, `exception`."""
        if _is_structlog_used():
            if self._structured is None:
                import structlog  # here, since loading it late is what this class is for

                self._structured = structlog.get_logger(self._name)
            return getattr(self._structured, method)
        if self._plain is None:
            # Imported with the first line, as above. It needs more than modules that only have a logger.
            self._plain = import_module(_PLAIN).PlainLogger(self._name)
        return getattr(self._plain, method)


def get_logger(name: str) -> Any:
    """Return a logger by name, to be called as one of structlog's."""
    return Logger(name)


_wanted: list[bool] = []
"""Not empty if this program logs by structlog."""


def use_structlog() -> None:
    """Log all lines by structlog, which is configured as soon as it is loaded. For commands."""
    if not _wanted:
        _wanted.append(True)


def _is_structlog_used() -> bool:
    """Return whether structlog is configured. If not, it would print to stdout, which may be a protocol's."""
    if "structlog" not in sys.modules and not _wanted:
        return False
    import structlog  # its configuration waits for this

    return structlog.is_configured()


def load() -> None:
    """Load structlog now if it is used: for a process that lives long, and may not stand still at its
    first line."""
    _is_structlog_used()
