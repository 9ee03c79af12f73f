"""Interfaces of the edges: the two sides of a bus, the shared store, and plain commands.

The in-memory bus and the Redis Streams bus satisfy the same Protocols and the same contract test. Nothing
here imports a server's library. All bytes are opaque at this level: `codec` makes and reads them. Times
called `age` or `seconds` are durations; no two machines' clocks are ever compared.
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
    from toolgate_bus.transport.session_labels import LabelMarks
else:

    def override(method: Any) -> Any:
        """Mark a method of a port. The port has its documentation."""
        return method


Arg = str | bytes | int | float
"""One word of a command."""


class Durability(NamedTuple):
    """Number of replicas that must have a write, and the time in milliseconds that they may take."""

    replicas: int
    timeout_ms: int


class FactItem(NamedTuple):
    """An item to write, and the number of facts in it."""

    item: bytes
    facts: int


FactPayload = bytes | list[FactItem]
"""Item of one fact, or items of several facts that follow each other."""


@dataclass(frozen=True, slots=True)
class Member:
    """One replica of a scheduler, as it announces itself on the roster."""

    name: str
    replica: str
    priority: int = 0
    tools: tuple[str, ...] = ("*",)
    """Tool-name globs. A question about any other tool is not sent to it."""
    shadow: bool = False
    started: int = 0
    """Order of starts in the namespace, counted by the bus. In a disagreement the newest start wins."""
    pid: int = 0
    host: str = ""
    answered: int = 0
    late: int = 0
    age: float = 0.0
    """Seconds since its last heartbeat, by the bus's own clock."""
    wire: tuple[int, ...] = (1,)
    """Versions of the wire that it speaks; the first one if it reports none."""
    phases: tuple[str, ...] = ("select", "verify")
    """Phases in which it rules; it is asked in no other."""
    kinds: tuple[str, ...] = ()
    """Kinds of messages that it takes; empty if it reports none."""
    reads: tuple[str, ...] = ()
    """Additional parts of a question that it wants: `request`, the user's request."""
    build: str = ""
    """Name of its software, for people."""
    revision: Revision = NO_REVISION
    """Revision of its configuration."""
    server_replicas: int = 0
    """Number of the server's replicas that must have its writes before it lets a call pass."""
    table: str = ""
    """Digest of its local table; empty without one."""
    shards: tuple[int, ...] = (0,)
    """Shards in which it reads questions; only the first one if it reports none."""
    beat: int = field(default=0, compare=False)
    """Number of the heartbeat since this start."""
    at: int = field(default=0, compare=False)
    """Time of the heartbeat in seconds since the epoch, by the bus's own clock; 0 if it reports none."""
    signed: bool = field(default=False, compare=False)
    """True if its reader has the scheduler's key and found the signature valid."""
    proof: tuple[bytes, bytes] | None = field(default=None, compare=False, repr=False)
    """Signed fields and signature, for a process that has the key and did not read the heartbeat itself."""
    left: bool = False
    """True for the last heartbeat of a replica that ends in good order."""
    gone: bool = False
    """True if it vanished without leaving, and is remembered."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def start(self) -> str:
        """Replica and number of its start, as signed verdicts name them."""
        return f"{self.replica}:{self.started}"

    @property
    def signs_otherwise(self) -> bool:
        """True if another release signed it with a scheme that this one cannot check."""
        return self.proof is not None and names_other_scheme(self.proof[1])


class Delivery(NamedTuple):
    """One inbox entry handed to one replica: a frame of questions from one orchestrator."""

    entry: str
    """Id of the entry, for `acknowledge` and `hold`."""
    orchestrator: str
    event: str
    """`tool:selecting`, or `tool:withdrawn` for a question that nobody waits for any longer."""
    frame: bytes
    age: float = 0.0
    """Seconds since the entry was written, by the bus's own clock."""
    times: int = 1
    """Number of deliveries of the entry. More than a few mean that it kills its readers."""


class HoldPlace(NamedTuple):
    """Place of a stored hold: scheduler, decision and phase."""

    scheduler: str
    decision: bytes
    phase: int


