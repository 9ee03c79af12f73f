"""What the edges implement: the two sides of a bus, the shared store, and plain commands.

The in-memory bus and the Redis Streams bus satisfy the same Protocols and the same contract test.
Nothing here imports a server's library. All bytes are opaque at this level: `codec` makes and reads
them. Times called `age` or `seconds` are durations; no two machines' clocks are ever compared.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from toolgate_bus.errors import TransportError
from toolgate_bus.protocol.revision import NO_REVISION, Revision
from toolgate_bus.protocol.signing import names_other_scheme

if TYPE_CHECKING:
    from typing_extensions import override as override

    from toolgate_bus.protocol.agents import LiveAgent, Stop
    from toolgate_bus.protocol.pauses import StandingPauses
else:

    def override(method: Any) -> Any:
        """Mark a method that a port promises: what it does is said there, and once."""
        return method


Arg = str | bytes | int | float
"""One word of a command."""


class Durability(NamedTuple):
    """How many replicas must have a write, and how long they may take."""

    replicas: int
    timeout_ms: int


class FactItem(NamedTuple):
    """An item as it is written, and how many facts it holds."""

    item: bytes
    facts: int


FactPayload = bytes | list[FactItem]
"""The item of one fact, or those of several that follow each other."""


@dataclass(frozen=True, slots=True)
class Member:
    """One replica of a scheduler, as it announces itself on the roster."""

    name: str
    replica: str
    priority: int = 0
    tools: tuple[str, ...] = ("*",)
    """Tool-name globs; a question about any other tool is not sent to it."""
    shadow: bool = False
    started: int = 0
    """Order of starts in the namespace, counted by the bus: the newest start wins a disagreement."""
    pid: int = 0
    host: str = ""
    answered: int = 0
    late: int = 0
    age: float = 0.0
    """Seconds since its last heartbeat, by the bus's own clock."""
    wire: tuple[int, ...] = (1,)
    """The versions of the wire that it speaks; one that says nothing of it speaks the first."""
    phases: tuple[str, ...] = ("select", "verify")
    """The phases in which it rules; it is asked in no other."""
    kinds: tuple[str, ...] = ()
    """The kinds of messages that it takes; none where it says nothing of it."""
    reads: tuple[str, ...] = ()
    """What else it is told with a question: `request`, what the user asked for."""
    build: str = ""
    """Which software it is, for people."""
    revision: Revision = NO_REVISION
    """Which configuration it rules by."""
    server_replicas: int = 0
    """How many of the server's replicas must have what it writes, before it lets a call pass."""
    shards: tuple[int, ...] = (0,)
    """The shards in which it reads questions; the first alone where it says nothing of it."""
    beat: int = field(default=0, compare=False)
    """Which heartbeat of this start it was."""
    at: int = field(default=0, compare=False)
    """When it was written, in seconds since the epoch by the bus's own clock; 0 where it does not say."""
    signed: bool = field(default=False, compare=False)
    """Whether whoever read it has the scheduler's key, and found that it signed this."""
    proof: tuple[bytes, bytes] | None = field(default=None, compare=False, repr=False)
    """What it signed of itself, and the signature, for who has the key and did not read it himself."""
    left: bool = False
    """It says that it leaves: the last heartbeat of a replica that ends in good order."""
    gone: bool = False
    """It vanished without leaving, and is remembered."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def start(self) -> str:
        """Which start of which replica it is: as its verdicts name it, where they are signed."""
        return f"{self.replica}:{self.started}"

    @property
    def signs_otherwise(self) -> bool:
        """Whether it is signed as another release signs, and so by nobody whom this one can believe."""
        return self.proof is not None and names_other_scheme(self.proof[1])


class Delivery(NamedTuple):
    """One inbox entry handed to one replica: a frame of questions from one orchestrator."""

    entry: str
    """The entry's id: what `done` and `renew` are given."""
    orchestrator: str
    event: str
    """`tool:selecting`, or `tool:withdrawn` for a question nobody waits for any longer."""
    frame: bytes
    age: float = 0.0
    """Seconds since the entry was written, by the bus's own clock."""
    times: int = 1
    """How often it was delivered; more than a few means it kills its readers."""


class HoldPlace(NamedTuple):
    """Which stored hold: that of a scheduler, on a decision, in a phase."""

    scheduler: str
    decision: bytes
    phase: int


