"""Loads the object that a target such as `agent.py:agent` or `package.module:make_agent` names."""

import asyncio
import inspect
import sys
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from toolgate_bus.errors import ConfigError
from toolgate_bus.telemetry.logging import load_structlog
from toolgate_bus.telemetry.printable import shorten

MAX_WORDS = 300


def load_target(target: str) -> Any:
    """Return the object that a target names. A function without parameters is called, and awaited if async.

    Output of its module goes to stderr. Raise ConfigError if there is no such object, or its code fails.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise ConfigError(f"{target}: name a file or module and the agent in it: agent.py:agent")
    load_structlog()  # the program may log by it
    with redirect_stdout(sys.stderr):
        found: Any = _load(place)
        for part in name.split("."):
            if not hasattr(found, part):
                raise ConfigError(f"{target}: there is no {part} in {place}: {_names(found)}")
            found = getattr(found, part)
        if inspect.isfunction(found) and not _require(found):
            found = _run(found, target)
    return found


def _load(place: str) -> ModuleType:
    try:
        if not place.endswith(".py"):
            sys.path.insert(0, str(Path.cwd()))
            return import_module(place)
        file = Path(place)
        if not file.is_file():
            raise ConfigError(f"{place}: there is no such file")
        sys.path.insert(0, str(file.resolve().parent))
        spec = spec_from_file_location(file.stem, file)
        if spec is None or spec.loader is None:
            raise ConfigError(f"{place}: this is not a Python file")
        module = sys.modules[file.stem] = module_from_spec(spec)
        spec.loader.exec_module(module)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - the user's own code
        raise ConfigError(f"{place} cannot be loaded: {_words(error)}") from None
    return module


def _run(make: Any, target: str) -> Any:
    try:
        made = make()
        return asyncio.run(_wait(made)) if inspect.isawaitable(made) else made
    except Exception as error:  # noqa: BLE001 - as above
        raise ConfigError(f"{target} failed when it was called: {_words(error)}") from None


async def _wait(made: Any) -> Any:
    return await made


def _require(function: Any) -> list[str]:
    """Return the names of the parameters without a default."""
    given = inspect.signature(function).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in given if one.default is one.empty and one.kind not in variable]


def _names(found: Any) -> str:
    names = [name for name in vars(found) if not name.startswith("_")] if hasattr(found, "__dict__") else []
    return f"there are {shorten(', '.join(names), MAX_WORDS)}" if names else "there is nothing in it"


def _words(error: Exception) -> str:
    return shorten(f"{type(error).__name__}: {error}", MAX_WORDS)
