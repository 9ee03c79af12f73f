"""Reads from the server what the judging parts need: the edge. Commands here only look."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from toolgate_bus.budgets.ledger import Open
from toolgate_bus.budgets.ledger_redis import RedisLedger
from toolgate_bus.budgets.limits import Limits, described
from toolgate_bus.commands.doctor.budgets import BookState
from toolgate_bus.commands.doctor.facts import Kept
from toolgate_bus.commands.doctor.inboxes import Inbox, Reading
from toolgate_bus.commands.doctor.looking import refused
from toolgate_bus.commands.doctor.server import ServerState, parsed_info
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.clock import entry_order
from toolgate_bus.transport.redis.roster import RosterView
from toolgate_bus.transport.store import RedisStore

__all__ = ["books", "inboxes", "info_of", "kept_facts", "now_s", "server_state"]

BOOKS: Final = ("budget", "budget-shadow", "budget-hooks")
PINGS: Final = 21
LAG_SAMPLES: Final = 9
LAG_STEP_S: Final = 0.005
MOST_INBOXES: Final = 1000
MOST_WRITERS: Final = 1000
COUNTED: Final = 1000
"""Entries that are counted one by one where the server does not know how many wait."""


async def now_s(commands: Commands) -> float:
    """The server's time, in seconds since the epoch."""
    seconds, micros = await commands.execute("TIME")
    return int(seconds) + int(micros) / 1e6


async def info_of(commands: Commands) -> dict[str, str]:
    """What the server says of itself; empty where this user may not ask."""
    (reply,) = await commands.pipeline([("INFO",)])
    return parsed_info(reply) if isinstance(reply, bytes | str) else {}


async def server_state(commands: Commands, *, embedded: bool) -> ServerState:
    """Everything that the server itself is judged by."""
    pings = await _pings(commands)
    before = time.time()
    there = await now_s(commands)
    ahead = there - (before + time.time()) / 2
    config, found = await asyncio.gather(_config(commands), _described(commands))
    return ServerState(
        info=await info_of(commands),
        config=config,
        pings_s=pings,
        lags_s=await _lags(),
        ahead_s=ahead,
        budgets=found,
        embedded=embedded,
    )


async def _pings(commands: Commands) -> list[float]:
    took = []
    for _ in range(PINGS):
        before = time.perf_counter()
        await commands.execute("PING")
        took.append(time.perf_counter() - before)
    return took


async def _lags() -> list[float]:
    late = []
    for _ in range(LAG_SAMPLES):
        before = time.perf_counter()
        await asyncio.sleep(LAG_STEP_S)
        late.append(max(0.0, time.perf_counter() - before - LAG_STEP_S))
    return late


async def _config(commands: Commands) -> dict[str, str]:
    found: dict[str, str] = {}
    for reply in await commands.pipeline([("CONFIG", "GET", "appendfsync"), ("CONFIG", "GET", "save")]):
        if not isinstance(reply, Exception) and reply:
            found[_text(reply[0])] = _text(reply[1])
    return found


async def _described(commands: Commands) -> bool:
    namespace_free = "tg:{*:ledger}:budget:described:*"
    cursor, more = b"0", True
    try:
        while more:
            cursor, names = await commands.execute("SCAN", cursor, "MATCH", namespace_free, "COUNT", 1000)
            if names:
                return True
            more = cursor != b"0"
    except (ConfigError, TransportError):  # this user may not search: budgets are looked at elsewhere
        pass
    return False


# ---------------------------------------------------------------- inboxes


async def inboxes(commands: Commands, namespace: str, view: RosterView) -> list[Inbox]:
    """The inbox of every scheduler that is alive, that an orchestrator waits for, or that has one."""
    keys = Keys(namespace)
    alive = [member.name for member in view.members]
    names = {*alive, *(name for reads in view.orchestrators.values() for name in reads)}
    names.update(await _having_inboxes(commands, keys))
    chosen = sorted(names)[:MOST_INBOXES]
    groups = await commands.pipeline([("XINFO", "GROUPS", keys.inbox(name)) for name in chosen])
    _check(groups)
    now_ms = await now_s(commands) * 1000
    return [
        await _inbox(commands, keys, name, alive.count(name), _flat(group[0]) if group else {}, now_ms)
        for name, group in zip(chosen, groups, strict=True)
        if not isinstance(group, Exception)
    ]


