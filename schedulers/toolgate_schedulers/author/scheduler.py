"""What a scheduler is: one frozen `Scheduler`, the only thing that the worker knows, and what it is given.

No bus here and no clock: who asks, how often and in what order is the worker's affair. An answer that
is not a `Verdict`, None included, is nonsense: the worker counts it and sends nothing.
"""

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import NAME_PATTERN, Phase, ToolSelecting, Verdict
from toolgate_bus.protocol.names import explain_reserved
from toolgate_bus.protocol.revision import NO_REVISION, Revision

if TYPE_CHECKING:
    from toolgate_bus.state.shared_state import SharedState
    from toolgate_bus.transport.ports import Store

Decide = Callable[[ToolSelecting], Awaitable[Verdict]] | Callable[[ToolSelecting], AsyncIterator[Verdict]]
"""One answer, or (where `Scheduler.streams`) a `Hold` and then the final answer."""

Extra = Literal["request"]
"""What a question carries for those alone who ask for it."""

asking: ContextVar[str] = ContextVar("asking", default="")
"""The id of the orchestrator whose question `decide` is deciding; the roster says whether it lives."""

wire: ContextVar[int] = ContextVar("wire", default=1)
"""The version of the wire in which it was asked: who asks in version 1 does not know the phase `admit`."""

_PRIORITY_LIMIT = 2**31
_TOOL_GLOB_LIMIT = 256
_REPLICAS_LIMIT = 1000


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

    async def open(self, decision_id: str | None = None) -> list[HeldQuestion]:
        """Those that wait right now, the soonest to run out first; of one decision, if it is given.

        Without one the whole database is looked through.
        """
        ...

    async def answer(
        self, decision_id: str, verdict: Verdict, phase: Phase | None = None, *, again: bool = False
    ) -> bool:
        """Send the final answer of a hold; False if it is gone: answered, withdrawn or run out.

        Without a phase that of the replacement is meant, if it is held. `again` is the question's own:
        who agrees to a replacement has not agreed to what others made of it. Raises TransportError where
        the answer may not have been sent: answer again, which does no harm.
        """
        ...


@dataclass(frozen=True, slots=True)
class SchedulerContext:
    """What a scheduler is given when its replica starts."""

    shared: "SharedState"
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
    """Tool-name globs, one or several (made a tuple); it is only asked about tools that match one."""
    shadow: bool = False
    """Its verdicts are recorded and compared, never merged."""
    phases: tuple[Phase, ...] = ("select", "verify")
    """The phases in which it rules. `admit` comes last, about the call that is about to run: there a
    scheduler may continue, deny or hold."""
    reads: tuple[Extra, ...] = ()
    """What it is told with each question beside the call: `request`, what the user asked for."""
    streams: bool = False
    """`decide` gives an async iterator of verdicts instead of an awaitable of one."""
    start: Callable[[SchedulerContext], Awaitable[None]] = _no_start
    stop: Callable[[], Awaitable[None]] = _no_stop
    withdraw: Callable[[str, Phase], Awaitable[None]] | None = None
    """Told, by decision id and phase, that nobody waits for an answer any longer, or that a call to which
    something was given in `admit` will not run. One replica is told, not always the one that was asked."""
    revision: Revision = NO_REVISION
    """Which configuration it rules by; `loading` finds it."""
    server_replicas: int = 0
    """How many of the server's replicas must have what it writes before it lets a call pass; for people."""

    def __post_init__(self) -> None:
        """Check every field an author or an option can set."""
        if not isinstance(self.name, str) or not re.fullmatch(NAME_PATTERN, self.name):
            raise ConfigError(
                f"scheduler {self.name!r}: name: 1 to 64 letters, digits, '.', '_' or '-' are allowed"
            )
        if why := explain_reserved(self.name):
            raise ConfigError(f"scheduler {self.name!r}: name: {why}")
        check_priority(self.name, self.priority)
        tools = (self.tools,) if isinstance(self.tools, str) else self.tools
        globs = tuple(tools) if isinstance(tools, Iterable) else ()
        if not globs or not all(isinstance(g, str) and 0 < len(g) <= _TOOL_GLOB_LIMIT for g in globs):
            raise ConfigError(
                f"scheduler {self.name!r}: tools: must be one or more tool-name globs such as "
                f'"web_*", not {self.tools!r}'
            )
        object.__setattr__(self, "tools", globs)
        phases = tuple(self.phases) if isinstance(self.phases, Iterable) else ()
        if not phases or not set(phases) <= set(get_args(Phase)):
            raise ConfigError(
                f"scheduler {self.name!r}: phases: must be one or more of {', '.join(get_args(Phase))}, "
                f"not {self.phases!r}"
            )
        object.__setattr__(self, "phases", phases)
        reads = (self.reads,) if isinstance(self.reads, str) else tuple(self.reads)
        if not set(reads) <= set(get_args(Extra)):
            raise ConfigError(
                f"scheduler {self.name!r}: reads: must be of {', '.join(get_args(Extra))}, not {self.reads!r}"
            )
        object.__setattr__(self, "reads", reads)
        if not isinstance(self.shadow, bool):
            raise ConfigError(f"scheduler {self.name!r}: shadow: must be true or false, not {self.shadow!r}")
        many = self.server_replicas
        if type(many) is not int or not 0 <= many <= _REPLICAS_LIMIT:
            raise ConfigError(
                f"scheduler {self.name!r}: server_replicas: must be 0 to {_REPLICAS_LIMIT}, not {many!r}"
            )

    def __call__(self, call: ToolSelecting) -> Any:
        """The same as `decide`: so that a decorated function can be tried by hand."""
        return self.decide(call)


def check_priority(name: str, priority: Any) -> None:
    """Raises ConfigError for what is no priority."""
    if type(priority) is not int or not -_PRIORITY_LIMIT <= priority < _PRIORITY_LIMIT:
        raise ConfigError(
            f"scheduler {name!r}: priority: must be a whole number within 32 bits, not {priority!r}"
        )


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