class OrchestratorListener(Protocol):
    """Callbacks of an orchestrator's bus, always on the event loop, never concurrently."""

    def on_verdicts(self, frames: Sequence[tuple[str, bytes]]) -> None:
        """Handle verdict frames: pairs of scheduler name (from the key, never the body) and bytes."""

    def on_refusal(self, scheduler: str, ids: Sequence[bytes], error: str) -> None:
        """Handle that the bus refused to write these questions (by decision id) into a scheduler's inbox."""

    def on_unconfirmed(self, scheduler: str, ids: Sequence[bytes]) -> None:
        """Handle that these questions (by decision id) may be lost, because the server was replaced."""

    def on_roster_change(self, members: Sequence[Member]) -> None:
        """Handle a new list of living replicas."""

    def on_connection(self, up: bool) -> None:
        """Handle that the bus came or went."""

    def agents(self) -> "Sequence[LiveAgent]":
        """Return the sessions that are alive here; called at every heartbeat."""

    def tools(self) -> bytes:
        """Return the encoded set of their tools at every heartbeat; the same object until it changes."""

    def on_stop_order(self, order: "Stop") -> Sequence[str]:
        """Handle an order of an older version to end turns. Return the sessions that had a turn."""

    def on_pauses(self, found: "StandingPauses") -> Sequence[str]:
        """Handle the pauses and stops that stand now. Return the sessions whose turns they end."""

    def on_labels_changed(self, sessions: Sequence[str], done: Callable[[], None]) -> None:
        """Handle that an operator took labels from these sessions; call `done` once that is known here."""

    def holds(self) -> Sequence[HoldPlace]:
        """Return the holds that are waited for here; called every few seconds."""

    def on_lost_holds(self, lost: Sequence[HoldPlace]) -> None:
        """Handle that the bus has forgotten these holds. Nobody answers them unless they are asked again."""


class QuestionWriter(Protocol):
    """Function that writes one question to several inboxes."""

    def __call__(
        self, schedulers: Sequence[str], decision: bytes, item: bytes, event: str = "tool:selecting"
    ) -> None:
        """Queue the question. `decision` and `item` are bytes of the wire, `event` is the item's kind."""


class OrchestratorBus(Protocol):
    """The orchestrator's side: write questions and facts, read verdicts, know the living schedulers."""

    orchestrator: str
    """Random id of this start; verdicts are addressed to it."""

    @property
    def is_connected(self) -> bool:
        """True if questions can be written and verdicts read right now."""

    @property
    def problem(self) -> str:
        """Reason why there is no connection, and the remedy; empty if unknown."""

    @property
    def read_set(self) -> frozenset[str]:
        """Schedulers whose verdict streams are read now."""

    @property
    def is_read(self) -> bool:
        """True if a reader of facts (ledger, exporter, console, archiver) is alive, or ever was."""

    def listen(self, listener: OrchestratorListener) -> None:
        """Set the listener; once, before `start`."""

    async def start(self) -> None:
        """Connect and begin. Returns when the first roster was read, or when a connection failed once.

        Raises ConfigError for an address that can never work. A server that is away is not an error: the bus
        keeps trying.
        """

    async def aclose(self) -> None:
        """Write queued messages, leave the roster, end every task and connection."""

    def trust(self, keys: Mapping[str, bytes]) -> None:
        """Also check signatures of schedulers with these keys, by name, and report the roster again."""

    def watch(self, schedulers: Iterable[str]) -> None:
        """Also read the verdict streams of these schedulers, alive or not (the required ones)."""

    def tell_agents(self) -> None:
        """Tell at once which sessions are alive here, instead of with the next heartbeat."""

    @property
    def ask(self) -> QuestionWriter:
        """Function that queues one question for several inboxes, written within this tick of the loop."""

    @property
    def fact(self) -> Callable[[Callable[[], FactPayload]], None]:
        """Function that queues facts. Its argument makes their bytes later, off the decision's path."""

    def hurry_facts(self) -> None:
        """Write the queued facts within this tick of the loop, because somebody waits for one of them."""

    @property
    def has_open_facts(self) -> bool:
        """True if the bus may not have all queued facts yet."""

    @property
    def may_interlock(self) -> Callable[[], bool]:
        """Function that returns whether decisions may share a fact though others come between them.

        All readers know that then, and few facts wait here.
        """

    @property
    def seen_at(self) -> float:
        """Time (`lease.now`) of the newest heartbeat, which also read the roster; infinity if never old."""
        return float("inf")

    def report_tables(self, tables: Mapping[str, str]) -> None:
        """Report which local table was last seen of each scheduler, by the beginning of its digest."""
        return

    @property
    def store(self) -> "Store":
        """Store for values that other processes read."""

    @property
    def labels(self) -> "LabelStore":
        """Store for the labels of sessions."""

    async def find_namespaces(self) -> Mapping[str, Collection[str]]:
        """Return the living schedulers in other namespaces of this server, by namespace.

        Raises ToolgateError if they cannot be seen.
        """


