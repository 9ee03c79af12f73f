"""Finds the objects that a tool's function can reach by name. An agent that the function runs is one of
them."""

import functools
import inspect
from collections.abc import Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def references_of(function: Any, kind: type[T]) -> Iterator[T]:
    """Yield values of a type from a function's closure, globals, bound object and partial arguments."""
    while isinstance(function, functools.partial):
        yield from (one for one in (*function.args, *function.keywords.values()) if isinstance(one, kind))
        function = function.func
    owner = getattr(function, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        yield from (one for one in getattr(owner, "__dict__", {}).values() if isinstance(one, kind))
    function = inspect.unwrap(getattr(function, "__func__", function))
    if inspect.isfunction(function):
        found = inspect.getclosurevars(function)
        yield from (
            one for one in (*found.nonlocals.values(), *found.globals.values()) if isinstance(one, kind)
        )
