"""A function that was made a tool: the names of its arguments, and how it is called with them.

Rules go by names. So every parameter has one: also `*paths` (a list), positional-only ones, and those that a
partial has fixed. `self` and `cls` are no arguments. A function whose arguments cannot be named is refused
when it is made a tool, not at its first call.
"""

import functools
import inspect
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.json_values import same_json

_JSON_TYPES: Final = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}
_NOTHING: Final[Mapping[str, Any]] = types.MappingProxyType({})
_BOUND: Final = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)
_PLAIN: Final = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)
_BY_PLACE: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MAX_WRAPPERS: Final = 64
MARK: Final = "__toolgate_tool__"
"""Attribute of a function that is ruled on: its `ToolFunction`."""


class UnfitFunction(ConfigError, TypeError):  # noqa: N818 - it says what was found
    """A function cannot be made a tool. The message says what to do."""


class ToolFunction:
    """One function, and how its calls are read."""

    __slots__ = (
        "__weakref__",
        "_attribute",
        "_by_place",
        "_by_place_alone",
        "_defaults",
        "_fixed_args",
        "_fixed_kwargs",
        "_is_simple",
        "_names",
        "_needed",
        "_rest",
        "_signature",
        "_target",
        "_various",
        "fixed",
        "is_fixed",
        "is_lazy",
        "kind",
        "name",
        "schema",
        "takes",
    )

    def __init__(
        self, fn: Callable[..., Any], name: str = "", takes: Literal["", "self", "cls"] | None = None
    ):
        """Read a function; `takes` is what it is called on, or None to find out. Raise UnfitFunction."""
        target, args, kwargs = _take_apart(fn)
        self.name: str = name or _name_of(target)
        """Name of the tool for rules and schedulers."""
        self._target, self._fixed_args, self._fixed_kwargs = target, args, kwargs
        self.is_fixed = bool(args or kwargs)
        """True if a partial has fixed arguments."""
        self._attribute: str = getattr(target, "__name__", "")
        self._signature = _signature_of(target, self.name)
        parameters = list(self._signature.parameters.values())
        self.takes: Literal["", "self", "cls"] = (
            _find_instance(target, parameters) if takes is None else takes
        )
        """What it is called on: an instance, a class, or nothing."""
        self._by_place: tuple[str, ...] = tuple(one.name for one in parameters if one.kind in _BY_PLACE)
        named = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        if self.takes:
            del parameters[:1]
        self._rest: str = next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), "")
        self._various: str = next((one.name for one in parameters if one.kind is one.VAR_KEYWORD), "")
        only = [one.name for one in parameters if one.kind is one.POSITIONAL_ONLY]
        if self._various and (only or self._rest):
            what = f"*{self._rest}" if self._rest else only[0]
            raise UnfitFunction(
                f"{self.name}: with **{self._various} an argument may have the same name as {what}, and "
                f"rules could not tell them apart; write a function whose parameters all have names"
            )
        self._by_place_alone = self._by_place if self._rest else tuple(only)
        """Parameters that must be given by position."""
        self._is_simple = not (only or self._rest or self._various)
        self._names = frozenset(one.name for one in named)
        self._needed = frozenset(one.name for one in named if one.default is one.empty)
        self._defaults: dict[str, Any] = {
            one.name: one.default
            for one in parameters
            if one.default is not one.empty and one.default is not None
        }
        self.fixed: dict[str, Any] = self._read_fixed()
        """Arguments that a partial has fixed."""
        self.schema: dict[str, Any] = schema_of(self._signature.replace(parameters=parameters), self.fixed)
        """JSON Schema of its arguments."""
        self.kind: Literal["sync", "async", "async generator"] = _kind_of(target)
        self.is_lazy: bool = _is_lazy(target)
        """True if nothing of it has run when it returns."""

    @property
    def target(self) -> Callable[..., Any]:
        """The function itself, without the arguments that a partial has fixed."""
        return self._target

    def is_of(self, kind: type) -> bool:
        """Return whether it is the method of this name in a class."""
        for one in kind.__mro__:
            if self._attribute in vars(one):
                found = vars(one)[self._attribute]
                return getattr(getattr(found, "__func__", found), MARK, None) is self
        return False

    # ------------------------------------------------------------------ a call

    def complete(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call, with those that a partial has fixed."""
        return (*self._fixed_args, *args), {**self._fixed_kwargs, **kwargs}

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments by name, with the defaults of those that are left out.

        A default of None counts as none. Raises TypeError as the function itself would.
        """
        found = self._read_simple(args, kwargs) if self._is_simple else None
        if found is None:
            found = dict(self._signature.bind(*args, **kwargs).arguments)
            if self._various:
                found |= found.pop(self._various, {})
        if self.takes:
            if not args:
                raise TypeError(f"{self.name} is a method: call it on an object")
            del found[self._by_place[0]]
        for name, default in self._defaults.items():
            if name not in found:
                found[name] = default
        return found

    def _read_simple(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """Read the arguments at a fraction of the cost, as most functions allow; None if they do not fit."""
        if len(args) > len(self._by_place):
            return None
        found = dict(zip(self._by_place, args, strict=False))
        if kwargs:
            if not (found.keys().isdisjoint(kwargs) and self._names.issuperset(kwargs)):
                return None
            found.update(kwargs)
        return found if self._needed <= found.keys() else None

    def call_as_given(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        asked: Mapping[str, Any],
        ruled: Mapping[str, Any],
    ) -> Any:
        """Call the function as its caller did, but with the arguments that were ruled on.

        If arguments were added or removed, or a default has changed, all arguments are passed.
        """
        if ruled.keys() != asked.keys() or self._has_other_default(args, kwargs, ruled):
            return self.call_with(args[0] if self.takes else None, ruled)
        count = len(args)
        placed = list(args[:1]) if self.takes else []
        placed += [ruled[name] for name in self._by_place[len(placed) : count]]
        if count > len(self._by_place):
            placed += ruled[self._rest]
        return self._target(*placed, **{name: ruled[name] for name in kwargs})

    def call_with(self, instance: Any, arguments: Mapping[str, Any]) -> Any:
        """Call the function with arguments by name; `instance` is the object that a method is called on."""
        rest = {**self.fixed, **arguments}
        placed: list[Any] = [instance] if self.takes else []
        for name in self._by_place_alone[len(placed) if self._rest else 0 :]:
            if name not in rest and name not in self._defaults:
                default = self._signature.parameters[name].default
                if default is inspect.Parameter.empty:
                    break  # the function itself raises for it
                placed.append(default)
            else:
                placed.append(rest.pop(name, self._defaults.get(name)))
        if self._rest:
            placed += rest.pop(self._rest, ())
        return self._target(*placed, **rest)

    def _has_other_default(
        self, args: tuple[Any, ...], kwargs: Collection[str], ruled: Mapping[str, Any]
    ) -> bool:
        for name, default in self._defaults.items():
            value = ruled[name]
            if value is default or name in kwargs or name in self._by_place[: len(args)]:
                continue
            if not same_json(_plain(value), _plain(default)):
                return True
        return False

    def _read_fixed(self) -> dict[str, Any]:
        if not self.is_fixed:
            return {}
        try:
            found = dict(self._signature.bind_partial(*self._fixed_args, **self._fixed_kwargs).arguments)
        except TypeError as error:
            raise UnfitFunction(f"{self.name}: {error}") from None
        if self._various:
            found |= found.pop(self._various, {})
        if self.takes:
            found.pop(self._by_place[0], None)
        return found


# ---------------------------------------------------------------------- what a function is


def _take_apart(fn: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return the function of a partial, and the arguments that are fixed."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    while isinstance(fn, functools.partial):
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    if isinstance(fn, type):
        raise UnfitFunction(
            f"{fn.__name__} is a class, not a tool: decorate a function that makes one, or its method"
        )
    if not callable(fn):
        raise UnfitFunction(f"{type(fn).__name__} cannot be called: decorate a function")
    if (gap := getattr(functools, "Placeholder", None)) is not None and any(one is gap for one in args):
        raise UnfitFunction("a partial with placeholders is no tool: write a function that calls it")
    return fn, args, kwargs


def _name_of(target: Callable[..., Any]) -> str:
    name = getattr(target, "__name__", "")
    if not isinstance(name, str) or not name or name == "<lambda>":
        what = "a lambda" if name else f"this {type(target).__name__}"
        raise UnfitFunction(f"{what} has no name for rules: give one with guard.tool(name=…)")
    return name


def _signature_of(target: Callable[..., Any], name: str) -> inspect.Signature:
    """Return the signature, with the defaults of the wrappers around the function."""
    if hasattr(target, "dispatch") and hasattr(target, "registry"):
        raise UnfitFunction(
            f"{name}: it is one function for each type of its first argument, and each may have defaults "
            "of its own; make each of them a tool"
        )
    try:
        found = inspect.signature(target)
        wrappers: list[Any] = []
        while hasattr(target, "__wrapped__") and len(wrappers) < _MAX_WRAPPERS:
            wrappers.insert(0, target)
            target = target.__wrapped__
        for wrapper in wrappers:
            found = _with_defaults(found, wrapper)
    except (ValueError, TypeError):
        raise UnfitFunction(
            f"{name}: the names of its parameters cannot be found: write a function that calls it"
        ) from None
    return found


def _with_defaults(signature: inspect.Signature, wrapper: Any) -> inspect.Signature:
    """Return the signature with a wrapper's defaults, which are used whatever it says that it wraps."""
    try:
        own = inspect.signature(wrapper, follow_wrapped=False).parameters
    except (ValueError, TypeError):  # not a Python function
        return signature
    found = dict(signature.parameters)
    for one in own.values():
        if one.default is one.empty:
            continue
        if one.name in found and found[one.name].kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            found[one.name] = found[one.name].replace(default=one.default)
        else:
            found[one.name] = one.replace(kind=one.KEYWORD_ONLY)
    if found == dict(signature.parameters):
        return signature
    return signature.replace(parameters=sorted(found.values(), key=lambda one: one.kind))


def _find_instance(target: Any, parameters: list[inspect.Parameter]) -> Literal["", "self", "cls"]:
    """Return what a function of a class is called on, as its first parameter says."""
    if not parameters or isinstance(target, _BOUND) or parameters[0].kind not in _BY_PLACE:
        return ""
    name, where = parameters[0].name, getattr(target, "__qualname__", "").rpartition(".")[0]
    if not where or where.endswith("<locals>"):
        if name == "self":
            raise UnfitFunction(
                f"{getattr(target, '__qualname__', target)} takes self outside of a class: decorate it in "
                "its class, decorate the method of an instance, or give that parameter another name"
            )
        return ""
    if name == "self":
        return "self"
    if name == "cls":
        return "cls"
    raise UnfitFunction(
        f"{target.__qualname__}: in a class the first parameter must be self or cls; for a static method "
        "write @guard.tool above @staticmethod"
    )


def _kind_of(target: Any) -> Literal["sync", "async", "async generator"]:
    called = target if isinstance(target, _PLAIN) else type(target).__call__
    for one in (target, called):
        if inspect.iscoroutinefunction(one):
            return "async"
        if inspect.isasyncgenfunction(one):
            return "async generator"
    return "sync"


def _is_lazy(target: Any) -> bool:
    if inspect.isasyncgenfunction(target):
        return True
    awaited = getattr(getattr(target, "__code__", None), "co_flags", 0) & inspect.CO_ITERABLE_COROUTINE
    return inspect.isgeneratorfunction(target) and not awaited


def schema_of(signature: inspect.Signature, fixed: Mapping[str, Any] = _NOTHING) -> dict[str, Any]:
    """Return the JSON Schema of a function's arguments, as far as its signature tells.

    Arguments that are `fixed` are not required.
    """
    parameters = signature.parameters.values()
    named = [one for one in parameters if one.kind is not one.VAR_KEYWORD]
    return {
        "type": "object",
        "properties": {one.name: _property_of(one, fixed) for one in named},
        "required": [
            one.name
            for one in named
            if one.default is one.empty and one.kind is not one.VAR_POSITIONAL and one.name not in fixed
        ],
        "additionalProperties": len(named) < len(parameters),
    }


def _property_of(parameter: inspect.Parameter, fixed: Mapping[str, Any]) -> dict[str, Any]:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return {"type": "array"}
    found: dict[str, Any] = {}
    if isinstance(parameter.annotation, type) and parameter.annotation in _JSON_TYPES:
        found["type"] = _JSON_TYPES[parameter.annotation]
    default = fixed.get(parameter.name, parameter.default)
    if default is not parameter.empty and default is not None:
        found["default"] = _plain(default)
    return found


def _plain(value: Any) -> Any:
    if type(value) in (str, int, float, bool):
        return value
    from toolgate_orchestrator.decision.question.plain_values import (
        to_plain,  # late: most programs need it with a call
    )

    return to_plain(value)
