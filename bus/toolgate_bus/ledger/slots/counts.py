"""Reads how the pools of queues for slots stand on a server, and sums of past requests.

`queue_sums.lua` counts; this module only reads. Pools are those of the configuration: a pool with a `key` is
the sum of its keys. The values may change between two reads of one look.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from toolgate_bus.errors import Refusal
from toolgate_bus.ledger.slots.queue import MAX_LIMIT, as_configured
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry.definitions import SLOW
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.storage.reads import (
    count_sets,
    read_hash,
    read_lines,
    read_rows,
    read_set,
    read_sets,
    read_time,
)

MAX_POOLS: Final = 2000
"""Maximum number of pools that are read; each key counts as one."""
_MICROS: Final = 1e6
_SUM: Final = "sum"


class PoolState(NamedTuple):
    """State of a pool."""

    waiting: int = 0
    in_use: int = 0
    limit: int = 0
    oldest_s: float = 0.0
    """Seconds that the longest waiting request has waited."""


@dataclass(slots=True)
class PoolSums:
    """Sums of past requests, since the server knows of the pools."""

    waited: dict[str, list[float]] = field(default_factory=dict)
    """Number of requests by pool and waiting time, in the buckets of SLOW, and their seconds together."""
    held: dict[str, list[float]] = field(default_factory=dict)
    unserved: dict[tuple[str, str], int] = field(default_factory=dict)
    """Number of requests that got no slot, by pool and reason (expired, withdrawn)."""
    lapsed: dict[str, int] = field(default_factory=dict)
    used: dict[tuple[str, str], float] = field(default_factory=dict)
    """Seconds of use, by pool and tenant."""
    weight: dict[tuple[str, str], float] = field(default_factory=dict)


async def read_pools(commands: Commands, namespace: str, scheduler: str) -> dict[str, PoolState]:
    """Return the state of a scheduler's pools, by name. Raises TransportError."""
    prefix = queue_prefix(namespace, scheduler)
    with refuse_foreign(prefix):
        return await _read_pools(commands, prefix)


async def _read_pools(commands: Commands, prefix: str) -> dict[str, PoolState]:
    every = await read_set(commands, f"{prefix}:pools")
    names = [name.decode("utf-8", "replace") for name in every[:MAX_POOLS]]
    limits = await read_rows(commands, [f"{prefix}:p:{name}" for name in names], "limit", "ruled", "adapted")
    in_use = await count_sets(commands, [f"{prefix}:h:{name}" for name in names])
    levels = await read_sets(commands, [f"{prefix}:v:{name}" for name in names])
    lines = [f"{prefix}:a:{name}:{level}" for name, own in zip(names, levels, strict=True) for level in own]
    found = iter(await read_lines(commands, lines))
    now = await read_time(commands)
    states = []
    for row, used, own in zip(limits, in_use, levels, strict=True):
        waiting = [next(found) for _ in own]
        since = min((first for _, first in waiting if first is not None), default=now)
        states.append(PoolState(sum(size for size, _ in waiting), used, _limit(row), max(0.0, now - since)))
    return add_pools(zip(names, states, strict=True))


async def read_sums(commands: Commands, namespace: str, scheduler: str) -> PoolSums:
    """Return the sums of past requests to a scheduler. Raises TransportError."""
    return sort_sums(await read_hash(commands, f"{queue_prefix(namespace, scheduler)}:sums"))


def add_pools(pools: Iterable[tuple[str, PoolState]]) -> dict[str, PoolState]:
    """Add the pools of each key (`browser/example.org`) up to the configured pools."""
    found: dict[str, PoolState] = {}
    for name, one in pools:
        base = as_configured(name)
        other = found.get(base, PoolState())
        found[base] = PoolState(
            other.waiting + one.waiting,
            other.in_use + one.in_use,
            other.limit + one.limit,
            max(other.oldest_s, one.oldest_s),
        )
    return found


def sort_sums(fields: Mapping[str, bytes]) -> PoolSums:
    """Read the sums as they stand on the server. Malformed fields are skipped."""
    sums = PoolSums()
    for name, raw in fields.items():
        what, _, rest = name.partition(":")
        part, _, pool = rest.partition(":")
        pool, _, tenant = pool.partition(":")
        try:
            number = float(raw)
        except ValueError:
            continue
        if what in ("waited", "held"):
            _add_duration(sums.waited if what == "waited" else sums.held, pool, part, number)
        elif what in ("expired", "withdrawn"):
            sums.unserved[pool, what] = int(number)
        elif what == "lapsed":
            sums.lapsed[pool] = int(number)
        elif what == "used":
            sums.used[pool, tenant] = number / _MICROS
        elif what == "weight":
            sums.weight[pool, tenant] = number
    return sums


def _add_duration(rows: dict[str, list[float]], pool: str, part: str, number: float) -> None:
    row = rows.setdefault(pool, [0.0] * (len(SLOW) + 2))
    if part == _SUM:
        row[-1] = number / _MICROS
    elif part.isdecimal() and 0 < int(part) <= len(SLOW) + 1:
        row[int(part) - 1] = number


def _limit(row: Sequence[bytes | None]) -> int:
    configured, *others = (int(float(raw)) if raw else None for raw in row)
    return min(configured or 0, *(MAX_LIMIT if other is None else other for other in others))


def queue_prefix(namespace: str, scheduler: str) -> str:
    """Return the prefix of the keys of a scheduler's queue."""
    return f"{Keys(namespace).store_key('slots')}:{scheduler}"


@contextmanager
def refuse_foreign(prefix: str) -> Iterator[None]:
    """Raise Refusal if the values on the server cannot be read as a queue."""
    try:
        yield
    except (LookupError, OverflowError, ValueError) as error:
        raise Refusal(
            f"{prefix}: its content was not written by a scheduler `slots` ({error!r}): look at "
            "those keys, and delete them, or use another name or namespace"
        ) from error
