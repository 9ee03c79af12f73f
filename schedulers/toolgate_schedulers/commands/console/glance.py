"""Show a fleet at a glance: money against its limits over time, slots by tenant, what schedulers leave alone,
who waits for whom.

Decisions, vetoes and latency over time are those of `rates`. What is kept here is bounded: a fixed number of
samples, each of a few accounts.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from toolgate_bus.errors import TransportError
from toolgate_bus.fleet.books import BookAccount
from toolgate_bus.state.ejections import EjectionNote, left_alone

from toolgate_schedulers.commands.console.budgets import (
    ReadBook,
    describe_account,
    is_for_work,
    sort_accounts,
)
from toolgate_schedulers.commands.console.rates import HOUR_S

SAMPLE_S: Final = 5
MAX_ACCOUNTS: Final = 6
"""Number of accounts that a picture can tell apart."""
MAX_WAITS: Final = 50
MAX_ALONE: Final = 12
MAX_WHOM: Final = 3
ENFORCED: Final = "budget"

Row = dict[str, Any]


class MoneyHistory:
    """Used shares of a few accounts over the last hour. Times are seconds since the epoch."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, dict[str, float]]] = deque(maxlen=HOUR_S // SAMPLE_S)
        self._now: list[Row] = []

    async def run(self, read: Callable[[], Awaitable[Sequence[ReadBook]]]) -> None:
        """Take a sample every `SAMPLE_S` seconds, until cancelled; none while the bus is away."""
        while True:
            with suppress(TransportError):
                self.add(await read(), time.time())
            await asyncio.sleep(SAMPLE_S)

    def add(self, books: Iterable[ReadBook], now: float) -> None:
        """Take a sample of the accounts to show: those with a limit; of sessions only if alone."""
        found = [(one, read) for read in books if read.book.name == ENFORCED for one in _limited(read)]
        shown = [describe_account(one, read.now) for one, read in found[:MAX_ACCOUNTS]]
        self._now = [{name: one[name] for name in ("account", "used", "spent", "limit")} for one in shown]
        self._samples.append((now, {one["account"]: one["used"] for one in shown}))

    def over(self, since: float, span: float, points: int) -> list[Row]:
        """Return the accounts of the last sample, each with the used share at each of `points` points."""
        series: dict[str, list[float | None]] = {one["account"]: [None] * points for one in self._now}
        for at, used in self._samples:
            place = int((at - since) // span)
            if 0 <= place < points:
                for name in series.keys() & used.keys():
                    series[name][place] = used[name]
        return [{**one, "series": series[one["account"]]} for one in self._now]


def describe_pools(queues: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the pools of all schedulers, with their slots by tenant."""
    names = ("name", "most", "in_use", "waits", "tenants")
    return [
        {"scheduler": queue["scheduler"], **{name: pool[name] for name in names}}
        for queue in queues
        for pool in queue["pools"]
    ]


def list_alone(notes: Iterable[EjectionNote], now: float) -> tuple[list[Row], int]:
    """Return what schedulers leave alone at a time, and the number of those left out."""
    found = left_alone(notes, now)
    rows = [
        {"of": one.of, "scheduler": one.scheduler, "words": one.words, "for_s": round(one.until - now, 1)}
        for one in found[-MAX_ALONE:]
    ]
    return rows, len(found) - len(rows)


def list_waits(
    queues: Iterable[Mapping[str, Any]],
    held: Iterable[Mapping[str, Any]],
    agents: Sequence[Mapping[str, Any]],
) -> tuple[list[Row], int]:
    """Return who waits for whom, the longest known waits first, and the number of those left out."""
    rows = [
        *(
            _wait_for_slot(pool, call)
            for queue in queues
            for pool in queue["pools"]
            for call in pool["waiting"]
        ),
        *(_wait_for_person(call) for call in held),
        *(_wait_for_agent(one, agents) for one in agents if one["doing"].startswith("delegating ")),
        *(_wait_for_operator(one) for one in agents if one["paused"] and not one["stopped"]),
    ]
    rows.sort(key=lambda row: -(row["for_s"] or 0.0))
    return rows[:MAX_WAITS], len(rows[MAX_WAITS:])


def _limited(read: ReadBook) -> list[BookAccount]:
    """Return the accounts with a limit; those of single pieces of work only where there are no others."""
    limited = [one for one in sort_accounts(read.book, read.now) if one.limit is not None]
    return [one for one in limited if not is_for_work(one)] or limited


def _wait_for_slot(pool: Mapping[str, Any], call: Mapping[str, Any]) -> Row:
    holders = Counter(one["agent"] or one["tenant"] or "an agent" for one in pool["held"])
    whom = [f"{name} ({count})" if count > 1 else name for name, count in holders.most_common(MAX_WHOM)]
    if pool["most"] == 0:
        whom = ["an operator"]
    row = _row(call, call["tool"], f"a slot of {pool['name']}", whom, call["for_s"])
    return {**row, "more": 0 if pool["most"] == 0 else len(holders) - len(whom)}


def _wait_for_person(call: Mapping[str, Any]) -> Row:
    return _row(call, call["tool_name"], "an answer", ["a person"])


def _wait_for_agent(one: Mapping[str, Any], agents: Sequence[Mapping[str, Any]]) -> Row:
    below = [other["agent"] or "an agent" for other in agents if other["parent"] == one["session"]]
    asked = below or [one["doing"].partition(" ")[2]]
    row = _row(one, "delegate", "its agent", asked[:MAX_WHOM])
    return {**row, "more": len(asked[MAX_WHOM:])}


def _wait_for_operator(one: Mapping[str, Any]) -> Row:
    return _row(one, one["doing"], "the end of a pause", ["an operator"])


def _row(
    who: Mapping[str, Any], call: str, wait: str, whom: Sequence[str], for_s: float | None = None
) -> Row:
    about = {"agent": who["agent"], "session": who["session"]}
    return {**about, "call": call, "for": wait, "whom": whom, "more": 0, "for_s": for_s}
