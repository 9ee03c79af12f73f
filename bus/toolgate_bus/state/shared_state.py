"""The state that the schedulers of a namespace share, wherever it is kept; `shared` makes one."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from toolgate_bus.ledger.money.ledger import Ledger
from toolgate_bus.ledger.slots.redis import SlotQueues
from toolgate_bus.state.call_counts import CallCounter
from toolgate_bus.state.claims import ClaimBoard
from toolgate_bus.state.counters import SharedCounter
from toolgate_bus.state.notifications import Notices
from toolgate_bus.state.token_buckets import Buckets
from toolgate_bus.transport.ports import FactStream, Store


@dataclass(frozen=True, slots=True)
class SharedState:
    """State beyond one replica, shared by the schedulers of a namespace."""

    store: Store
    ledger: Ledger
    book: str
    """Name of the ledger's book; shadows have one of their own."""
    facts: FactStream
    """Facts for the keeper of the book, which notes its position."""
    news: FactStream
    """The same facts, for a scheduler that follows how calls go in every replica."""
    turns: SharedCounter
    buckets: Buckets
    tally: CallCounter
    notices: Notices
    slots: SlotQueues
    claims: ClaimBoard
    aclose: Callable[[], Awaitable[None]]
