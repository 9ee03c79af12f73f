"""Make the kit's tools, plain functions, and record the calls that ran, with their arguments.

| tool | verdict of the kit's schedulers |
|---|---|
| `search(query)` | runs; a query about a paper runs `cheap_search(q)` instead, a loud one runs as quiet |
| `cheap_search(q)` | runs |
| `send(to, text)` | to the boss if a person agrees; outside by no lead, inside by no helper |
| `delete(path)` | denied if the path begins with secret |
| `spend(label)` | reserves 0.40 of the 1.00 that a session has; its result reports that it cost 0.05 |
| `fail(reason)` | runs, and raises ValueError |
| `wait(label)` | runs until it is cancelled |
| `fetch(page)` | runs; its result is withheld, masked or replaced (`reader.PAGES`) |
"""

import asyncio
import functools
import inspect
import re
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple

from toolgate_orchestrator.testing.reader import PAGES

_COST: Final = re.compile(r"cost (\d+\.\d\d)")


class Execution(NamedTuple):
    """Tool that ran."""

    tool: str
    arguments: dict[str, Any]


class Toolbox:
    """Tools of one scene. Each call of `functions` makes the same ones, for harnesses that need them
    again."""

    def __init__(self) -> None:
        self.ran: list[Execution] = []
        """Tools that ran, in the order in which they began."""
        self.began = threading.Event()
        """Event that is set when `wait` runs."""
        self.cancelled = threading.Event()
        """Event that is set when `wait` was cancelled."""

    def functions(self, *names: str, is_async: bool = True) -> list[Callable[..., Any]]:
        """Return these tools as functions with types and docstrings, as the framework takes them.

        They are async, or plain for a blocking run; `wait` is always async. Raise KeyError for an unknown
        name.
        """
        return [self._keep(_TOOLS[name], is_async) for name in names]

    def run(self, tool: str) -> list[dict[str, Any]]:
        """Return the arguments of each run of this tool."""
        return [one.arguments for one in list(self.ran) if one.tool == tool]

    def _keep(self, function: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
        signature = inspect.signature(function)

        def note(args: Any, kwargs: Any) -> None:
            self.ran.append(Execution(function.__name__, dict(signature.bind(*args, **kwargs).arguments)))

        if function is wait:

            async def run_on(*args: Any, **kwargs: Any) -> Any:
                note(args, kwargs)
                self.began.set()
                try:
                    return await wait(*args, **kwargs)
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise

            return _dress(run_on, function)

        def run(*args: Any, **kwargs: Any) -> Any:
            note(args, kwargs)
            return function(*args, **kwargs)

        async def run_async(*args: Any, **kwargs: Any) -> Any:
            return run(*args, **kwargs)

        return _dress(run_async if is_async else run, function)


def _dress(wrapper: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    functools.update_wrapper(wrapper, function)
    del wrapper.__wrapped__  # type: ignore[attr-defined] # or frameworks would find the sync function
    wrapper.__signature__ = inspect.signature(function)  # type: ignore[attr-defined] # what frameworks read
    return wrapper


def search(query: str) -> str:
    """Search the library."""
    return f"search found {query}"


def cheap_search(q: str) -> str:
    """Search the index."""
    return f"cheap_search found {q}"


def send(to: str, text: str) -> str:
    """Send a text to somebody."""
    return f"sent {text} to {to}"


def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def spend(label: str) -> str:
    """Do something that costs money."""
    return f"{label} cost 0.05"


def fail(reason: str) -> str:
    """Do something that goes wrong."""
    raise ValueError(reason)


async def wait(label: str) -> str:
    """Wait until it is cancelled."""
    await asyncio.sleep(600)
    return f"waited {label}"


def fetch(page: str) -> str:
    """Fetch a page."""
    text = PAGES[page.removeprefix("broken ")]
    if page.startswith("broken "):
        raise ValueError(text)
    return text


_TOOLS: Final[dict[str, Callable[..., Any]]] = {
    one.__name__: one for one in (search, cheap_search, send, delete, spend, fail, wait, fetch)
}


def cost_of(result: Any) -> Decimal | None:
    """Return the cost that a result reports; the kit's guards use this (`Guard(cost=…)`)."""
    found = _COST.search(str(result))
    return Decimal(found[1]) if found else None
