"""The functions that one guard made tools, by name, and which of them may run in place of another.

Several functions may have one name: a factory makes them, or a notebook defines one anew. Each runs itself
when it is called. But a scheduler names a replacement by its name alone. So a name that two functions share
names neither, while both are alive. The registry keeps no function alive.
"""

import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from toolgate_bus.errors import CallDenial

from toolgate_orchestrator.decision.question.call import AMBIGUOUS, Call
from toolgate_orchestrator.guard.ruling import Ruling
from toolgate_orchestrator.guard.streams import Stream, Unbegun, as_stream, make_relay
from toolgate_orchestrator.guard.tool_function import MARK, ToolFunction

if TYPE_CHECKING:
    from toolgate_orchestrator.guard.guard import Guard

Schemas = Mapping[str, Mapping[str, Any]]
Execute = Callable[[str, dict[str, Any]], Any]
"""Runs a tool by name, with arguments. It may be another tool than the one asked about."""
GONE: Final = "The tool call was denied: {} was to run in its place, but no single function has that name."


class ToolRegistry:
    """The tools of one guard; usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: dict[str, list[weakref.ref[ToolFunction]]] = {}
        self._dead: list[weakref.ref[ToolFunction]] = []
        """References to functions that were collected; filled from any thread."""
        self._offered: Schemas | None = None
        self._offered_in: weakref.WeakKeyDictionary[type, Schemas] = weakref.WeakKeyDictionary()

    def renew(self) -> None:
        """Renew the lock in a forked process: another thread may have held it."""
        self._lock = threading.Lock()

    def add(self, tool: ToolFunction) -> None:
        """Add a function that was made a tool."""
        with self._lock:
            self._live.setdefault(tool.name, []).append(weakref.ref(tool, self._dead.append))
            self._forget_offers()

    def offer(self, tool: ToolFunction, instance: Any) -> Schemas:
        """Return the schemas of all tools that may run when this function is called, by name.

        `instance` is the object that a method is called on. A method may replace another of its class.
        """
        if self._dead:
            self._bury()
        if not tool.takes:
            found = self._offered
            if found is None:
                found = self._offered = self._survey(None)
        else:
            kind = _class_of(tool, instance)
            found = self._offered_in.get(kind)
            if found is None:
                found = self._offered_in[kind] = self._survey(kind)
        return found if found.get(tool.name) is tool.schema else {**found, tool.name: tool.schema}

    def find(self, name: str, tool: ToolFunction, instance: Any) -> ToolFunction | None:
        """Return the one function of this name that may run in place of this one, or None."""
        with self._lock:
            living = _living(self._live.get(name, ()))
        return _choose(living, _class_of(tool, instance) if tool.takes else None)

    def _survey(self, kind: type | None) -> Schemas:
        found: dict[str, Mapping[str, Any]] = {}
        with self._lock:
            every = {name: _living(refs) for name, refs in self._live.items()}
        for name, living in every.items():
            chosen = _choose(living, kind)
            if chosen is not None:
                found[name] = chosen.schema
            elif len(living) > 1:
                found[name] = AMBIGUOUS
        return found

    def _bury(self) -> None:
        """Forget the functions that were collected."""
        with self._lock:
            self._dead.clear()
            for name, refs in list(self._live.items()):
                refs[:] = [ref for ref in refs if ref() is not None]
                if not refs:
                    del self._live[name]
            self._forget_offers()

    def _forget_offers(self) -> None:
        self._offered = None
        self._offered_in.clear()


def _living(refs: Iterable["weakref.ref[ToolFunction]"]) -> list[ToolFunction]:
    return [tool for ref in refs if (tool := ref()) is not None]


def _choose(living: list[ToolFunction], kind: type | None) -> ToolFunction | None:
    """Return the function that is meant; `kind` is the class whose method is called, or None."""
    if kind is not None:
        own = [tool for tool in living if tool.takes and tool.is_of(kind)]
        if len(own) == 1:
            return own[0]
    return living[0] if len(living) == 1 and not living[0].takes else None


def _class_of(tool: ToolFunction, instance: Any) -> type:
    return instance if tool.takes == "cls" and isinstance(instance, type) else type(instance)


# ---------------------------------------------------------------------- functions that are ruled on


def make_tool(guard: "Guard", fn: Any, name: str, denied: Callable[[Ruling], Any]) -> Any:
    """Return the function, ruled on each time it is called: sync stays sync, async stays async.

    A static or class method stays one. Raises UnfitFunction.
    """
    if isinstance(fn, classmethod):
        return classmethod(_wrap(guard, fn.__func__, ToolFunction(fn.__func__, name, "cls"), denied))
    if isinstance(fn, staticmethod):
        return staticmethod(_wrap(guard, fn.__func__, ToolFunction(fn.__func__, name, ""), denied))
    return _wrap(guard, fn, ToolFunction(fn, name), denied)


def raise_denied(ruling: Ruling) -> Any:
    """Raise CallDenial: the default for a denied call of such a function."""
    raise CallDenial(ruling.refusal)


def _wrap(guard: "Guard", fn: Any, tool: ToolFunction, denied: Callable[[Ruling], Any]) -> Any:
    registry = guard.tools
    registry.add(tool)

    def prepare(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Call, Execute]:
        if tool.is_fixed:
            args, kwargs = tool.complete(args, kwargs)
        instance = args[0] if tool.takes and args else None
        offered, asked = registry.offer(tool, instance), tool.read(args, kwargs)

        def execute(chosen: str, ruled: dict[str, Any]) -> Any:
            if chosen == tool.name:
                given = tool.call_as_given(args, kwargs, asked, ruled)
                return Unbegun(given) if tool.is_lazy else given
            other = registry.find(chosen, tool, instance)
            if other is None:
                raise CallDenial(GONE.format(chosen))
            given = other.call_with(instance, ruled)
            return Unbegun(given) if other.is_lazy else given

        return Call(tool.name, asked, offered), execute

    async def rule_and_run(*args: Any, **kwargs: Any) -> Any:
        return await guard.run(*prepare(args, kwargs), denied=denied)

    async def begin(*args: Any, **kwargs: Any) -> Stream:
        return as_stream(await guard.run(*prepare(args, kwargs), denied=denied))

    def rule_and_run_sync(*args: Any, **kwargs: Any) -> Any:
        return guard.run_sync(*prepare(args, kwargs), denied=denied)

    made: Any = rule_and_run_sync
    if tool.kind == "async":
        made = rule_and_run
    elif tool.kind == "async generator":
        made = make_relay(begin)
    functools.update_wrapper(made, tool.target)
    made.__wrapped__ = fn  # without the arguments that a partial has fixed
    if not hasattr(tool.target, "__name__"):
        made.__name__ = made.__qualname__ = tool.name
    setattr(made, MARK, tool)
    return made