class SchedulerListener(Protocol):
    """Callbacks of a scheduler's bus, always on the event loop, never concurrently."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Handle new or taken-over entries: decide them, then call `acknowledge`."""


class SchedulerBus(Protocol):
    """A scheduler replica's side: read an inbox as a group, answer, acknowledge, take over."""

    @property
    def is_connected(self) -> bool:
        """True if questions can be read and answers written right now."""

    def listen(self, listener: SchedulerListener) -> None:
        """Set the listener; once, before `start`."""

    async def start(self, member: Member) -> Member:
        """Join the group and the roster. Return the member with its order of start.

        Raises TransportError if there is no server.
        """

    async def announce(self, member: Member) -> Member:
        """Announce this priority, these tools and this revision. Return the member with its new order of
        start.

        It then counts as the newest start. Name, replica and shadow stay as they are. A bus that is away
        announces it when it is back.
        """

    async def wait_until_noticed(self, timeout_s: float) -> bool:
        """Wait until every living orchestrator asks this scheduler. Return False after `timeout_s`."""

    async def leave(self) -> None:
        """Leave the roster and say so, so that no new question comes. Reading goes on."""

    async def aclose(self) -> None:
        """Leave the roster, give back undecided entries, end every task and connection."""

    def want(self, entries: int) -> None:
        """Ask for up to this many more entries; 0 pauses reading."""

    def answer(self, orchestrator: str, item: bytes) -> None:
        """Queue one verdict for an orchestrator; it is written within this tick of the loop."""

    async def answer_now(self, orchestrator: str, item: bytes) -> None:
        """Write one verdict for an orchestrator. Returns when the bus has it.

        Raises TransportError if it may not have it. A second write does no harm.
        """

    def acknowledge(self, entry: str) -> None:
        """Acknowledge one entry, in the same write as the answers queued before it."""

    def hold(self, entries: Sequence[str]) -> None:
        """Renew these entries until they are acknowledged, so that no peer takes them."""

    def stats(self, read: Callable[[], tuple[int, int]]) -> None:
        """Set the function from which each heartbeat reads this replica's totals: answered, late."""


MAX_VALUE: Final = 512 * 1024
"""Maximum size of one value in the store, in bytes."""


def checked_value(value: bytes) -> bytes:
    """Return a value that every store can keep. Raises TransportError if it is too long."""
    if len(value) > MAX_VALUE:
        raise TransportError(f"a stored value has at most {MAX_VALUE} bytes, this one {len(value)}")
    return value


SEARCH_SHARE: Final = 0.1
"""Maximum share of its time that a process searches for keys again and again (`rest_after_search`)."""
MAX_REST_S: Final = 10.0