class OrchestratorListener(Protocol):
    """What an orchestrator's bus calls, always on the event loop, never concurrently."""

    def on_verdicts(self, frames: Sequence[tuple[str, bytes]]) -> None:
        """Verdict frames came in: pairs of scheduler name (from the key, never the body) and bytes."""

    def on_refusal(self, scheduler: str, ids: Sequence[bytes], error: str) -> None:
        """The bus would not write these questions (by decision id) into a scheduler's inbox."""

    def on_unconfirmed(self, scheduler: str, ids: Sequence[bytes]) -> None:
        """The bus is back, and may have lost these questions (by decision id) as its server was replaced."""

    def on_roster_change(self, members: Sequence[Member]) -> None:
        """The living replicas are now these."""

    def on_connection(self, up: bool) -> None:
        """The bus came or went."""

    def agents(self) -> "Sequence[LiveAgent]":
        """The sessions that are alive here; asked at every heartbeat."""

    def tools(self) -> bytes:
        """The encoded set of their tools, the same object until it changed; asked at every heartbeat."""

    def on_stop_order(self, order: "Stop") -> Sequence[str]:
        """An operator with an earlier version wants turns to end; gives the sessions that had one."""

    def on_pauses(self, found: "StandingPauses") -> Sequence[str]:
        """These are the pauses and stops that stand; gives the sessions whose turns are ended by them."""

    def holds(self) -> Sequence[HoldPlace]:
        """The holds that are waited for here; asked every few seconds."""

    def on_lost_holds(self, lost: Sequence[HoldPlace]) -> None:
        """The bus has forgotten these: nobody will answer them, unless they are asked again."""


class QuestionWriter(Protocol):
    """Writes one question to several inboxes."""

    def __call__(
        self, schedulers: Sequence[str], decision: bytes, item: bytes, event: str = "tool:selecting"
    ) -> None:
        """Queue it: decision and item are bytes of the wire, the event says what the item is."""


class OrchestratorBus(Protocol):
    """The orchestrator's side: write questions and facts, read verdicts, know who is alive."""

    orchestrator: str
    """Random id of this start; verdicts are addressed to it."""

    @property
    def is_connected(self) -> bool:
        """Whether questions can be written and verdicts read right now."""

    @property
    def problem(self) -> str:
        """Why there is no connection, and what to do about it; empty where that is not known."""

    @property
    def read_set(self) -> frozenset[str]:
        """Schedulers whose verdict streams are in the current read set."""

    @property
    def is_read(self) -> bool:
        """Whether a reader of facts (ledger, exporter, console, archiver) is alive, or ever was."""

    def listen(self, listener: OrchestratorListener) -> None:
        """Say who is called; once, before `start`."""

    async def start(self) -> None:
        """Connect and begin; returns when the first roster was read, or when a connection failed once.

        Raises ConfigError for an address that can never work. A server that is away is not an
        error: the bus keeps trying.
        """

    async def aclose(self) -> None:
        """Write what is queued, leave the roster, end every task and connection."""

    def trust(self, keys: Mapping[str, bytes]) -> None:
        """Check what schedulers sign of themselves with these keys too, by name; tells the roster anew."""

    def watch(self, schedulers: Iterable[str]) -> None:
        """Also read the verdict streams of these, alive or not (the required ones)."""

    def tell_agents(self) -> None:
        """Tell at once which sessions are alive here, and not with the next heartbeat."""

    @property
    def ask(self) -> QuestionWriter:
        """Queues one question for the inboxes of several; it is written within this tick of the loop."""

    @property
    def fact(self) -> Callable[[Callable[[], FactPayload]], None]:
        """Queues a fact; what it is given makes its bytes, or those of several, off the decision's path."""

    def hurry_facts(self) -> None:
        """Write within this tick of the loop what facts are queued: somebody waits for one of them."""

    @property
    def has_open_facts(self) -> bool:
        """Whether facts were queued that the bus is not yet known to have."""

    @property
    def store(self) -> "Store":
        """What is kept for other processes."""

    async def find_namespaces(self) -> Mapping[str, Collection[str]]:
        """Schedulers that are alive in other namespaces of this server, by namespace.

        Raises ToolgateError where that cannot be seen.
        """


class SchedulerListener(Protocol):
    """What a scheduler's bus calls, always on the event loop, never concurrently."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """New or taken-over entries, to be decided and then named in `done`."""


class SchedulerBus(Protocol):
    """A scheduler replica's side: read an inbox as a group, answer, acknowledge, take over."""

    @property
    def is_connected(self) -> bool:
        """Whether questions can be read and answers written right now."""

    def listen(self, listener: SchedulerListener) -> None:
        """Say who is called; once, before `start`."""

    async def start(self, member: Member) -> Member:
        """Join the group and the roster; gives back the member with its order of start.

        Raises TransportError when there is no server.
        """

    async def announce(self, member: Member) -> Member:
        """Say that we have this priority, these tools, this revision: the newest start, with its new order.

        Name, replica and shadow stay as they are. A bus that is away says it when it is back.
        """

    async def wait_until_noticed(self, timeout_s: float) -> bool:
        """Wait until every living orchestrator asks us; False if one still does not after `timeout_s`."""

    async def leave(self) -> None:
        """Leave the roster and say so, so that no new question comes; reading goes on."""

    async def aclose(self) -> None:
        """Leave the roster, give back what was not decided, end every task and connection."""

    def want(self, entries: int) -> None:
        """Ask for up to this many more entries; 0 pauses reading."""

    def answer(self, orchestrator: str, item: bytes) -> None:
        """Queue one verdict for an orchestrator; written within this tick of the loop."""

    async def answer_now(self, orchestrator: str, item: bytes) -> None:
        """Write one verdict for an orchestrator; returns when the bus has it.

        Raises TransportError where it may not have it. Written twice it does no harm.
        """

    def acknowledge(self, entry: str) -> None:
        """Acknowledge one entry, in the same write as the answers queued before it."""

    def hold(self, entries: Sequence[str]) -> None:
        """These entries are being decided: renew them until `done`, so that no peer takes them."""

    def stats(self, read: Callable[[], tuple[int, int]]) -> None:
        """Where each heartbeat reads this replica's totals: answered, late."""


