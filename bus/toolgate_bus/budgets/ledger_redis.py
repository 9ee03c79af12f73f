"""The ledger on a Redis or Valkey server, and its twin in memory.

Every step is one script run by the server (`lua/`), and may be repeated.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from toolgate_bus.budgets.ledger import (
    ASTRAY,
    Account,
    Balance,
    Ledger,
    Offer,
    OpenReservation,
    Outcome,
    Reservation,
    SettlementResult,
    Status,
    Step,
    check_amount,
)
from toolgate_bus.budgets.ledger_rules import LedgerRules
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Commands, override
from toolgate_bus.transport.redis.reads import (
    read_fields,
    read_rows,
    read_scores,
    read_set,
    read_time,
    remove_from_set,
    write_fields,
)
from toolgate_bus.transport.redis.scripts import Script

DENIED_MS: Final = 600_000
"""How long a denial is remembered: longer than a question may wait anywhere."""
TOMBSTONE_MS: Final = 600_000
"""The same for a decision that was over before it held money."""
KEPT_MS: Final = 2 * 3_600_000
"""How long what was settled is remembered: twice as long as facts are kept, which may come again."""
TAKING: Final = Script(__package__, "ledger.lua", "ledger_taking.lua", header="#!lua\n")
GIVING: Final = Script(__package__, "ledger.lua", "ledger_giving.lua", header="#!lua flags=allow-oom\n")
_log = get_logger("toolgate.ledger")


class RedisLedger(Ledger):
    """`Ledger` on a server; `book` keeps several apart, such as that of shadows."""

    def __init__(self, commands: Commands, namespace: str, book: str = "budget") -> None:
        self._commands = commands
        self._prefix = Keys(namespace).store_key(book)

    @override
    async def reserve(
        self, decision: str, phase: int, offers: Sequence[Offer], accounts: Sequence[Account], owner: str
    ) -> Reservation:
        asked = [
            word
            for offer in offers
            for word in (offer.name, check_amount(offer.amount), check_amount(offer.headroom))
        ]
        words = (phase, owner, DENIED_MS, *_words(accounts), *asked)
        status, name, amount, short, left = await self._run(TAKING, "reserve", decision, *words)
        return Reservation(
            cast("Status", status.decode()),
            name.decode("utf-8", "replace"),
            int(amount),
            short.decode("utf-8", "replace").rpartition(":")[0],
            int(left),
        )

    @override
    async def mark_executing(self, decision: str) -> None:
        await self._run(GIVING, *_step_words(Step("executing", decision)))

    @override
    async def settle(self, decision: str, actual: int | None) -> SettlementResult:
        return _read_settlement(await self._run(GIVING, *_step_words(Step("settle", decision, actual))))

    @override
    async def release(self, decision: str) -> None:
        await self._run(GIVING, *_step_words(Step("release", decision)))

    @override
    async def take(self, steps: Sequence[Step]) -> list[SettlementResult]:
        if not steps:
            return []
        asked = [GIVING.command(self._prefix, words=tuple(_step_words(step))) for step in steps]
        replies = await self._commands.pipeline(asked)
        settled = [
            await self._again(step) if isinstance(reply, Exception) else _read_settlement(reply)
            for step, reply in zip(steps, replies, strict=True)
        ]
        return [one for one in settled if one.outcome != "done"]

    async def _again(self, step: Step) -> SettlementResult:
        """Take a step whose script was not loaded, or whose outcome is unknown."""
        try:
            return _read_settlement(await self._run(GIVING, *_step_words(step)))
        except ConfigError as error:
            if "another type" not in str(error):
                raise
            # Somebody wrote over a key of the book: this step fails for ever, and must not stop the others.
            _log.error("a key of the ledger is not the ledger's", decision=step.decision, error=str(error))
            return SettlementResult("unplaced")

    @override
    async def claim(self, decision: str, owner: str, by: str) -> bool:
        return bool(await self._run(GIVING, "claim", decision, TOMBSTONE_MS, KEPT_MS, owner, by))

    @override
    async def astray(self) -> dict[str, int]:
        found = await read_fields(self._commands, f"{self._prefix}:astray", *ASTRAY)
        return {name: many for name, raw in zip(ASTRAY, found, strict=True) if (many := _number(raw))}

    @override
    async def orphan(self, decision: str) -> bool:
        return bool(await self._run(GIVING, "orphan", decision, TOMBSTONE_MS, KEPT_MS, ""))

    @override
    async def charge(self, event: str, amount: int, accounts: Sequence[Account]) -> bool:
        words = (check_amount(amount), KEPT_MS, *_words(accounts))
        return bool(await self._run(TAKING, "charge", event, *words))

    @override
    async def open(self) -> list[OpenReservation]:
        pairs = await read_scores(self._commands, f"{self._prefix}:open")
        records = [f"{self._prefix}:r:{name}" for name, _ in pairs]
        found = await read_rows(self._commands, records, "owner", "exec")
        now = await read_time(self._commands)
        return [
            OpenReservation(
                name, (owner or b"").decode("ascii", "replace"), now - since / 1000, running == b"1"
            )
            for (name, since), (owner, running) in zip(pairs, found, strict=True)
        ]

    async def balances(self) -> list[Balance]:
        """Every account, by key; those whose time is over are dropped from the list."""
        places = await read_set(self._commands, f"{self._prefix}:accounts")
        names = ("limit", "spent", "reserved", "overruns", "orphans")
        accounts = [f"{self._prefix}:a:".encode() + place for place in places]
        rows = await read_rows(self._commands, accounts, *names)
        found, gone = [], []
        for place, values in zip(places, rows, strict=True):
            if values[0] is None:
                gone.append(place)
                continue
            key, _, window = place.decode("utf-8", "replace").rpartition(":")
            limit, *sums = map(_number, values)
            found.append(Balance(key, int(window or 0), None if limit < 0 else limit, *sums))
        await remove_from_set(self._commands, f"{self._prefix}:accounts", gone)
        return found

    @override
    async def forget(self, key: str) -> int:
        places = [
            place
            for place in await read_set(self._commands, f"{self._prefix}:accounts")
            if place.decode("utf-8", "replace").rpartition(":")[0] == key
        ]
        accounts = [f"{self._prefix}:a:".encode() + place for place in places]
        await write_fields(self._commands, accounts, spent=0, overruns=0, orphans=0)
        return len(places)

    async def _run(self, script: Script, *words: str | int) -> Any:
        return await script.run(self._commands, self._prefix, words=words)


@dataclass(slots=True)
class MemoryLedger(Ledger):
    """`Ledger` in this process; for tests of schedulers."""

    book: LedgerRules = field(default_factory=LedgerRules)

    @override
    async def reserve(
        self, decision: str, phase: int, offers: Sequence[Offer], accounts: Sequence[Account], owner: str
    ) -> Reservation:
        return self.book.reserve(decision, phase, offers, accounts, owner, time.time())

    @override
    async def mark_executing(self, decision: str) -> None:
        self.book.mark_executing(decision)

    @override
    async def settle(self, decision: str, actual: int | None) -> SettlementResult:
        return self.book.settle(decision, actual, time.time())

    @override
    async def release(self, decision: str) -> None:
        self.book.release(decision, time.time())

    @override
    async def take(self, steps: Sequence[Step]) -> list[SettlementResult]:
        settled = [self.book.take(step, time.time()) for step in steps]
        return [one for one in settled if one.outcome != "done"]

    @override
    async def claim(self, decision: str, owner: str, by: str) -> bool:
        return self.book.claim(decision, owner, by)

    @override
    async def astray(self) -> dict[str, int]:
        return dict(self.book.strays)

    @override
    async def orphan(self, decision: str) -> bool:
        return self.book.orphan(decision)

    @override
    async def charge(self, event: str, amount: int, accounts: Sequence[Account]) -> bool:
        return self.book.charge(event, amount, accounts, time.time())

    @override
    async def open(self) -> list[OpenReservation]:
        return self.book.open(time.time())

    @override
    async def balances(self) -> list[Balance]:
        return self.book.balances()

    @override
    async def forget(self, key: str) -> int:
        return self.book.forget(key)


def _step_words(step: Step) -> list[str | int]:
    words: list[str | int] = [step.what, step.decision, TOMBSTONE_MS, KEPT_MS, step.by]
    if step.what == "settle":
        words.append(-1 if step.cost is None else check_amount(step.cost))
        other = step.otherwise
        words += [-1, 0] if other is None else [check_amount(other.amount), *_words(other.accounts)]
    return words


def _read_settlement(reply: Any) -> SettlementResult:
    outcome, amount, over = reply
    return SettlementResult(cast("Outcome", outcome.decode()), int(amount), int(over))


def _words(accounts: Sequence[Account]) -> list[str | int]:
    words: list[str | int] = [len(accounts)]
    for one in accounts:
        limit = -1 if one.limit is None else check_amount(one.limit)
        words += [one.key, limit, one.window_s, one.keep_s * 1000]
    return words


def _number(raw: bytes | None) -> int:
    """A number that the script wrote; 0 for what it cannot have written."""
    sign, digits = (-1, raw[1:]) if raw and raw[:1] == b"-" else (1, raw or b"")
    return sign * int(digits) if digits.isdigit() and len(digits) < 20 else 0
