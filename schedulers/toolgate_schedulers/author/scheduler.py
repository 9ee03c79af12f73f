"""The author's front door: what a scheduler is, and the forms in which one may be written.

Written as a function (async, plain, or an async generator that holds first), a class with state and
lifecycle, or an Amplifier hook; all become one frozen `Scheduler`, the only thing the worker knows.
No bus here and no clock: who asks, how often and in what order is the worker's affair.

An answer that is not a `Verdict`, None included, is nonsense: the worker counts it and sends nothing.
"""

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import NAME_PATTERN, RESERVED_NAMES, Phase, ToolSelecting, Verdict
from toolgate_bus.protocol.revision import NO_REVISION, Revision

if TYPE_CHECKING:
    from toolgate_bus.state.shared import Shared
    from toolgate_bus.transport.ports import Store

__all__ = [
    "Decide",
    "HeldQuestion",
    "Holds",
    "Scheduler",
    "SchedulerContext",
    "as_scheduler",
    "asking",
    "scheduler",
]

Decide = Callable[[ToolSelecting], Awaitable[Verdict]] | Callable[[ToolSelecting], AsyncIterator[Verdict]]
"""One answer, or (where `Scheduler.streams`) a `Hold` and then the final answer."""

asking: ContextVar[str] = ContextVar("asking", default="")
"""The id of the orchestrator whose question `decide` is deciding; the roster says whether it lives."""

_PRIORITY_LIMIT = 2**31
_TOOL_GLOB_LIMIT = 256

Written = TypeVar("Written")


@dataclass(frozen=True, slots=True)
class HeldQuestion:
    """A question that some replica answered with `Hold`, and that still waits for its final answer."""

    decision_id: str
    question: ToolSelecting
    seconds_left: float
    """Until the hold runs out and the call is denied, by the bus's own clock."""
    orchestrator: str = ""
    """Whose question it is."""


class Holds(Protocol):
    """The stored holds of this scheduler; whichever replica is told the outcome may answer."""

    async def open(self) -> list[HeldQuestion]:
        """Those that wait right now, oldest first."""
        ...

    async def answer(self, decision_id: str, verdict: Verdict, phase: Phase | None = None) -> bool:
        """Send the final answer of a hold; False if it is gone: answered, withdrawn or run out.

        Without a phase that of the replacement is meant, if it is held. Raises TransportError where
        the answer may not have been sent: answer again, which does no harm.
        """
        ...


@dataclass(frozen=True, slots=True)
class SchedulerContext:
    """What a scheduler is given when its replica starts."""

    shared: "Shared"
    """State and knowledge beyond this replica: store, ledger, facts."""
    holds: Holds
    namespace: str
    replica: str
    name: str
    """The name that it runs under (`--name`): all its replicas have it, and no other scheduler."""
    shadow: bool = False
    """Its verdicts are recorded and compared, never merged."""

    @property
    def store(self) -> "Store":
        """State shared by the replicas, and with other schedulers of the namespace."""
        return self.shared.store


async def _no_start(_context: SchedulerContext) -> None:
    """Nothing to do before the first question."""