MAX_VALUE: Final = 512 * 1024
"""Bytes of one value in the store."""


def checked_value(value: bytes) -> bytes:
    """A value that every store can keep; raises TransportError for one that is too long."""
    if len(value) > MAX_VALUE:
        raise TransportError(f"a stored value has at most {MAX_VALUE} bytes, this one {len(value)}")
    return value


SEARCH_SHARE: Final = 0.1
"""Of its time that somebody looks for keys again and again (`rest_after_search`)."""
MAX_REST_S: Final = 10.0


class Store(Protocol):
    """State that schedulers share, atomic by key, kept in the namespace's one ledger slot.

    Keys are the caller's own words; values have at most `MAX_VALUE` bytes.
    """

    async def get(self, key: str) -> bytes | None:
        """The value, or None."""

    async def put(self, key: str, value: bytes, ttl_s: float | None = None) -> None:
        """Write the value; it vanishes after `ttl_s` seconds, if given."""

    async def add(self, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        """Write the value unless there is one already; True if it was written."""

    async def take(self, key: str) -> bytes | None:
        """Read and delete in one step: of several callers only one gets the value."""

    async def delete(self, key: str) -> bool:
        """Delete; True if there was a value."""

    async def lease(self, key: str, mark: str, mine: bytes, ttl_s: float) -> tuple[bool, bytes | None]:
        """Write `mine` at `mark` unless another has; whether it stands there, and then the value of `key`."""
        leased = await self.add(mark, mine, ttl_s) or await self.get(mark) == mine
        return leased, await self.get(key)

    def make_durable(self, durability: Durability, what: str, mark: str) -> "Store":
        """The same, where `put` and `add` raise TooFewReplicas unless so many have it; what they wrote stays.

        `what` it is, for metrics; `mark` is a key of the caller's own, written with each. A store without
        replicas is as it is.
        """
        return self

    async def check_replicas(self) -> None:
        """Raise TooFewReplicas where fewer follow now, and Refusal where nobody may wait for them."""
        return

    async def keys(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, sorted."""

    async def seconds_left(self, key: str) -> float | None:
        """Until the value vanishes; None if there is none, infinity if it stays."""

    async def read_many(self, keys: Sequence[str]) -> list[tuple[bytes | None, float | None]]:
        """Of each key what `get` and `seconds_left` say, in few round trips."""
        return [(await self.get(key), await self.seconds_left(key)) for key in keys]


def rest_after_search(seconds: float) -> float:
    """How many seconds to rest for who looks for keys (`Store.keys`) again and again, and took so long.

    A server reads all that it has to find them: nobody may keep it busy with that.
    """
    return min(MAX_REST_S, seconds / SEARCH_SHARE)


class FactStream(Protocol):
    """What happened in all orchestrators of a namespace, in order, from each one's first kept fact."""

    is_whole: bool
    """Whether the last `next` or `glance` looked at all it should; else the server of some is away."""

    async def next(self, wait_ms: int | None = None) -> list[dict[str, Any]]:
        """The facts that came since the last call, each with its `orchestrator`; waits a moment, or this."""

    async def glance(self, *orchestrators: str) -> list[dict[str, Any]]:
        """What came of these, or of all, while `next` waits; what both read is given once. Does not wait."""

    def read_stored(self, since_ms: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """The facts that are still kept, oldest first; `next` goes on from there.

        `since_ms` leaves out what was written before, in milliseconds of the server's clock.
        """

    async def now_ms(self) -> int:
        """The server's own time, in milliseconds."""

    def expect(self, orchestrator: str) -> bool:
        """Read the facts of one that the roster need not have told of yet; False if they are read already."""

    @property
    def positions(self) -> dict[str, str]:
        """How far each orchestrator's facts were read."""

    @property
    def numbers(self) -> dict[str, int]:
        """The number of the fact that was read last of each orchestrator."""

    def resume(self, positions: Mapping[str, str], numbers: Mapping[str, int] | None = None) -> None:
        """Go on from where somebody had read to; with `numbers`, what is written once more is passed over."""

    async def alive(self) -> frozenset[str]:
        """The orchestrators that are alive."""


class Commands(Protocol):
    """Ordinary server commands, one at a time; what roster and store are written with."""

    async def execute(self, *command: Arg) -> Any:
        """Run one command; raises TransportError, OutcomeUnknown or BusDown."""

    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Run several in one round trip, not atomically; a reply may be an exception."""

    def widen(self) -> "Commands | None":
        """The same with connections for reads of many slots that block side by side, closed with these.

        None where there are no slots: one server, whose commands may be about any keys.
        """
        return None
