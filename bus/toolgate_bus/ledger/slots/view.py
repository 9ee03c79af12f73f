"""Reads the state of a queue for slots, call by call: slots and their times, places, reasons for the wait.

It orders the calls by the rules of `rules`. The values may change between two reads of one look. At
most MAX_SHOWN calls of a class are read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from toolgate_bus.ledger.slots.counts import MAX_POOLS, queue_prefix, refuse_foreign
from toolgate_bus.ledger.slots.lines import Waiter
from toolgate_bus.ledger.slots.queue import MAX_NEEDS, SEPARATOR, Need, Request, as_configured
from toolgate_bus.ledger.slots.rules import QueueRules
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.storage.reads import (
    read_hashes,
    read_places,
    read_rows,
    read_set,
    read_sets,
    read_time,
)

MAX_SHOWN: Final = 1000


@dataclass(frozen=True, slots=True)
class QueuedCall:
    """A call that has a slot of a pool, or waits for one."""

    id: str
    """Id of the call's decision."""
    tool: str
    agent: str
    session: str
    tenant: str
    weight: float
    level: int
    for_s: float
    """Seconds since it got the slot, or since it waits."""
    fence: int = 0
    """Number of the grant, for a call that has a slot."""
    place: int = 0
    """Place in the queue, for a call that waits; 1 is next."""
    expected_s: float | None = None
    """Expected further wait in seconds, if slots are kept for the average time."""
    why: str = ""
    """Reason why the call waits."""


@dataclass(frozen=True, slots=True)
class QueuedPool:
    """State of a pool; each key is one (`browser/example.org`)."""

    name: str
    limit: int
    """Configured limit."""
    ruled: int | None
    """Limit that an operator set for this key or for each key; 0 gives no more slots."""
    adapted: int | None
    """Limit that the tool's own errors led to."""
    average_s: float
    held: tuple[QueuedCall, ...]
    """Calls that have a slot, the oldest first."""
    waiting: tuple[QueuedCall, ...]
    """Calls that wait, in the order in which they would be served now."""

    @property
    def most(self) -> int:
        """Maximum number of slots in use at this moment."""
        return min(one for one in (self.limit, self.ruled, self.adapted) if one is not None)


async def read_queue(commands: Commands, namespace: str, scheduler: str) -> list[QueuedPool]:
    """Return all pools of a scheduler with calls or limits, by name. Raises TransportError."""
    prefix = queue_prefix(namespace, scheduler)
    with refuse_foreign(prefix):
        return await _read_queue(commands, prefix)


async def _read_queue(commands: Commands, prefix: str) -> list[QueuedPool]:
    every = await read_set(commands, f"{prefix}:pools")
    names = [name.decode("utf-8", "replace") for name in every[:MAX_POOLS]]
    rows = await read_rows(
        commands, [f"{prefix}:p:{name}" for name in names], "limit", "ruled", "adapted", "average", "alone"
    )
    held = await read_sets(commands, [f"{prefix}:h:{name}" for name in names])
    levels = await read_sets(commands, [f"{prefix}:v:{name}" for name in names])
    lines = [(name, level) for name, own in zip(names, levels, strict=True) for level in own]
    tags = await read_places(commands, [f"{prefix}:t:{name}:{level}" for name, level in lines], MAX_SHOWN)
    ages = await read_places(commands, [f"{prefix}:a:{name}:{level}" for name, level in lines], MAX_SHOWN)
    ids = [*(id_ for own in held for id_ in own), *(entry[16:] for own in ages for entry, _ in own)]
    told = dict(zip(ids, await read_hashes(commands, [f"{prefix}:r:{id_}" for id_ in ids]), strict=True))
    now = await read_time(commands)
    rules = QueueRules()
    for (name, _), own_tags, own_ages in zip(lines, tags, ages, strict=True):
        by_tenant = {entry[16:]: tag for entry, tag in own_tags}
        for entry, since in own_ages:
            one = _waiter(entry[16:], told[entry[16:]], int(entry[:15]), since)
            if one is not None:
                rules.copy_line(name, one, by_tenant.get(one.line, float("inf")))
    by_name = {name: float(row[1]) for name, row in zip(names, rows, strict=True) if row[1]}
    found = []
    for name, row, own in zip(names, rows, held, strict=True):
        limit, ruled, adapted, average = (float(raw) if raw else None for raw in row[:4])
        whole = by_name.get(as_configured(name))
        if limit is None:  # only a limit for each key is set
            continue
        pool = QueuedPool(
            name,
            int(limit),
            min((int(one) for one in (ruled, whole) if one is not None), default=None),
            None if adapted is None else int(adapted),
            average or 0.0,
            tuple(sorted((_call(id_, told[id_], now) for id_ in own), key=lambda one: -one.for_s)),
            (),
        )
        alone = (row[4] or b"").decode("utf-8", "replace")
        found.append(_with_line(pool, alone, rules, told, now))
    return found


def _with_line(
    pool: QueuedPool, alone: str, rules: QueueRules, told: Mapping[str, Mapping[str, str]], now: float
) -> QueuedPool:
    """Return the same pool with its waiting calls."""
    rate = pool.average_s / pool.most if pool.most and pool.average_s else None
    waiting = []
    for place, id_ in enumerate(rules.list_waiting(pool.name, now), 1):
        others = [need.pool for need in rules.waiting[id_].request.needs if need.pool != pool.name]
        why = _why(pool, alone, others if place == 1 else [])
        expected = place * rate if rate is not None else None
        waiting.append(_call(id_, told[id_], now, place=place, expected_s=expected, why=why))
    return replace(pool, waiting=tuple(waiting))


def _why(pool: QueuedPool, alone: str, others: Sequence[str]) -> str:
    if pool.most == 0:
        return "an operator: it is drained" if pool.ruled == 0 else "a limit above 0"
    if alone:
        return "one that has it alone"
    free = len(pool.held) < pool.most
    return f"{' and '.join(others)} too" if free and others else "its turn"


def _waiter(id_: str, row: Mapping[str, str], number: int, aged: float) -> Waiter | None:
    """Return a waiting call in its place; None if it has ended meanwhile."""
    if row.get("state") != "waiting":
        return None
    count = min(int(row["n"]), MAX_NEEDS)
    needs = tuple(Need(row[f"p{i}"], 0, row[f"a{i}"] == "1") for i in range(1, count + 1))
    level, ageing_s = int(row["level"]), float(row["ageing"])
    request = Request(id_, needs, row["owner"], row["tenant"], float(row["weight"]), level, ageing_s)
    line, seat = row.get("line", request.tenant), float(row.get("seat") or number)
    return Waiter(request, number, float(row["since"]), float("inf"), number, line, seat, aged)


def _call(id_: str, row: Mapping[str, str], now: float, **more: Any) -> QueuedCall:
    tool, agent, session = (*row.get("about", "").split(SEPARATOR), "", "", "")[:3]
    began = float(row.get("at") or row.get("since") or now)
    fence, weight, level = (
        int(row.get("fence") or 0),
        float(row.get("weight") or 1),
        int(row.get("level") or 0),
    )
    for_s = max(0.0, now - began)
    return QueuedCall(id_, tool, agent, session, row.get("tenant", ""), weight, level, for_s, fence, **more)