async def _no_stop() -> None:
    """Nothing to do after the last answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """The normal form of every scheduler. Raises ConfigError that names the field which is wrong."""

    name: str
    decide: Decide
    priority: int = 0
    """Priority of its verdicts unless they carry their own; the higher wins."""
    tools: tuple[str, ...] = ("*",)
    """Tool-name globs; it is only asked about tools that match one."""
    shadow: bool = False
    """Its verdicts are recorded and compared, never merged."""
    streams: bool = False
    """`decide` gives an async iterator of verdicts instead of an awaitable of one."""
    start: Callable[[SchedulerContext], Awaitable[None]] = _no_start
    stop: Callable[[], Awaitable[None]] = _no_stop
    revision: Revision = NO_REVISION
    """Which configuration it rules by; `loading` finds it."""

    def __post_init__(self) -> None:
        """Check every field an author or an option can set."""
        if not isinstance(self.name, str) or not re.fullmatch(NAME_PATTERN, self.name):
            raise ConfigError(
                f"scheduler {self.name!r}: name: 1 to 64 letters, digits, '.', '_' or '-' are allowed"
            )
        if self.name in RESERVED_NAMES:
            raise ConfigError(
                f"scheduler {self.name!r}: name: it means the hooks of an orchestrator's own process; "
                "take another"
            )
        _check_priority(self.name, self.priority)
        object.__setattr__(self, "tools", _globs(self.name, self.tools))
        if not isinstance(self.shadow, bool):
            raise ConfigError(f"scheduler {self.name!r}: shadow: must be true or false, not {self.shadow!r}")

    def __call__(self, call: ToolSelecting) -> Any:
        """The same as `decide`: so that a decorated function can be tried by hand."""
        return self.decide(call)


def _check_priority(name: str, priority: Any) -> None:
    if type(priority) is not int or not -_PRIORITY_LIMIT <= priority < _PRIORITY_LIMIT:
        raise ConfigError(
            f"scheduler {name!r}: priority: must be a whole number within 32 bits, not {priority!r}"
        )


def _globs(name: str, tools: str | Iterable[str]) -> tuple[str, ...]:
    globs = (tools,) if isinstance(tools, str) else tuple(tools) if isinstance(tools, Iterable) else ()
    if not globs or not all(isinstance(glob, str) and 0 < len(glob) <= _TOOL_GLOB_LIMIT for glob in globs):
        raise ConfigError(
            f'scheduler {name!r}: tools: must be one or more tool-name globs such as "web_*", not {tools!r}'
        )
    return globs


# A class can be called, too: the first overload that fits is meant.
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
    *, name: str | None = None, priority: int = 0, tools: str | Iterable[str] = ("*",), shadow: bool = False
) -> _Decorator: ...
def scheduler(
    written: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    priority: int = 0,
    tools: str | Iterable[str] = ("*",),
    shadow: bool = False,
) -> Any:
    """Make a scheduler of a function: `@scheduler(name="router", priority=10, tools=["web_*"])`.

    The function takes the call and gives a verdict; an Amplifier hook `(event, data)` is taken too.
    A class is given back as it is, with these as its attributes. The name defaults to the function's.
    """

    def decorate(written: Callable[..., Any]) -> Any:
        own = name if name is not None else _name_of(written)
        if not inspect.isclass(written):
            return _from_function(written, own, priority, tools, shadow)
        _check_priority(own, priority)
        for field, value in {"name": own, "priority": priority, "tools": tools, "shadow": shadow}.items():
            setattr(written, field, value)
        return written

    return decorate if written is None else decorate(written)


def as_scheduler(written: Any) -> Scheduler:
    """The normal form of whatever an author wrote, except a class, which must be made first.

    Raises ConfigError that says what is accepted.
    """
    if isinstance(written, Scheduler):
        return written
    if inspect.isclass(written):
        raise ConfigError(f"{written.__name__} is a class: give an instance of it")
    if callable(getattr(written, "decide", None)):
        return _from_object(written)
    if callable(written):
        return _from_function(written, _name_of(written), 0, ("*",), False)
    raise ConfigError(
        f"{written!r} is no scheduler: write a function (call) -> Verdict, a class with "
        "`async def decide(self, call)`, or an Amplifier hook (event, data) -> HookResult"
    )


def _name_of(written: Any) -> str:
    return str(getattr(written, "__name__", type(written).__name__))


def _from_function(
    function: Callable[..., Any], name: str, priority: int, tools: str | Iterable[str], shadow: bool
) -> Scheduler:
    # Late, because hooks build on this module, and few images run any.
    from toolgate_schedulers.author.hook_adapter import from_hook, is_hook

    if is_hook(function):
        return from_hook(function, name=name, priority=priority, tools=tools, shadow=shadow)
    decide, streams = _decider(function, name)
    return Scheduler(
        name=name,
        priority=priority,
        tools=_globs(name, tools),
        shadow=shadow,
        decide=decide,
        streams=streams,
    )


def _from_object(written: Any) -> Scheduler:
    name = getattr(written, "name", None) or type(written).__name__
    decide, streams = _decider(written.decide, name)
    return Scheduler(
        name=name,
        priority=getattr(written, "priority", 0),
        tools=_globs(name, getattr(written, "tools", ("*",))),
        shadow=getattr(written, "shadow", False),
        decide=decide,
        streams=streams,
        start=_lifecycle(written, name, "start", _no_start),
        stop=_lifecycle(written, name, "stop", _no_stop),
    )


def _lifecycle(written: Any, name: str, method: str, absent: Written) -> Written:
    found = getattr(written, method, None)
    if found is None:
        return absent
    if not inspect.iscoroutinefunction(found):
        raise ConfigError(f"scheduler {name!r}: {method}: must be an `async def` method")
    return cast(Written, found)


def _decider(function: Callable[..., Any], name: str) -> tuple[Decide, bool]:
    """`decide` and `streams` of a function that takes the call alone."""
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
    """Whether a function, or an object that can be called, is of this kind."""
    return kind(function) or kind(type(function).__call__)


def in_thread(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """A plain function, run in a worker thread so that it does not block the loop.

    A thread cannot be cancelled: when the question is given up, it is left to end by itself.
    """
    from anyio.to_thread import run_sync  # here: only plain functions need it

    async def run(*arguments: Any) -> Any:
        answer = await run_sync(lambda: function(*arguments), abandon_on_cancel=True)
        # A wrapper that is not `async def` itself may still give an awaitable.
        return await answer if inspect.isawaitable(answer) else answer

    return run
