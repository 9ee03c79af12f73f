"""The ledger on a Redis or Valkey server.

Every step is one script run by the server (`lua/`), and may be repeated.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, cast

from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.ledger.money.epoch import ANY, LedgerEpoch, LedgerLoss, Why, read_epoch
from toolgate_bus.ledger.money.epoch_file import EpochFile
from toolgate_bus.ledger.money.epoch_watch import EpochWatch
from toolgate_bus.ledger.money.ledger import (
    ASTRAY,
    LOST,
    NO_AMOUNTS,
    Account,
    Addition,
    Balance,
    DecisionKind,
    Ending,
    Ledger,
    Offer,
    OpenReservation,
    Outcome,
    Reservation,
    SettlementResult,
    Step,
    check_amount,
)
from toolgate_bus.ledger.money.recovery import LedgerRecovery
from toolgate_bus.ledger.money.scripts import EPOCH, GIVING, RESET, TAKING
from toolgate_bus.ledger.money.words import (
    DENIED_MS,
    KEPT_MS,
    TOMBSTONE_MS,
    Charge,
    ReservationEnd,
    Restoration,
    account_words,
    offer_words,
    orphan_words,
    read_number,
    read_reservation,
    step_words,
)
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Commands, Durability, override
from toolgate_bus.transport.redis.client.scripts import Script
from toolgate_bus.transport.redis.storage.durable_writes import DurableReply, DurableWriter
from toolgate_bus.transport.redis.storage.reads import (
    read_fields,
    read_hash,
    read_rows,
    read_scores,
    read_set,
    read_time,
    remove_fields,
    remove_from_set,
)

MAX_ADDITIONS: Final = 500
"""Maximum number of accounts that one script adds to, or of decisions that it marks."""
_log = get_logger("toolgate.ledger")


class RedisLedger(Ledger):
    """`Ledger` on a server. `book` keeps several ledgers apart, such as the one of shadows."""

    def __init__(
        self, commands: Commands, namespace: str, book: str = "budget", file: EpochFile | None = None
    ) -> None:
        """Prepare the ledger; `file` keeps the memory of a watched ledger for the next process."""
        self._commands, self._file = commands, file
        self._prefix = Keys(namespace).store_key(book)
        self._epoch_key = f"{self._prefix}:epoch"
        self._watch: EpochWatch | None = None
        self._writer = ""
        self._idle: dict[str, int] = {}
        self._durable: DurableWriter | None = None

    @override
    def require_replicas(self, durability: Durability) -> None:
        mark = f"{self._prefix}:durable"
        self._durable = DurableWriter(self._commands, durability, "ledger", mark, self._doubt)

    @override
    async def check_replicas(self) -> None:
        if self._durable is not None:
            await self._durable.check()

    @override
    async def reserve(
        self, decision: str, phase: int, offers: Sequence[Offer], accounts: Sequence[Account], owner: str
    ) -> Reservation:
        return await self._ask("reserve", decision, phase, offers, accounts, owner)

    @override
    async def preview(
        self, decision: str, phase: int, offers: Sequence[Offer], accounts: Sequence[Account], owner: str
    ) -> Reservation:
        return await self._ask("preview", decision, phase, offers, accounts, owner)

    async def _ask(
        self,
        op: Literal["reserve", "preview"],
        decision: str,
        phase: int,
        offers: Sequence[Offer],
        accounts: Sequence[Account],
        owner: str,
    ) -> Reservation:
        amounts, may_exceed = [one.amounts for one in offers], [one.may_exceed for one in offers]
        told = account_words(accounts, amounts=amounts, may_exceed=may_exceed)
        words = (phase, owner, DENIED_MS, *told, *offer_words(offers))
        if self._watch is None:
            reply, short = await self._hold(op, decision, *words, 0, ANY, "", 0)
            return await self._unless(short, decision, read_reservation(reply))
        for _ in range(2):
            memory, known = self._watch.memory, self._confirmations
            if self._watch.waits or (not memory.is_whole and await self._watch.look() is not None):
                break
            reply, short = await self._hold(
                op, decision, *words, memory.decided, memory.id, memory.fresh, known
            )
            if reply[0] not in (b"lost", b"another", b"behind"):
                memory.meet(reply[6].decode("ascii", "replace"), int(reply[7]))
                answer = read_reservation(reply)
                held = Offer(answer.name, answer.amount, amounts=answer.amounts)
                if op == "reserve" and answer.status == "reserved":
                    step = Restoration(decision, phase, held, tuple(accounts), owner)
                    self._keep(reply[5], known, step)
                return await self._unless(short, decision, answer)
            if reply[0] == b"lost" or await self._watch.look() is not None:
                break
        return LOST

    async def _hold(self, op: str, *words: str | int | bytes) -> DurableReply:
        """Run the script, and wait for replicas if they are required."""
        if self._durable is None or op == "preview":
            return DurableReply(await self._run(TAKING, op, *words), None)
        command = TAKING.command(self._prefix, words=(op, *words, self._writer))
        try:
            return await self._durable.run(command, TAKING.text)
        except TransportError:
            self._doubt()
            raise

    async def _unless(self, short: TransportError | None, decision: str, answer: Reservation) -> Reservation:
        """Return the answer; if too few replicas have it, release the reservation and raise `short`."""
        if short is None or answer.status != "reserved":
            return answer
        try:
            await self.release(decision)
        except TransportError as error:  # the keeper does it, as soon as the record shows the denial
            told = str(error)
            _log.warning(
                "a reservation on too few replicas is not released yet", decision=decision, error=told
            )
        raise short

    @override
    async def mark_executing(self, decision: str) -> None:
        await self._take(Step("executing", decision))

    @override
    async def settle(
        self, decision: str, actual: int | None, costs: Mapping[str, int] = NO_AMOUNTS
    ) -> SettlementResult:
        return await self._take(Step("settle", decision, actual, costs=costs))

    @override
    async def release(self, decision: str) -> None:
        await self._take(Step("release", decision))

    @override
    async def take(self, steps: Sequence[Step]) -> list[SettlementResult]:
        if not steps:
            return []
        known = await self._name()
        asked = [GIVING.command(self._prefix, words=(*step_words(step), self._writer)) for step in steps]
        try:
            replies = await self._commands.pipeline(asked)
        except TransportError:
            self._doubt()  # some may be done
            raise
        settled = [
            await self._again(step) if isinstance(reply, Exception) else self._read(step, reply, known)
            for step, reply in zip(steps, replies, strict=True)
        ]
        return [one for one in settled if one.outcome != "done"]

    async def _take(self, step: Step) -> SettlementResult:
        known = await self._name()
        return self._read(step, await self._run(GIVING, *step_words(step)), known)

    async def _again(self, step: Step) -> SettlementResult:
        """Take a step whose script was not loaded, or whose outcome is unknown."""
        try:
            return await self._take(step)
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
        return {name: many for name, raw in zip(ASTRAY, found, strict=True) if (many := read_number(raw))}

    @override
    async def orphan(self, decision: str) -> bool:
        known = await self._name()
        done, number, reserved = await self._run(GIVING, *orphan_words(decision))
        self._keep(number, known, ReservationEnd(decision, reserved))
        return bool(done)

    @override
    async def charge(
        self, event: str, amount: int, accounts: Sequence[Account], amounts: Mapping[str, int] = NO_AMOUNTS
    ) -> bool:
        known, charged = await self._name(), Charge(event, check_amount(amount), tuple(accounts), amounts)
        done, number = await self._run(TAKING, *charged.words())
        self._keep(number, known, charged)
        return bool(done)

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
        """Return every account, by key. Accounts whose time is over are dropped from the list."""
        places = await read_set(self._commands, f"{self._prefix}:accounts")
        names = ("limit", "spent", "reserved", "overruns", "orphans", "unit")
        accounts = [f"{self._prefix}:a:".encode() + place for place in places]
        rows = await read_rows(self._commands, accounts, *names)
        found, gone = [], []
        for place, values in zip(places, rows, strict=True):
            if values[0] is None:
                gone.append(place)
                continue
            key, _, window = place.decode("utf-8", "replace").rpartition(":")
            limit, spent, reserved, overruns, orphans = map(read_number, values[:-1])
            most, unit = None if limit < 0 else limit, (values[-1] or b"").decode("utf-8", "replace")
            found.append(Balance(key, int(window or 0), most, spent, reserved, overruns, orphans, unit))
        await remove_from_set(self._commands, f"{self._prefix}:accounts", gone)
        return found

    @override
    async def reset(self, key: str, by: str = "") -> int:
        return int(await self._run(RESET, "reset", key, by))

    # ------------------------------------------------------------------ the epoch

    @override
    async def watch(self) -> None:
        self._watch = self._watch or EpochWatch(self, self._file)
        self._writer = self._watch.memory.writer
        await self._watch.begin()

    @override
    async def look(self) -> LedgerLoss | None:
        return None if self._watch is None else await self._watch.look()

    @override
    async def leave(self) -> None:
        if self._watch is not None:
            await self._watch.end()

    @override
    async def loss(self) -> LedgerLoss | None:
        names = ("lost", "lost_at")
        found = await read_fields(self._commands, self._epoch_key, *names)
        return read_epoch({name: raw for name, raw in zip(names, found, strict=True) if raw}).loss

    async def name(self) -> str:
        """Return the ledger's epoch; empty if nobody has changed anything in it."""
        (found,) = await read_fields(self._commands, self._epoch_key, "id")
        return read_epoch({"id": found}).id if found else ""

    @override
    async def mark_ended(self, endings: Mapping[str, Ending]) -> None:
        words = [word for each in endings.items() for word in each]
        for at in range(0, len(words), 2 * MAX_ADDITIONS):
            await self._run(EPOCH, "ended", KEPT_MS, *words[at : at + 2 * MAX_ADDITIONS])

    @override
    async def rebuild(self, additions: Sequence[Addition], newest: str) -> bool:
        words: list[str | int] = [newest]
        for one in additions[:MAX_ADDITIONS]:
            words += [f"{one.account}:{one.window}", check_amount(one.amount), one.keep_s * 1000]
        return bool(await self._run(EPOCH, "rebuild", *words))

    @override
    async def decide(self, kind: DecisionKind, by: str, reason: str = "", amount: int = 0) -> bool:
        return bool(await self._run(EPOCH, "decide", by, kind, reason, amount))

    async def read_epoch(self) -> LedgerEpoch:
        """Return the ledger's epoch and its numbers."""
        return read_epoch(await read_hash(self._commands, self._epoch_key))

    async def lose(self, epoch: str, why: Why, fresh: str, replaced: Sequence[str], by: str) -> None:
        """Implement `EpochPort.lose`."""
        await self._run(EPOCH, "lose", epoch, why, fresh, *replaced, writer=by)

    async def find(self, by: str) -> None:
        """Implement `EpochPort.find`."""
        await self._run(EPOCH, "find", "", writer=by)

    async def write_again(self, steps: Sequence[Any], by: str, number: int, epoch: str) -> int:
        """Implement `EpochPort.write_again`."""
        return await LedgerRecovery(self._commands, self._prefix, epoch, by).write_again(steps, number)

    @override
    async def sweep(self) -> None:
        counts = (await self.read_epoch()).counts
        idle = [f"w:{name}" for name, number in counts.items() if self._idle.get(name) == number]
        self._idle = dict(counts)
        own = f"w:{self._writer}"
        with suppress(ConfigError):  # an access rule of an older version may forbid it
            gone = [one for one in idle if one != own]
            marks = [f"a:{one.removeprefix('w:')}" for one in gone]
            await remove_fields(self._commands, self._epoch_key, [*gone, *marks])

    @property
    def _confirmations(self) -> int:
        return 0 if self._watch is None else self._watch.memory.confirmed

    async def _name(self) -> int:
        """Give an epoch to a ledger without one, so that a loss shows. Return the number of confirmations."""
        if self._watch is not None and not self._watch.memory.id:
            memory = self._watch.memory
            name, decided = await self._run(EPOCH, "begin", memory.fresh)
            memory.meet(name.decode("ascii", "replace"), read_number(decided))
        return self._confirmations

    def _keep(self, number: bytes, known: int, step: Any) -> None:
        """Remember an own change that was confirmed under this number; an empty number means no change."""
        if number and self._watch is not None:
            self._watch.keep(read_number(number), known, step)

    def _doubt(self) -> None:
        """Note that a command may have been done or not."""
        if self._watch is not None:
            self._watch.memory.is_doubtful = True

    def _read(self, step: Step, reply: Any, known: int) -> SettlementResult:
        outcome, amount, over, number, reserved = reply
        self._keep(number, known, ReservationEnd(step, reserved))
        return SettlementResult(cast("Outcome", outcome.decode()), int(amount), int(over))

    async def _run(self, script: Script, *words: str | int | bytes, writer: str | None = None) -> Any:
        by = self._writer if writer is None else writer
        return await script.run(self._commands, self._prefix, words=(*words, by), unknown=self._doubt)
