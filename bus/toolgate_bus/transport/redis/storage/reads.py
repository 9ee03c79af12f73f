"""Reads and writes of the server for other rooms: code above this folder spells no command of its protocol.

If a function returns one reply for each key, a reply may be the server's error: one key of another type must
not cost the others.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from toolgate_bus.protocol.keys import SHARED_GROUP, Keys
from toolgate_bus.transport.ports import Arg, Commands
from toolgate_bus.transport.redis.client.refusals import refusal_of
from toolgate_bus.transport.redis.clock import entry_order

PAGE: Final = 1000
COUNTED: Final = 1000
"""Maximum number of entries that are counted one by one if the server does not know how many wait."""

# ---------------------------------------------------------------------- the server itself


async def read_time(commands: Commands) -> float:
    """Return the server's clock, in seconds since the epoch."""
    seconds, micros = await commands.execute("TIME")
    return int(seconds) + int(micros) / 1e6


async def ping(commands: Commands) -> None:
    """Wait for a reply of the server. Raises TransportError."""
    await commands.execute("PING")


async def read_info(commands: Commands) -> str:
    """Return the server's report about itself; empty if this user may not ask."""
    (reply,) = await commands.pipeline([("INFO",)])
    return _text(reply) if isinstance(reply, bytes | str) else ""


async def read_config(commands: Commands, *names: str) -> dict[str, str]:
    """Return these settings of the server, without those that this user may not see."""
    replies = await commands.pipeline([("CONFIG", "GET", name) for name in names])
    found = [reply for reply in replies if not isinstance(reply, Exception) and reply]
    return {_text(reply[0]): _text(reply[1]) for reply in found}


async def read_replication(commands: Commands, near: str, *names: str) -> tuple[str, dict[str, str]]:
    """Return the replication report of that key's server, and these settings; empty if not shown."""
    asked = [("CONFIG", "GET", name) for name in names]
    _, info, *replies = await commands.pipeline([("GET", near), ("INFO", "replication"), *asked])
    found = [reply for reply in replies if not isinstance(reply, Exception) and reply]
    told = _text(info) if isinstance(info, bytes | str) else ""
    return told, {_text(reply[0]): _text(reply[1]) for reply in found}


