"""Any function as a tool that is ruled on: its parameters are the arguments, its guard's other tools may
replace it."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from toolgate_bus.errors import CallDenial

from toolgate_orchestrator.decision.question.call import Call
from toolgate_orchestrator.guard.ruling import Ruling

if TYPE_CHECKING:
    from toolgate_orchestrator.guard.guard import Guard

F = TypeVar("F", bound=Callable[..., Any])
_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


def raise_denied(ruling: Ruling) -> Any:
    """What a denied call of such a function does, unless it is said otherwise."""
    raise CallDenial(ruling.refusal)


def wrap(guard: "Guard", fn: F, name: str, denied: Callable[[Ruling], Any]) -> F:
    """The function, ruled on each time it is called; sync stays sync, async stays async."""
    signature = inspect.signature(fn)
    guard.tools[name] = (fn, schema_of(signature))

    def call_of(args: Any, kwargs: Any) -> Call:
        bound = signature.bind(*args, **kwargs)
        arguments = dict(bound.arguments)
        for one in signature.parameters.values():
            if one.kind is one.VAR_KEYWORD:
                arguments.update(arguments.pop(one.name, {}))
            elif one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL):
                raise TypeError(f"{name}: a tool's parameters have names; {one.name} has none")
        return Call(name, arguments, {tool: schema for tool, (_, schema) in guard.tools.items()})

    def execute(tool: str, arguments: Mapping[str, Any]) -> Any:
        return guard.tools[tool][0](**arguments)

    if inspect.iscoroutinefunction(fn):

        async def rule_and_run(*args: Any, **kwargs: Any) -> Any:
            return await guard.run(call_of(args, kwargs), execute, denied=denied)

        return functools.wraps(fn)(rule_and_run)  # type: ignore[return-value] # the same function to its callers

    def rule_and_run_sync(*args: Any, **kwargs: Any) -> Any:
        return guard.run_sync(call_of(args, kwargs), execute, denied=denied)

    return functools.wraps(fn)(rule_and_run_sync)  # type: ignore[return-value] # as above


def schema_of(signature: inspect.Signature) -> dict[str, Any]:
    """JSON Schema of a function's arguments, as far as its signature tells."""
    named = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    properties = {
        one.name: {"type": _JSON_TYPES[one.annotation]}
        if isinstance(one.annotation, type) and one.annotation in _JSON_TYPES
        else {}
        for one in named
    }
    return {
        "type": "object",
        "properties": properties,
        "required": [one.name for one in named if one.default is one.empty],
        "additionalProperties": len(named) < len(signature.parameters),
    }
