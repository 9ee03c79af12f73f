"""Read the state of a fleet from its server. Nothing here changes anything."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Final

from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.fleet.books import Book
from toolgate_bus.fleet.fact_streams import FactStreamState
from toolgate_bus.fleet.inboxes import InboxConsumer, InboxState
from toolgate_bus.fleet.server import ServerState, parse_info
from toolgate_bus.ledger.money.journal import journal_key
from toolgate_bus.ledger.money.ledger import OpenReservation
from toolgate_bus.ledger.money.limits import BOOKS, Limits, read_budgets
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol.keys import Keys, shard_of
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.client.readonly import is_refusal
from toolgate_bus.transport.redis.roster.roster import RosterView
from toolgate_bus.transport.redis.roster.shards import find_shards
from toolgate_bus.transport.redis.storage.reads import (
    Backlog,
    age_s,
    find_keys,
    literal,
    ping,
    read_backlogs,
    read_config,
    read_consumers,
    read_first,
    read_info,
    read_names,
    read_sizes,
    read_stream_size,
    read_time,
)
from toolgate_bus.transport.redis.storage.store import RedisStore

PINGS: Final = 21
LAG_SAMPLES: Final = 9
LAG_STEP_S: Final = 0.005
MAX_INBOXES: Final = 1000
MAX_WRITERS: Final = 1000


async def read_server_info(commands: Commands) -> dict[str, str]:
    """Return the fields of the server's INFO; empty if this user may not ask."""
    return parse_info(await read_info(commands))


async def read_server(commands: Commands, *, embedded: bool, clustered: bool = False) -> ServerState:
    """Read everything that the server itself is judged by."""
    pings, lags = [], []
    for _ in range(PINGS):
        began = time.perf_counter()
        await ping(commands)
        pings.append(time.perf_counter() - began)
    for _ in range(LAG_SAMPLES):
        began = time.perf_counter()
        await asyncio.sleep(LAG_STEP_S)
        lags.append(max(0.0, time.perf_counter() - began - LAG_STEP_S))
    before = time.time()
    there = await read_time(commands)
    ahead = there - (before + time.time()) / 2
    config, found = await asyncio.gather(read_config(commands, "appendfsync", "save"), _has_budgets(commands))
    return ServerState(
        info=await read_server_info(commands),
        config=config,
        pings_s=pings,
        lags_s=lags,
        ahead_s=ahead,
        budgets=found,
        embedded=embedded,
        clustered=clustered,
    )


async def _has_budgets(commands: Commands) -> bool:
    try:
        async for _ in find_keys(commands, "tg:{*:ledger}:budget:described:*"):
            return True
    except (ConfigError, TransportError):  # this user may not search: budgets are looked at elsewhere
        pass
    return False


async def read_inboxes(commands: Commands, namespace: str, view: RosterView) -> list[InboxState]:
    """Read the inboxes of every scheduler that is alive, that an orchestrator waits for, or that has one."""
    shards = await find_shards(commands, Keys(namespace), view)
    found = [await _inboxes_in(commands, Keys(namespace, shard), shard, view) for shard in shards]
    return [one for each in found for one in each]


async def _inboxes_in(commands: Commands, keys: Keys, shard: int, view: RosterView) -> list[InboxState]:
    alive = [member.name for member in view.members if shard in member.shards]
    waited = (name for one, reads in view.orchestrators.items() if shard_of(one) == shard for name in reads)
    names = {*alive, *waited}
    prefix = keys.inbox("")
    listed: list[str] = []
    try:
        async for page in find_keys(commands, literal(prefix) + "*"):
            listed += [name.decode("utf-8", "replace").removeprefix(prefix) for name in page]
            if len(listed) >= MAX_INBOXES:
                break
    except (ConfigError, TransportError):  # this user may not search: those on the roster are known
        pass
    names.update(listed)
    chosen = sorted(names)[:MAX_INBOXES]
    found = await read_backlogs(commands, keys, chosen)
    _check(found.values())
    return [
        InboxState(
            name,
            alive.count(name),
            one.waiting,
            one.lag_s,
            [InboxConsumer(*each) for each in await read_consumers(commands, keys.inbox(name), name)],
            shard,
        )
        for name, one in found.items()
        if isinstance(one, Backlog)
    ]


async def read_books(commands: Commands, namespace: str, names: Iterable[str] = BOOKS) -> list[Book]:
    """Read the books of these ledgers: budgets, accounts, loss. Those with nothing in them are left out."""
    books = [await read_book(commands, namespace, name) for name in names]
    return [one for one in books if one.balances or one.budgets or one.loss]


async def read_book(commands: Commands, namespace: str, name: str) -> Book:
    """Read the book of one ledger."""
    store, ledger = RedisStore(commands, namespace), RedisLedger(commands, namespace, name)
    budgets, overrides = await read_budgets(store, name), await Limits(store, name).read()
    return Book(name, budgets, overrides, await ledger.balances(), loss=await ledger.loss())


async def read_kept_books(commands: Commands, namespace: str, *, archived: bool) -> list[Book]:
    """Read every book with its keeper, the decisions that hold money, and its journal.

    `archived` says whether an archiver is alive.
    """
    return [
        (await _read_kept(commands, namespace, book))._replace(archived=archived)
        for book in await read_books(commands, namespace)
    ]


async def _read_kept(commands: Commands, namespace: str, book: Book) -> Book:
    ledger = RedisLedger(commands, namespace, book.name)
    kept = await RedisStore(commands, namespace).get(f"{book.name}:keeper") is not None
    size = await read_stream_size(commands, journal_key(namespace, book.name))
    return book._replace(
        kept=kept or book.name == "budget-hooks",  # modules keep it themselves, as long as they live
        held=await _read_reservations(ledger),
        astray=await ledger.astray(),
        entries=size.length if size is not None else 0,
    )


async def _read_reservations(ledger: RedisLedger) -> list[OpenReservation] | None:
    try:
        return await ledger.open()
    except (ConfigError, TransportError) as raised:
        if not is_refusal(raised):
            raise
        return None


async def read_fact_streams(commands: Commands, namespace: str, view: RosterView) -> list[FactStreamState]:
    """Read every orchestrator's facts stream."""
    keys = Keys(namespace)
    kept = await read_names(commands, keys.writers, MAX_WRITERS)
    if not kept:
        return []
    first = await read_first(commands, [(keys.facts(name), "-") for name in kept], 1)
    _check(first)
    sizes = await read_sizes(commands, [keys.facts(name) for name in kept])
    now_s = await read_time(commands)
    return [
        FactStreamState(name, name in view.orchestrators, age_s(page, now_s), size)
        for name, page, size in zip(kept, first, sizes, strict=True)
        if not isinstance(page, Exception) and page
    ]


def _check(replies: Iterable[Any]) -> None:
    """Raise ConfigError if a reply says that this user may not read."""
    for reply in replies:
        if is_refusal(reply):
            raise ConfigError(f"this user may not read it: {reply}")
