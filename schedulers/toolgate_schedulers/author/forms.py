"""Make a `Scheduler` from any form in which an author may write one.

The forms are a function (async, plain, or an async generator that holds first), a class with state and
lifecycle, and an Amplifier hook.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

from toolgate_bus.errors import ConfigError

from toolgate_schedulers.author.scheduler import Decide, Scheduler, check_priority, in_thread

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import Phase

    from toolgate_schedulers.author.match_conditions import When

_HOOK_PARAMETERS = 2

Written = TypeVar("Written")


# A class is callable, too: the first overload that fits counts.
class _Decorator(Protocol):
    @overload
    def __call__(self, written: type[Written]) -> type[Written]: ...  # type: ignore[overload-overlap]  # above
    @overload
    def __call__(self, written: Callable[..., Any]) -> Scheduler: ...


@overload
def scheduler(written: type[Written]) -> type[Written]: ...  # type: ignore[overload-overlap]  # see above
@overload
def scheduler(written: Callable[..., Any]) -> Scheduler: ...
@overload
def scheduler(
    *,
    name: str | None = None,
    priority: int = 0,
    tools: str | Iterable[str] = ("*",),
    shadow: bool = False,
    phases: str | Iterable[str] | None = None,
    when: "When | None" = None,
) -> _Decorator: ...
def scheduler(
    written: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    priority: int = 0,
    tools: str | Iterable[str] = ("*",),
    shadow: bool = False,
    phases: str | Iterable[str] | None = None,
    when: "When | None" = None,
) -> Any:
    """Make a scheduler from a function: `@scheduler(name="router", priority=10, tools=["web_*"])`.

    The function takes the call and returns a verdict; an Amplifier hook `(event, data)` is accepted too.
    A class is returned unchanged, with these options as its attributes. `name` defaults to the function's.
    `phases` says when it is asked: by default before a call runs, with `result` about what the call gave.
    `when` says which calls of its tools concern the scheduler (`match_conditions`); by default all do.
    """

    def decorate(written: Callable[..., Any]) -> Any:
        own = name if name is not None else _name_of(written)
        if not inspect.isclass(written):
            made = _from_function(written, own, priority, tools, shadow)
            if phases is not None:
                named = (phases,) if isinstance(phases, str) else tuple(phases)
                made = replace(made, phases=cast("tuple[Phase, ...]", named))
            return _limited(made, when)
        check_priority(own, priority)
        given = {"name": own, "priority": priority, "tools": tools, "shadow": shadow, "when": when}
        if phases is not None:
            given["phases"] = (phases,) if isinstance(phases, str) else tuple(phases)
        for field, value in given.items():
            setattr(written, field, value)
        return written

    return decorate if written is None else decorate(written)


def as_scheduler(written: Any) -> Scheduler:
    """Return the normal form of a function, an object or a hook; a class must be instantiated first.

    Raise ConfigError, which lists the accepted forms, for anything else.
    """
    if isinstance(written, Scheduler):
        return written
    if inspect.isclass(written):
        raise ConfigError(f"{written.__name__} is a class: give an instance of it")
    if callable(getattr(written, "decide", None)):
        name = getattr(written, "name", None) or type(written).__name__
        decide, streams = _decider(written.decide, name)
        lifecycle = {}
        for method in ("start", "stop", "withdraw"):
            if found := getattr(written, method, None):
                if not inspect.iscoroutinefunction(found):
                    raise ConfigError(f"scheduler {name!r}: {method}: must be an `async def` method")
                lifecycle[method] = found
        made = Scheduler(
            name=name,
            priority=getattr(written, "priority", 0),
            tools=getattr(written, "tools", ("*",)),
            shadow=getattr(written, "shadow", False),
            phases=getattr(written, "phases", ("select", "verify")),
            reads=getattr(written, "reads", ()),
            decide=decide,
            streams=streams,
            local_table=getattr(written, "local_table", b""),
            server_replicas=getattr(written, "server_replicas", 0),
            **lifecycle,
        )
        return _limited(made, getattr(written, "when", None))
    if callable(written):
        return _from_function(written, _name_of(written), 0, ("*",), False)
    raise ConfigError(
        f"{written!r} is no scheduler: write a function (call) -> Verdict, a class with "
        "`async def decide(self, call)`, or an Amplifier hook (event, data) -> HookResult"
    )


def _limited(made: Scheduler, when: Any) -> Scheduler:
    if when is None:
        return made
    # Import late: conditions take long to load, and few schedulers have any.
    from toolgate_schedulers.author.match_conditions import limit

    return limit(made, when)


def _name_of(written: Any) -> str:
    return str(getattr(written, "__name__", type(written).__name__))


def _from_function(
    function: Callable[..., Any], name: str, priority: int, tools: str | Iterable[str], shadow: bool
) -> Scheduler:
    if is_hook(function):
        # Import late: few images run hooks.
        from toolgate_schedulers.author.hook_adapter import from_hook

        return from_hook(function, name=name, priority=priority, tools=tools, shadow=shadow)
    decide, streams = _decider(function, name)
    globs = cast("tuple[str, ...]", tools)
    return Scheduler(name=name, priority=priority, tools=globs, shadow=shadow, decide=decide, streams=streams)


def _decider(function: Callable[..., Any], name: str) -> tuple[Decide, bool]:
    """Return `decide` and `streams` for a function that takes only the call."""
    try:
        inspect.signature(function).bind(object())
    except (TypeError, ValueError):
        raise ConfigError(
            f"scheduler {name!r}: the function must take one parameter, the call (ToolSelecting); "
            "an Amplifier hook takes two, (event, data)"
        ) from None
    if _is(inspect.isasyncgenfunction, function):
        return cast(Decide, function), True
    if _is(inspect.iscoroutinefunction, function):
        return cast(Decide, function), False
    return in_thread(function), False


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Return whether a function, or a callable object, is of this kind."""
    return kind(function) or kind(type(function).__call__)


def is_hook(function: Callable[..., Any]) -> bool:
    """Return whether a function has a hook's signature: two positional parameters, event and data."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    return len(required) == _HOOK_PARAMETERS or [p.name for p in positional[:_HOOK_PARAMETERS]] == [
        "event",
        "data",
    ]