class Store(Protocol):
    """State that schedulers share, atomic by key, kept in the namespace's one ledger slot.

    The caller chooses the keys. Values have at most `MAX_VALUE` bytes.
    """

    async def get(self, key: str) -> bytes | None:
        """Return the value; None if there is none."""

    async def put(self, key: str, value: bytes, ttl_s: float | None = None) -> None:
        """Write the value. With `ttl_s` it vanishes after that many seconds."""

    async def add(self, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        """Write the value unless there is one already. Return whether it was written."""

    async def take(self, key: str) -> bytes | None:
        """Read and delete the value in one step: of several callers only one gets it."""

    async def delete(self, key: str) -> bool:
        """Delete the value. Return whether there was one."""

    async def lease(self, key: str, mark: str, mine: bytes, ttl_s: float) -> tuple[bool, bytes | None]:
        """Write `mine` at `mark` if nothing is there. Return whether it stands there, and `key`'s value."""
        leased = await self.add(mark, mine, ttl_s) or await self.get(mark) == mine
        return leased, await self.get(key)

    def make_durable(self, durability: Durability, what: str, mark: str) -> "Store":
        """Return a store whose `put` and `add` raise TooFewReplicas if too few replicas have a value.

        The value stays nevertheless. `what` names the store in metrics. `mark` is a key of the caller's own,
        written with each value. A store without replicas returns itself.
        """
        return self

    async def check_replicas(self) -> None:
        """Raise TooFewReplicas if too few replicas follow now, and Refusal if the server forbids the wait."""
        return

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with `prefix`, sorted."""

    async def seconds_left(self, key: str) -> float | None:
        """Return the seconds until the value vanishes; None if there is none, infinity if it stays."""

    async def read_many(self, keys: Sequence[str]) -> list[tuple[bytes | None, float | None]]:
        """Return the results of `get` and `seconds_left` for each key, in few round trips."""
        return [(await self.get(key), await self.seconds_left(key)) for key in keys]


class LabelReading(NamedTuple):
    """Labels of sessions as they were stored at one moment."""

    token: bytes
    """Mark of the whole store. Another one than before: it was emptied meanwhile."""
    now_ms: int
    """Time of the store's own clock, in milliseconds since the epoch."""
    marks: "dict[str, LabelMarks]"
    """Marks of each session that was asked about."""
    above: Mapping[str, tuple[str, ...]] = {}
    """Sessions above those that were asked about, nearest first, as far as they are stored."""


class LabelStore(Protocol):
    """Labels of sessions, shared by all processes of the namespace."""

    async def read(self, sessions: Sequence[str]) -> LabelReading:
        """Return the marks of these sessions. Raises TransportError."""

    async def keep(self, marks: "Mapping[str, LabelMarks]") -> None:
        """Join marks of sessions with those that are stored: the higher count holds.

        Raises TransportError.
        """

    async def note(self, above: Mapping[str, Sequence[str]]) -> None:
        """Add sessions that are above others, by session, nearest first. Raises TransportError."""

    async def claim(self, session: str, field: str, count: int) -> bool:
        """Return True to the first caller only. Raises TransportError."""


def rest_after_search(seconds: float) -> float:
    """Return the seconds to rest after a search for keys (`Store.keys`) that took this long.

    To find keys, a server reads everything that it has. No process may keep it busy with that.
    """
    return min(MAX_REST_S, seconds / SEARCH_SHARE)


class FactStream(Protocol):
    """Facts of all orchestrators of a namespace, in order, from each one's first kept fact."""

    is_whole: bool
    """True if the last `next` or `glance` read all that it should; False if some server may be away."""

    async def next(self, wait_ms: int | None = None) -> list[dict[str, Any]]:
        """Return the facts since the last call, each with its `orchestrator`; wait a moment, or `wait_ms`."""

    async def glance(self, *orchestrators: str) -> list[dict[str, Any]]:
        """Return new facts of these orchestrators, or of all, without a wait, even while `next` waits.

        A fact that both read is returned once.
        """

    def read_stored(self, since_ms: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yield the facts that are still kept, oldest first; `next` goes on from there.

        `since_ms` leaves out older facts; it is a time in milliseconds by the server's clock.
        """

    async def now_ms(self) -> int:
        """Return the server's own time, in milliseconds since the epoch."""

    def expect(self, orchestrator: str) -> bool:
        """Also read an orchestrator that the roster may not list yet. Return False if it is read already."""

    @property
    def positions(self) -> dict[str, str]:
        """Position up to which each orchestrator's facts were read."""

    @property
    def numbers(self) -> dict[str, int]:
        """Number of the last fact that was read of each orchestrator."""

    def resume(self, positions: Mapping[str, str], numbers: Mapping[str, int] | None = None) -> None:
        """Go on from these positions. With `numbers`, facts that are written again are skipped."""

    async def alive(self) -> frozenset[str]:
        """Return the orchestrators that are alive."""


class Commands(Protocol):
    """Ordinary server commands, one at a time, used by roster and store."""

    async def execute(self, *command: Arg) -> Any:
        """Run one command. Raises TransportError, OutcomeUnknown or BusDown."""

    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Run several commands in one round trip, not atomically. A reply may be an exception."""

    def widen(self) -> "Commands | None":
        """Return commands whose connections can block on reads of many slots at once, closed with these.

        None if there are no slots: one server, whose commands may use any keys.
        """
        return None
