"""What other rooms read of a server and write to it: no command of its protocol is spelled above this folder.

Where a function gives one reply for each key, a reply may be the server's error: a key that holds
something else must not cost the others.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from toolgate_bus.protocol.keys import SHARED_GROUP, Keys
from toolgate_bus.transport.ports import Arg, Commands
from toolgate_bus.transport.redis.client.refusals import refusal_of
from toolgate_bus.transport.redis.clock import entry_order

PAGE: Final = 1000
COUNTED: Final = 1000
"""Entries that are counted one by one where the server does not know how many wait."""

# ---------------------------------------------------------------------- the server itself


async def read_time(commands: Commands) -> float:
    """The server's clock, in seconds since the epoch."""
    seconds, micros = await commands.execute("TIME")
    return int(seconds) + int(micros) / 1e6


async def ping(commands: Commands) -> None:
    """Have the server answer; raises TransportError."""
    await commands.execute("PING")


async def read_info(commands: Commands) -> str:
    """What the server says of itself; empty where this user may not ask."""
    (reply,) = await commands.pipeline([("INFO",)])
    return _text(reply) if isinstance(reply, bytes | str) else ""


async def read_config(commands: Commands, *names: str) -> dict[str, str]:
    """These settings of the server; without those that this user may not see."""
    replies = await commands.pipeline([("CONFIG", "GET", name) for name in names])
    found = [reply for reply in replies if not isinstance(reply, Exception) and reply]
    return {_text(reply[0]): _text(reply[1]) for reply in found}


async def read_replication(commands: Commands, near: str, *names: str) -> tuple[str, dict[str, str]]:
    """What the server of that key says of its replicas, and these settings of it; empty what is not shown."""
    asked = [("CONFIG", "GET", name) for name in names]
    _, info, *replies = await commands.pipeline([("GET", near), ("INFO", "replication"), *asked])
    found = [reply for reply in replies if not isinstance(reply, Exception) and reply]
    told = _text(info) if isinstance(info, bytes | str) else ""
    return told, {_text(reply[0]): _text(reply[1]) for reply in found}