async def find_keys(commands: Commands, pattern: str) -> AsyncIterator[list[bytes]]:
    """Yield pages of the keys that match, unordered, some perhaps twice. Raises TransportError."""
    cursor: Any = "0"
    while True:
        cursor, page = await commands.execute("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE)
        if page:
            yield page
        if cursor in (b"0", "0", 0):
            return


async def empty_streams(commands: Commands, keys: Sequence[bytes]) -> None:
    """Remove the entries of these streams; their consumer groups stay."""
    await commands.pipeline([("XTRIM", key, "MAXLEN", 0) for key in keys])


async def delete_keys(commands: Commands, keys: Sequence[bytes]) -> None:
    """Delete these keys, whatever they hold."""
    tagged: dict[bytes, list[bytes]] = {}
    for key in keys:  # in a cluster, servers share the keys by the part in braces
        tagged.setdefault(key.partition(b"}")[0], []).append(key)
    await commands.pipeline([("UNLINK", *some) for some in tagged.values()])


def literal(text: str) -> str:
    """Return a pattern that matches only this text."""
    return "".join("\\" + letter if letter in "*?[]^\\" else letter for letter in text)


async def read_sizes(commands: Commands, keys: Sequence[str]) -> list[int | None]:
    """Return the bytes that each key takes in the server's memory; None if this user may not ask."""
    replies = await commands.pipeline([("MEMORY", "USAGE", key) for key in keys])
    return [reply if type(reply) is int else None for reply in replies]


# ---------------------------------------------------------------------- sets, hashes, sorted sets


async def read_set(commands: Commands, key: str) -> list[bytes]:
    """Return the members of a set, sorted."""
    return sorted(await commands.execute("SMEMBERS", key))


async def remove_from_set(commands: Commands, key: str, members: Sequence[bytes]) -> None:
    """Remove these members from a set."""
    if members:
        await commands.execute("SREM", key, *members)


async def read_fields(commands: Commands, key: str, *names: str) -> list[bytes | None]:
    """Return these fields of a hash. Raises TransportError."""
    return cast("list[bytes | None]", await commands.execute("HMGET", key, *names))


async def read_rows(commands: Commands, keys: Sequence[Arg], *names: str) -> list[list[bytes | None]]:
    """Return these fields of each hash. Raises TransportError."""
    return await ask_all(commands, [("HMGET", key, *names) for key in keys])


async def read_hashes(commands: Commands, keys: Sequence[str]) -> list[dict[str, str]]:
    """Return each hash as a whole; empty if it is missing or no hash."""
    replies = await commands.pipeline([("HGETALL", key) for key in keys]) if keys else []
    return [flat(reply, _text) for reply in replies]


async def put_field(commands: Commands, key: str, name: str, value: bytes) -> None:
    """Set one field of a hash. Raises TransportError."""
    await commands.execute("HSET", key, name, value)


async def read_hash(commands: Commands, key: str) -> dict[str, bytes]:
    """Return a hash as a whole. Raises TransportError."""
    return flat(await commands.execute("HGETALL", key))


async def remove_fields(commands: Commands, key: str, names: Sequence[str]) -> None:
    """Remove these fields from a hash. Raises TransportError."""
    if names:
        await commands.execute("HDEL", key, *names)


async def add_counts(commands: Commands, key: str, counts: Mapping[str, int], kept_ms: int) -> None:
    """Add to these fields of a hash, which expires `kept_ms` after the last call. Raises TransportError."""
    adds = [("HINCRBY", key, name, count) for name, count in counts.items() if count]
    await ask_all(commands, [*adds, ("PEXPIRE", key, kept_ms)] if adds else [])


async def read_values(commands: Commands, *keys: str) -> list[bytes | None]:
    """Return these values, in one round trip. Raises TransportError."""
    return await ask_all(commands, [("GET", key) for key in keys])


async def read_scores(commands: Commands, key: str) -> list[tuple[str, float]]:
    """Return the members of a sorted set with their scores, lowest first."""
    reply = await commands.execute("ZRANGE", key, 0, -1, "WITHSCORES")
    return [(name.decode("ascii", "replace"), float(score)) for name, score in _pairs(reply)]


async def read_places(commands: Commands, keys: Sequence[str], most: int) -> list[list[tuple[str, float]]]:
    """Return the first members of each sorted set, with their scores. Raises TransportError."""
    replies = await ask_all(commands, [("ZRANGE", key, 0, most - 1, "WITHSCORES") for key in keys])
    return [[(_text(name), float(score)) for name, score in _pairs(reply)] for reply in replies]


async def read_lines(commands: Commands, keys: Sequence[str]) -> list[tuple[int, float | None]]:
    """Return the size and the lowest score of each sorted set. Raises TransportError."""
    asks = [ask for key in keys for ask in (("ZCARD", key), ("ZRANGE", key, 0, 0, "WITHSCORES"))]
    replies = iter(await ask_all(commands, asks))
    return [(size, _score(first)) for size, first in zip(replies, replies, strict=True)]


async def read_sets(commands: Commands, keys: Sequence[str]) -> list[list[str]]:
    """Return the members of each set. Raises TransportError."""
    replies = await ask_all(commands, [("SMEMBERS", key) for key in keys])
    return [sorted(map(_text, reply)) for reply in replies]


async def count_sets(commands: Commands, keys: Sequence[str]) -> list[int]:
    """Return the number of members of each set. Raises TransportError."""
    return await ask_all(commands, [("SCARD", key) for key in keys])


async def ask_all(commands: Commands, asks: Sequence[Sequence[Arg]]) -> list[Any]:
    """Return the replies to all commands, in one round trip. Raises TransportError if one is an error."""
    replies = await commands.pipeline(asks) if asks else []
    for ask, reply in zip(asks, replies, strict=True):
        if isinstance(reply, Exception):
            raise refusal_of(ask, reply) from reply
    return list(replies)


def _pairs(reply: Any) -> list[Any]:
    """Return members with their scores; RESP2 sends them flat, RESP3 in pairs."""
    if reply and not isinstance(reply[0], list | tuple):
        return list(zip(reply[::2], reply[1::2], strict=True))
    return list(reply)


def _score(reply: Any) -> float | None:
    first = reply[0] if reply and isinstance(reply[0], list | tuple) else reply
    return float(first[1]) if first else None


async def read_names(commands: Commands, key: str, most: int = 0) -> list[str]:
    """Return the members of a sorted set, lowest first; at most `most`, or all (0)."""
    return [_text(name) for name in await commands.execute("ZRANGE", key, 0, most - 1)]


# ---------------------------------------------------------------------- streams


async def add_entry(commands: Commands, key: str, *fields: Arg) -> bytes:
    """Add an entry to a stream, and return its id."""
    return cast("bytes", await commands.execute("XADD", key, "*", *fields))


async def trim_before(commands: Commands, key: str, oldest_ms: int, kept_ms: int) -> None:
    """Drop entries older than `oldest_ms` by the server's clock; the stream expires after `kept_ms`."""
    await commands.pipeline([("XTRIM", key, "MINID", "~", max(0, oldest_ms)), ("PEXPIRE", key, kept_ms)])


async def read_first(commands: Commands, starts: Iterable[tuple[str, str]], most: int) -> list[Any]:
    """Return a page of each stream, oldest first.

    A start is an id, `(` and an id for the entries after it, or `-`.
    """
    asks = [("XRANGE", key, start, "+", "COUNT", most) for key, start in starts]
    return await commands.pipeline(asks) if asks else []


async def read_entries(commands: Commands, asks: Sequence[tuple[str, bytes]]) -> list[Any]:
    """Return the entry of each stream and id, in a page of its own; an empty page if it is gone."""
    return await commands.pipeline([("XRANGE", key, id_, id_, "COUNT", 1) for key, id_ in asks])


async def read_last(commands: Commands, keys: Iterable[str], most: int) -> list[Any]:
    """Return a page of each stream, newest first."""
    asks = [("XREVRANGE", key, "+", "-", "COUNT", most) for key in keys]
    return await commands.pipeline(asks) if asks else []


async def read_next(
    commands: Commands, after: Mapping[str, str | bytes], most: int, wait_ms: int
) -> list[tuple[bytes, list[Any]]]:
    """Return the entries after these ids, by stream; if there are none, wait up to `wait_ms`."""
    waits = ("BLOCK", wait_ms) if wait_ms > 0 else ()
    reply = await commands.execute("XREAD", "COUNT", most, *waits, "STREAMS", *after, *after.values())
    return reply or []


async def read_types(commands: Commands, keys: Iterable[str]) -> list[bool]:
    """Return for each key whether it can be read as a stream: it is one, or is missing."""
    return [not is_other_type(reply) for reply in await commands.pipeline([("XLEN", key) for key in keys])]


class StreamSize(NamedTuple):
    """Number of entries that a stream has, and ever had."""

    length: int = 0
    added: int = 0
    """Number of entries that were ever added, trimmed or not."""
    last: str = "0-0"
    """Highest id that was given."""


async def read_stream_size(commands: Commands, key: str) -> StreamSize | None:
    """Return the size of a stream, zero if it is missing; None if this user may not see it."""
    (reply,) = await commands.pipeline([("XINFO", "STREAM", key)])
    if isinstance(reply, Exception):
        return StreamSize() if "no such key" in str(reply) else None
    told = flat(reply)
    return StreamSize(
        int(told.get("length", 0)),
        int(told.get("entries-added", told.get("length", 0))),
        _text(told.get("last-generated-id", b"0-0")),
    )


def is_other_type(reply: Any) -> bool:
    """Return whether a reply says that the key holds another type."""
    return isinstance(reply, Exception) and "WRONGTYPE" in str(reply)


def age_s(page: Sequence[Any], now_s: float) -> float:
    """Return the age of a page's first entry in seconds, by the server's clock; 0 if there is none."""
    return max(0.0, now_s - entry_order(_text(page[0][0]))[0] / 1000) if page else 0.0


# ---------------------------------------------------------------------- inboxes


class Backlog(NamedTuple):
    """Fill level of an inbox."""

    waiting: int = 0
    """Number of entries that no replica was given yet."""
    lag_s: float = 0.0
    """Age of the oldest of those, in seconds."""
    pending: int = 0
    """Number of entries that a replica was given and has not answered yet."""


async def read_backlogs(
    commands: Commands, keys: Keys, schedulers: Sequence[str]
) -> dict[str, Backlog | Exception]:
    """Return the fill levels of these schedulers' inboxes; an error for one that is missing or hidden.

    If several groups read an inbox, each gets every question: the group that is furthest counts.
    """
    replies = await commands.pipeline([("XINFO", "GROUPS", keys.inbox(name)) for name in schedulers])
    found = dict(zip(schedulers, replies, strict=True))
    there = {name: reply for name, reply in found.items() if not isinstance(reply, Exception)}
    groups = {name: _furthest([flat(one) for one in reply]) for name, reply in there.items()}
    last = {name: _text(one.get("last-delivered-id", b"0-0")) for name, one in groups.items()}
    starts = [(keys.inbox(name), f"({id_}") for name, id_ in last.items()]
    pages = dict(zip(groups, await read_first(commands, starts, COUNTED), strict=True))
    now_s = await read_time(commands)
    backlogs: dict[str, Backlog | Exception] = {**found}
    for name, group in groups.items():
        page, lag = [] if isinstance(pages[name], Exception) else pages[name], group.get("lag")
        # The server does not know the lag after entries were deleted or the last id was set.
        waiting = max(lag, 0) if type(lag) is int and (page or not lag) else len(page)
        backlogs[name] = Backlog(waiting, age_s(page, now_s), int(group.get("pending") or 0))
    return backlogs


async def read_all_backlogs(
    commands: Commands, namespace: str, shards: Sequence[int], schedulers: Sequence[str]
) -> dict[str, Backlog | Exception]:
    """Return the same for all these shards together: sums of entries, and the longest wait."""
    found: dict[str, Backlog | Exception] = {}
    for shard in shards:
        for name, one in (await read_backlogs(commands, Keys(namespace, shard), schedulers)).items():
            before = found.get(name)
            if isinstance(before, Backlog) and isinstance(one, Backlog):
                lag_s = max(before.lag_s, one.lag_s)
                found[name] = Backlog(before.waiting + one.waiting, lag_s, before.pending + one.pending)
            elif not isinstance(before, Backlog):  # an inbox of some shard may be missing
                found[name] = one
    return found


def _furthest(groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return max(groups, key=lambda one: entry_order(_text(one.get("last-delivered-id", b"0-0"))), default={})


async def read_consumers(commands: Commands, inbox: str, scheduler: str) -> list[tuple[str, int, float]]:
    """Return the consumers of an inbox, each with its number of entries and its idle time in seconds.

    Empty if this user may not see them.
    """
    replies = await commands.pipeline(
        [("XINFO", "CONSUMERS", inbox, group) for group in (scheduler, SHARED_GROUP)]
    )
    each = [flat(one) for reply in replies if not isinstance(reply, Exception) for one in reply]
    return [(_text(one["name"]), int(one["pending"]), int(one["idle"]) / 1000) for one in each]


def flat(pairs: Any, of: Any = lambda value: value) -> dict[str, Any]:
    """Return names and values as RESP2 (flat) or RESP3 (a map) sends them; empty for anything else."""
    if isinstance(pairs, dict):
        return {_text(name): of(value) for name, value in pairs.items()}
    if not isinstance(pairs, list | tuple):
        return {}
    return {_text(name): of(value) for name, value in zip(pairs[::2], pairs[1::2], strict=False)}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