async def _having_inboxes(commands: Commands, keys: Keys) -> list[str]:
    prefix = keys.inbox("")
    pattern = prefix.replace("[", "\\[")
    found: list[str] = []
    cursor: Any = b"0"
    try:
        while len(found) < MOST_INBOXES:
            cursor, names = await commands.execute("SCAN", cursor, "MATCH", f"{pattern}*", "COUNT", 1000)
            found += [_text(name).removeprefix(prefix) for name in names]
            if cursor == b"0":
                break
    except (ConfigError, TransportError):  # this user may not search: those on the roster are known
        pass
    return found


async def _inbox(
    commands: Commands, keys: Keys, name: str, replicas: int, group: dict[str, Any], now_ms: float
) -> Inbox:
    key = keys.inbox(name)
    last = _text(group.get("last-delivered-id", b"0-0"))
    asks = [("XRANGE", key, f"({last}", "+", "COUNT", COUNTED), ("XINFO", "CONSUMERS", key, name)]
    waiting, consumers = await commands.pipeline(asks)
    if isinstance(waiting, Exception):
        waiting = []
    lag_s = max(0.0, now_ms - entry_order(_text(waiting[0][0]))[0]) / 1000 if waiting else 0.0
    lag = group.get("lag")
    many = max(lag, 0) if type(lag) is int and (waiting or not lag) else len(waiting)
    readings = [] if isinstance(consumers, Exception) else [_flat(one) for one in consumers]
    return Inbox(
        name,
        replicas,
        many,
        lag_s,
        [Reading(_text(one["name"]), int(one["pending"]), int(one["idle"]) / 1000) for one in readings],
    )


# ---------------------------------------------------------------- budgets and facts


async def books(commands: Commands, namespace: str) -> list[BookState]:
    """Every ledger's book."""
    store, keys = RedisStore(commands, namespace), Keys(namespace)
    found = []
    for book in BOOKS:
        ledger = RedisLedger(commands, namespace, book)
        balances, budgets = await ledger.balances(), await described(store, book)
        if balances or budgets:
            kept = await commands.execute("GET", keys.stored(f"{book}:keeper")) is not None
            limits = await Limits(store, book).read()
            # Modules keep their own book themselves, for as long as they live.
            kept = kept or book == "budget-hooks"
            held, astray = await _held(ledger), await ledger.astray()
            found.append(BookState(book, budgets, limits, balances, kept, held, astray))
    return found


async def _held(ledger: RedisLedger) -> list[Open] | None:
    try:
        return await ledger.open()
    except (ConfigError, TransportError) as raised:
        if not refused(raised):
            raise
        return None


async def kept_facts(commands: Commands, namespace: str, view: RosterView) -> list[Kept]:
    """Every orchestrator's facts stream."""
    keys = Keys(namespace)
    kept = [_text(name) for name in await commands.execute("ZRANGE", keys.writers, 0, MOST_WRITERS)]
    if not kept:
        return []
    first = await commands.pipeline([("XRANGE", keys.facts(name), "-", "+", "COUNT", 1) for name in kept])
    _check(first)
    sizes = await commands.pipeline([("MEMORY", "USAGE", keys.facts(name)) for name in kept])
    now_ms = await now_s(commands) * 1000
    return [
        Kept(
            name,
            name in view.orchestrators,
            max(0.0, now_ms - entry_order(_text(page[0][0]))[0]) / 1000,
            size if type(size) is int else None,
        )
        for name, page, size in zip(kept, first, sizes, strict=True)
        if not isinstance(page, Exception) and page
    ]


def _check(replies: Sequence[Any]) -> None:
    """Raise what says that this user may not look."""
    for reply in replies:
        if refused(reply):
            raise ConfigError(f"this user may not look: {reply}")


def _flat(pairs: Sequence[Any]) -> dict[str, Any]:
    return {_text(name): value for name, value in zip(pairs[::2], pairs[1::2], strict=False)}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
