"""Libraries that are loaded late, and loggers that load structlog with their first line.

Most processes never say one, and it is slow to load. No configuration is read or made here: that is
`logging`'s affair, and the program's. `when_loaded` calls a function as soon as anybody loads a module.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_loaded(module: str, then: Callable[[], None]) -> None:
    """Call `then` now if the module is loaded, else right after it was, in the thread that loads it."""
    if module in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Watch(module, then))


class _Watch:
    """Finds one module as the others do, and calls a function once it was executed."""

    def __init__(self, module: str, then: Callable[[], None]) -> None:
        self._module, self._then = module, then
        self._looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """That of the module; None for any other one."""
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
