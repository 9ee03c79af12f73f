"""Define `Scheduler`, the one form of scheduler that the worker knows, and the context that it gets.

There is no bus and no clock here: the worker alone decides when and in what order questions are asked. An
answer that is not a `Verdict`, None included, is invalid: the worker counts it and sends nothing.
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
"""Function that decides: it gives one answer, or (if `Scheduler.streams`) a `Hold` and then the final
answer."""

Extra = Literal["request", "session_labels"]
"""Extra data that a scheduler asks for."""

asking: ContextVar[str] = ContextVar("asking", default="")
"""Id of the orchestrator whose question `decide` is deciding; the roster says whether it is alive."""

wire: ContextVar[int] = ContextVar("wire", default=1)
"""Version of the wire of the question; orchestrators with version 1 do not know the phase `admit`."""

_PRIORITY_LIMIT = 2**31
_TOOL_GLOB_LIMIT = 256
_REPLICAS_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class HeldQuestion:
    """Question that a replica answered with `Hold` and that still waits for its final answer."""

    decision_id: str
    question: ToolSelecting
    seconds_left: float
    """Seconds until the hold expires and the call is denied, by the bus's own clock."""
    orchestrator: str = ""
    """Orchestrator that asked the question."""


class Holds(Protocol):
    """Stored holds of this scheduler; any of its replicas may answer them."""

    async def open(self, decision_id: str | None = None) -> list[HeldQuestion]:
        """List the questions held now, the first to expire first; only those of `decision_id` if given.

        Without `decision_id` this searches the whole database.
        """
        ...

    async def answer(
        self, decision_id: str, verdict: Verdict, phase: Phase | None = None, *, again: bool = False
    ) -> bool:
        """Send the final answer of a hold; False if it is gone: answered, withdrawn or expired.

        Without a phase, the hold of the replacement is meant, if there is one. Pass `again` from the
        question: a person who agrees to a replacement has not agreed to a later change of it. Raise
        TransportError if the answer may not have been sent: answering again does no harm.
        """
        ...


@dataclass(frozen=True, slots=True)
class SchedulerContext:
    """Context that a scheduler gets when its replica starts."""

    shared: "SharedState"
    """State and knowledge beyond this replica: store, ledger, facts."""
    holds: Holds
    namespace: str
    replica: str
    name: str
    """Name that it runs under (`--name`), the same for all its replicas and for no other scheduler."""
    shadow: bool = False
    """True if its verdicts are recorded and compared, never merged."""

    @property
    def store(self) -> "Store":
        """Store shared by the replicas, and with other schedulers of the namespace."""
        return self.shared.store


async def _no_start(_context: SchedulerContext) -> None:
    """Do nothing before the first question."""


async def _no_stop() -> None:
    """Do nothing after the last answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """Normal form of every scheduler. Creation raises ConfigError, which names the wrong field."""

    name: str
    decide: Decide
    priority: int = 0
    """Priority of its verdicts unless they carry their own; the higher wins."""
    tools: tuple[str, ...] = ("*",)
    """Globs of tool names, one or several (made a tuple); it is asked only about tools that match one."""
    shadow: bool = False
    """True if its verdicts are recorded and compared, never merged."""
    phases: tuple[Phase, ...] = ("select", "verify")
    """Phases in which it rules. `admit` comes last, about the call that is about to run; a scheduler may then
    continue, deny or hold."""
    reads: tuple[Extra, ...] = ()
    """Extra data that it gets with each question: `request`, the user's request; `session_labels`, all labels
    that verdicts gave to the session, also those that other processes know."""
    streams: bool = False
    """True if `decide` returns an async iterator of verdicts instead of an awaitable of one."""
    start: Callable[[SchedulerContext], Awaitable[None]] = _no_start
    stop: Callable[[], Awaitable[None]] = _no_stop
    withdraw: Callable[[str, Phase], Awaitable[None]] | None = None
    """Function called with a decision id and a phase when nobody waits for the answer any longer, or when a
    call that got something in `admit` will not run. One replica is told, not always the one that was
    asked."""
    revision: Revision = NO_REVISION
    """Revision of its configuration; `loading` finds it."""
    local_table: bytes = b""
    """Calls on which its answer is known (`toolgate_bus.ruling.local_table`), so that gates answer for it."""
    server_replicas: int = 0
    """Number of server replicas that must have its writes before it lets a call pass; shown to people."""

    def __post_init__(self) -> None:
        """Check every field that an author or an option can set."""
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
        """Call `decide`, so that a decorated function can be tried by hand."""
        return self.decide(call)


def check_priority(name: str, priority: Any) -> None:
    """Raise ConfigError unless the priority is a whole number within 32 bits."""
    if type(priority) is not int or not -_PRIORITY_LIMIT <= priority < _PRIORITY_LIMIT:
        raise ConfigError(
            f"scheduler {name!r}: priority: must be a whole number within 32 bits, not {priority!r}"
        )


def in_thread(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return an async function that runs a plain function in a worker thread, so that the loop is not
    blocked.

    A thread cannot be cancelled: if the question is given up, the thread ends by itself.
    """
    from anyio.to_thread import run_sync  # import here: only plain functions need it

    async def run(*arguments: Any) -> Any:
        answer = await run_sync(lambda: function(*arguments), abandon_on_cancel=True)
        # A wrapper that is not `async def` itself may still give an awaitable.
        return await answer if inspect.isawaitable(answer) else answer

    return run