async def find_keys(commands: Commands, pattern: str) -> AsyncIterator[list[bytes]]:
    """Pages of the keys that fit, in no order, some perhaps twice; raises TransportError."""
    cursor: Any = "0"
    while True:
        cursor, page = await commands.execute("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE)
        if page:
            yield page
        if cursor in (b"0", "0", 0):
            return


async def empty_streams(commands: Commands, keys: Sequence[bytes]) -> None:
    """Remove the entries of these streams; the groups that read them stay."""
    await commands.pipeline([("XTRIM", key, "MAXLEN", 0) for key in keys])


async def delete_keys(commands: Commands, keys: Sequence[bytes]) -> None:
    """Delete these keys, whatever they hold."""
    tagged: dict[bytes, list[bytes]] = {}
    for key in keys:  # servers may share them by what stands in braces
        tagged.setdefault(key.partition(b"}")[0], []).append(key)
    await commands.pipeline([("UNLINK", *some) for some in tagged.values()])


def literal(text: str) -> str:
    """A text as a pattern that fits it alone."""
    return "".join("\\" + letter if letter in "*?[]^\\" else letter for letter in text)


async def read_sizes(commands: Commands, keys: Sequence[str]) -> list[int | None]:
    """Bytes that each key takes in the server's memory; None where this user may not ask."""
    replies = await commands.pipeline([("MEMORY", "USAGE", key) for key in keys])
    return [reply if type(reply) is int else None for reply in replies]


# ---------------------------------------------------------------------- sets, hashes, sorted sets


async def read_set(commands: Commands, key: str) -> list[bytes]:
    """The members of a set, sorted."""
    return sorted(await commands.execute("SMEMBERS", key))


async def remove_from_set(commands: Commands, key: str, members: Sequence[bytes]) -> None:
    """Take these members from a set."""
    if members:
        await commands.execute("SREM", key, *members)


async def read_fields(commands: Commands, key: str, *names: str) -> list[bytes | None]:
    """These fields of a hash; raises TransportError."""
    return cast("list[bytes | None]", await commands.execute("HMGET", key, *names))


async def read_rows(commands: Commands, keys: Sequence[Arg], *names: str) -> list[list[bytes | None]]:
    """These fields of each hash; raises TransportError."""
    return await ask_all(commands, [("HMGET", key, *names) for key in keys])


async def read_hashes(commands: Commands, keys: Sequence[str]) -> list[dict[str, str]]:
    """Each hash whole; empty for what is none."""
    replies = await commands.pipeline([("HGETALL", key) for key in keys]) if keys else []
    return [_flat(reply, _text) for reply in replies]


async def put_field(commands: Commands, key: str, name: str, value: bytes) -> None:
    """Set one field of a hash; raises TransportError."""
    await commands.execute("HSET", key, name, value)


async def read_hash(commands: Commands, key: str) -> dict[str, bytes]:
    """A hash whole; raises TransportError."""
    return _flat(await commands.execute("HGETALL", key))


async def remove_fields(commands: Commands, key: str, names: Sequence[str]) -> None:
    """Take these fields from a hash; raises TransportError."""
    if names:
        await commands.execute("HDEL", key, *names)


async def add_counts(commands: Commands, key: str, counts: Mapping[str, int], kept_ms: int) -> None:
    """Add to these fields of a hash, which goes so long after the last time; raises TransportError."""
    adds = [("HINCRBY", key, name, count) for name, count in counts.items() if count]
    await ask_all(commands, [*adds, ("PEXPIRE", key, kept_ms)] if adds else [])


async def read_values(commands: Commands, *keys: str) -> list[bytes | None]:
    """These values in one round trip; raises TransportError."""
    return await ask_all(commands, [("GET", key) for key in keys])


async def read_scores(commands: Commands, key: str) -> list[tuple[str, float]]:
    """The members of a sorted set with their scores, lowest first."""
    reply = await commands.execute("ZRANGE", key, 0, -1, "WITHSCORES")
    return [(name.decode("ascii", "replace"), float(score)) for name, score in _pairs(reply)]


async def read_places(commands: Commands, keys: Sequence[str], most: int) -> list[list[tuple[str, float]]]:
    """Of each sorted set the first members with their scores; raises TransportError."""
    replies = await ask_all(commands, [("ZRANGE", key, 0, most - 1, "WITHSCORES") for key in keys])
    return [[(_text(name), float(score)) for name, score in _pairs(reply)] for reply in replies]


async def read_lines(commands: Commands, keys: Sequence[str]) -> list[tuple[int, float | None]]:
    """Of each sorted set how many are in it, and the lowest score; raises TransportError."""
    asks = [ask for key in keys for ask in (("ZCARD", key), ("ZRANGE", key, 0, 0, "WITHSCORES"))]
    replies = iter(await ask_all(commands, asks))
    return [(size, _score(first)) for size, first in zip(replies, replies, strict=True)]


async def read_sets(commands: Commands, keys: Sequence[str]) -> list[list[str]]:
    """The members of each set; raises TransportError."""
    replies = await ask_all(commands, [("SMEMBERS", key) for key in keys])
    return [sorted(map(_text, reply)) for reply in replies]


async def count_sets(commands: Commands, keys: Sequence[str]) -> list[int]:
    """How many are in each set; raises TransportError."""
    return await ask_all(commands, [("SCARD", key) for key in keys])


async def ask_all(commands: Commands, asks: Sequence[Sequence[Arg]]) -> list[Any]:
    """The replies to all of these, in one round trip; raises TransportError where one is an error."""
    replies = await commands.pipeline(asks) if asks else []
    for ask, reply in zip(asks, replies, strict=True):
        if isinstance(reply, Exception):
            raise refusal_of(ask, reply) from reply
    return list(replies)


def _pairs(reply: Any) -> list[Any]:
    """Members with their scores; RESP2 gives them flat, RESP3 in pairs."""
    if reply and not isinstance(reply[0], list | tuple):
        return list(zip(reply[::2], reply[1::2], strict=True))
    return list(reply)


def _score(reply: Any) -> float | None:
    first = reply[0] if reply and isinstance(reply[0], list | tuple) else reply
    return float(first[1]) if first else None


async def read_names(commands: Commands, key: str, most: int = 0) -> list[str]:
    """The members of a sorted set, lowest first; at most so many, or all (0)."""
    return [_text(name) for name in await commands.execute("ZRANGE", key, 0, most - 1)]


# ---------------------------------------------------------------------- streams


async def add_entry(commands: Commands, key: str, *fields: Arg) -> bytes:
    """Add an entry to a stream; gives its id."""
    return cast("bytes", await commands.execute("XADD", key, "*", *fields))


async def trim_before(commands: Commands, key: str, oldest_ms: int, kept_ms: int) -> None:
    """Drop entries that are older than that by the server's clock; the stream itself goes after `kept_ms`."""
    await commands.pipeline([("XTRIM", key, "MINID", "~", max(0, oldest_ms)), ("PEXPIRE", key, kept_ms)])


async def read_first(commands: Commands, starts: Iterable[tuple[str, str]], most: int) -> list[Any]:
    """A page of each stream, oldest first; a start is an id, `(` and an id for what is beyond it, or `-`."""
    asks = [("XRANGE", key, start, "+", "COUNT", most) for key, start in starts]
    return await commands.pipeline(asks) if asks else []


async def read_last(commands: Commands, keys: Iterable[str], most: int) -> list[Any]:
    """A page of each stream, newest first."""
    asks = [("XREVRANGE", key, "+", "-", "COUNT", most) for key in keys]
    return await commands.pipeline(asks) if asks else []


async def read_next(
    commands: Commands, after: Mapping[str, str | bytes], most: int, wait_ms: int
) -> list[tuple[bytes, list[Any]]]:
    """The entries beyond these ids, by stream; waits so long if there are none."""
    waits = ("BLOCK", wait_ms) if wait_ms > 0 else ()
    reply = await commands.execute("XREAD", "COUNT", most, *waits, "STREAMS", *after, *after.values())
    return reply or []


async def read_types(commands: Commands, keys: Iterable[str]) -> list[bool]:
    """Whether each key may be read as a stream: it is one, or is not there."""
    return [not is_other_type(reply) for reply in await commands.pipeline([("XLEN", key) for key in keys])]


class StreamSize(NamedTuple):
    """How much a stream has, and ever had."""

    length: int = 0
    added: int = 0
    """Entries that were ever added, trimmed or not."""
    last: str = "0-0"
    """The highest id that was given."""


async def read_stream_size(commands: Commands, key: str) -> StreamSize | None:
    """The size of a stream, that of an empty one where there is none; None where it may not be seen."""
    (reply,) = await commands.pipeline([("XINFO", "STREAM", key)])
    if isinstance(reply, Exception):
        return StreamSize() if "no such key" in str(reply) else None
    told = _flat(reply)
    return StreamSize(
        int(told.get("length", 0)),
        int(told.get("entries-added", told.get("length", 0))),
        _text(told.get("last-generated-id", b"0-0")),
    )


def is_other_type(reply: Any) -> bool:
    """Whether a reply says that the key holds something of another type."""
    return isinstance(reply, Exception) and "WRONGTYPE" in str(reply)


def age_s(page: Sequence[Any], now_s: float) -> float:
    """Age of the first entry of a page, by the server's clock; 0 where there is none."""
    return max(0.0, now_s - entry_order(_text(page[0][0]))[0] / 1000) if page else 0.0


# ---------------------------------------------------------------------- inboxes


class Backlog(NamedTuple):
    """How full an inbox is."""

    waiting: int = 0
    """Entries that nobody was given yet."""
    lag_s: float = 0.0
    """Age of the oldest of those."""
    pending: int = 0
    """Entries that were given to somebody, and not yet answered."""


async def read_backlogs(
    commands: Commands, keys: Keys, schedulers: Sequence[str]
) -> dict[str, Backlog | Exception]:
    """How full these schedulers' inboxes are; an error for one that is not there, or may not be seen.

    Where several groups read an inbox, each is given every question: the one that is furthest counts.
    """
    replies = await commands.pipeline([("XINFO", "GROUPS", keys.inbox(name)) for name in schedulers])
    found = dict(zip(schedulers, replies, strict=True))
    there = {name: reply for name, reply in found.items() if not isinstance(reply, Exception)}
    groups = {name: _furthest([_flat(one) for one in reply]) for name, reply in there.items()}
    last = {name: _text(one.get("last-delivered-id", b"0-0")) for name, one in groups.items()}
    starts = [(keys.inbox(name), f"({id_}") for name, id_ in last.items()]
    pages = dict(zip(groups, await read_first(commands, starts, COUNTED), strict=True))
    now_s = await read_time(commands)
    backlogs: dict[str, Backlog | Exception] = {**found}
    for name, group in groups.items():
        page, lag = [] if isinstance(pages[name], Exception) else pages[name], group.get("lag")
        # The server does not know after entries were deleted or the last id was set.
        waiting = max(lag, 0) if type(lag) is int and (page or not lag) else len(page)
        backlogs[name] = Backlog(waiting, age_s(page, now_s), int(group.get("pending") or 0))
    return backlogs


async def read_all_backlogs(
    commands: Commands, namespace: str, shards: Sequence[int], schedulers: Sequence[str]
) -> dict[str, Backlog | Exception]:
    """The same over all these shards: what waits in any of them, and for how long at most."""
    found: dict[str, Backlog | Exception] = {}
    for shard in shards:
        for name, one in (await read_backlogs(commands, Keys(namespace, shard), schedulers)).items():
            before = found.get(name)
            if isinstance(before, Backlog) and isinstance(one, Backlog):
                lag_s = max(before.lag_s, one.lag_s)
                found[name] = Backlog(before.waiting + one.waiting, lag_s, before.pending + one.pending)
            elif not isinstance(before, Backlog):  # an inbox of some shard may not be there
                found[name] = one
    return found


def _furthest(groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return max(groups, key=lambda one: entry_order(_text(one.get("last-delivered-id", b"0-0"))), default={})


async def read_consumers(commands: Commands, inbox: str, scheduler: str) -> list[tuple[str, int, float]]:
    """Who reads an inbox, how many entries each has, and for how many seconds it has not asked for more.

    Nobody where this user may not see it.
    """
    replies = await commands.pipeline(
        [("XINFO", "CONSUMERS", inbox, group) for group in (scheduler, SHARED_GROUP)]
    )
    each = [_flat(one) for reply in replies if not isinstance(reply, Exception) for one in reply]
    return [(_text(one["name"]), int(one["pending"]), int(one["idle"]) / 1000) for one in each]


def _flat(pairs: Any, of: Any = lambda value: value) -> dict[str, Any]:
    """Names and values, as RESP2 (flat) or RESP3 (a map) gives them; nothing for what is neither."""
    if isinstance(pairs, dict):
        return {_text(name): of(value) for name, value in pairs.items()}
    if not isinstance(pairs, list | tuple):
        return {}
    return {_text(name): of(value) for name, value in zip(pairs[::2], pairs[1::2], strict=False)}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
