"""Keeps a ledger in line with the facts of all orchestrators.

    decision denied or cancelled, tool:unused ─▶ release
    tool:selected                             ─▶ executing
    tool:waits                                ─▶ renew: it is still wanted
    tool:post, tool:error                     ─▶ settle, with the cost that the tool reported
    usage, provider:error of a decision       ─▶ settle, with the cost of the request to an LLM
    tool:answered, of a call that waited for a person ─▶ its decision has a new owner (`reprieve`)
    a fact of another orchestrator            ─▶ nothing: it is counted
    nothing more from an orchestrator that died, or for far too long ─▶ orphan, unless it waits for a person

Every replica runs one keeper; the one that holds the lease works. It notes its position after it has applied
the facts before it. So a fact may be applied twice, which changes nothing, and none is left out: not when a
keeper dies, and not while there is none (as long as facts are kept). A reservation whose orchestrator died is
not given back: an orphan is paid at its estimate, since its call may have run.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final, Literal

from toolgate_bus.errors import TransportError
from toolgate_bus.facts.lease import Checkpoint, KeeperLease
from toolgate_bus.facts.service import FactsService
from toolgate_bus.ledger.money.ledger import ASTRAY, FallbackAccounts, Ledger, Step
from toolgate_bus.ledger.money.reprieve import Reprieve
from toolgate_bus.protocol.fact_events import (
    PROVIDER_ERROR,
    TOOL_ANSWERED,
    TOOL_ERROR,
    TOOL_POST,
    TOOL_SELECTED,
    TOOL_UNUSED,
    TOOL_WAITS,
    USAGE,
)
from toolgate_bus.protocol.money import is_amount
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import FactStream, Store

LEASE_S: Final = 3.0
RENEW_S: Final = 1.0
"""Age at which the lease is renewed within a step, in seconds."""
TICK_S: Final = 0.5
LOOK_PART: Final = 9
"""Least time between two looks for orphans, in times that the last one took: a tenth of the time."""
LOOK_S: Final = 0.1
GRACE_S: Final = 5.0
"""Seconds that an orchestrator must be missing from the roster to count as dead."""
AT_ONCE: Final = 200
MAX_ID: Final = 64
WARN_S: Final = 60.0
SWEEP_S: Final = 600.0
"""Seconds between two cleanups that take accounts of past windows off the list."""
AGAIN_S: Final = 120.0
"""Seconds that a request to read all facts again stands."""
MAX_SECONDS: Final = 3600.0
"""Seconds without news after which a reservation is an orphan, although its owner lives."""
_SIGNS: Final[Mapping[str, Literal["executing", "renew"]]] = {
    TOOL_SELECTED: "executing",
    TOOL_WAITS: "renew",
}
"""Steps for facts of calls that are under way."""
_ENDS: Final = ("settle", "release")
_log = get_logger("toolgate.ledger")


def step_of(
    fact: Mapping[str, Any],
    otherwise: Callable[[Mapping[str, Any]], FallbackAccounts | None] | None = None,
    cost_of: Callable[[Mapping[str, Any]], int | None] | None = None,
    costs_of: Callable[[Mapping[str, Any]], Mapping[str, int]] | None = None,
) -> Step | None:
    """Return the step that a fact asks for, if any. Facts come off a wire: they may contain anything.

    The step is by the orchestrator in whose stream the fact stood. `otherwise` returns the payment for a call
    without a reservation, `cost_of` the cost of a request to an LLM, `costs_of` what a call took of budgets
    that do not count money.
    """
    event, by = fact.get("event"), fact.get("orchestrator")
    decision = fact.get("id" if event == "decision" else "decision_id")
    if not isinstance(decision, str) or not 0 < len(decision) <= MAX_ID:
        return None
    who = by if isinstance(by, str) else ""
    if event == "decision":
        return Step("release", decision, by=who) if fact.get("outcome") in ("deny", "cancelled") else None
    if event in (TOOL_POST, TOOL_ERROR):
        told = fact.get("cost")
        cost = told if is_amount(told) else None
        return _settle(fact, decision, cost, who, otherwise, costs_of)
    if event in (USAGE, PROVIDER_ERROR) and cost_of is not None:
        spent = cost_of(fact)
        if event == PROVIDER_ERROR and spent is None:
            return Step("release", decision, by=who)
        return _settle(fact, decision, spent, who, otherwise, costs_of)
    if event == TOOL_UNUSED:
        return Step("release", decision, by=who)
    what = _SIGNS.get(event) if isinstance(event, str) else None
    return None if what is None else Step(what, decision, by=who)


def _settle(
    fact: Mapping[str, Any],
    decision: str,
    cost: int | None,
    by: str,
    otherwise: Callable[[Mapping[str, Any]], FallbackAccounts | None] | None,
    costs_of: Callable[[Mapping[str, Any]], Mapping[str, int]] | None,
) -> Step:
    charged = otherwise(fact) if otherwise is not None else None
    return Step("settle", decision, cost, by, charged, costs_of(fact) if costs_of is not None else {})


async def request_again(store: Store, book: str) -> bytes:
    """Ask the keeper of a book to read all facts again. The keeper notes the request in its checkpoint.

    The request has a key of its own, because the keeper may be writing its checkpoint at this very moment.
    """
    request = secrets.token_bytes(8)
    await store.put(f"{book}:again", request, AGAIN_S)
    return request


class SettlementWorker(FactsService):
    """The keeper of one book in one replica."""

    def __init__(
        self,
        ledger: Ledger,
        facts: FactStream,
        store: Store,
        *,
        book: str,
        replica: str,
        also: Callable[[Mapping[str, Any]], Any] | None = None,
        otherwise: Callable[[Mapping[str, Any]], FallbackAccounts | None] | None = None,
        cost_of: Callable[[Mapping[str, Any]], int | None] | None = None,
        costs_of: Callable[[Mapping[str, Any]], Mapping[str, int]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the keeper. `also` is called with each fact, and awaited if it returns an awaitable.

        `otherwise` returns the payment for a call without a reservation. `cost_of` returns the cost of a
        request to an LLM; without it, facts of requests settle nothing. `costs_of` returns what a call took
        of budgets that do not count money, by budget.
        """
        super().__init__(facts, _log)
        self._ledger, self._store, self._book, self._also, self._clock = ledger, store, book, also, clock
        self._lease = KeeperLease(store, f"{book}:keeper", replica, LEASE_S)
        self._otherwise, self._cost_of, self._costs_of = otherwise, cost_of, costs_of
        self._missing: dict[str, float] = {}
        self._reprieve = Reprieve(ledger, store, clock)
        self._resumed: int | None = None
        """Term of the lease in which this keeper went on from the checkpoint; None if it has to do so."""
        self._again: bytes | None = None
        self._behind_since: float | None = None
        self._look_at = 0.0
        self._warned = float("-inf")
        self._swept = float("-inf")

    async def give_up(self) -> None:
        """Go on from the checkpoint when the server is back."""
        self._resumed = None

    async def step(self) -> bool:
        """Read and apply facts, note the position, look for orphans. Return False if another one leads."""
        renewed = self._clock()
        if not await self._lease.renew():
            return False
        again = await self._store.get(f"{self._book}:again")
        resumes = self._resumed != self._lease.term or again != self._again
        if resumes:
            if await self._is_behind():
                await asyncio.sleep(LOOK_S)
                return True
            noted = Checkpoint.from_bytes(await self._store.get(f"{self._book}:read"))
            if again not in (None, noted.again):
                noted = Checkpoint()
            self._facts.resume(noted.positions, noted.numbers)
            self._again, self._resumed = again, self._lease.term
        facts = await self._facts.next()
        for at in range(0, len(facts), AT_ONCE):
            if self._clock() - renewed >= RENEW_S:  # a long backlog outlasts the lease
                renewed = self._clock()
                await self._lease.renew()
            await self._apply(facts[at : at + AT_ONCE])
        if facts or resumes:
            noted = Checkpoint(self._facts.positions, self._facts.numbers, self._again)
            await self._store.put(f"{self._book}:read", noted.to_bytes())
        begun = self._clock()
        if not facts or begun >= self._look_at:
            await self._look_for_orphans({str(fact.get("orchestrator")) for fact in facts})
            # A keeper that is behind has much to look at, and must not spend its time on that.
            self._look_at = self._clock() + max(TICK_S, LOOK_PART * (self._clock() - begun))
        if self._clock() - self._swept >= SWEEP_S:
            await self._ledger.balances()
            await self._ledger.sweep()
            self._swept = self._clock()
        return True

    async def _is_behind(self) -> bool:
        """Return whether reservations that a failover forgot still have to be written again first."""
        loss = await self._ledger.look()
        if loss is None or loss.why != "behind":
            self._behind_since = None
            return False
        if self._behind_since is None:
            self._behind_since = self._clock()
        return self._clock() - self._behind_since < GRACE_S

    async def _apply(self, facts: Sequence[Mapping[str, Any]]) -> None:
        for fact in facts:
            await self._tell(fact)
        steps: list[Step] = []
        for fact in facts:
            if fact.get("event") == TOOL_ANSWERED:  # from here on facts of the new owner count
                await self._take(steps)
                steps = []
                await self._reprieve.hand_over(fact)
            elif (step := step_of(fact, self._otherwise, self._cost_of, self._costs_of)) is not None:
                steps.append(step)
        await self._take(steps)

    async def _take(self, steps: Sequence[Step]) -> None:
        ends = {(one.decision, one.by) for one in steps if one.what in _ENDS}
        # What a call does before its end changes nothing any more: two of its three facts often come at once.
        due = [one for one in steps if one.what in _ENDS or (one.decision, one.by) not in ends]
        for settled in await self._ledger.take(due):
            metrics.count(metrics.BUDGET_SETTLEMENTS, self._book, settled.outcome)
            if settled.outcome in ASTRAY and self._clock() - self._warned >= WARN_S:
                self._warned = self._clock()
                _log.warning(
                    "a cost was reported without a reservation: toolgate budget list", outcome=settled.outcome
                )
            if settled.over:
                metrics.count(metrics.BUDGET_OVERRUNS, self._book)

    async def _tell(self, fact: Mapping[str, Any]) -> None:
        """Pass a fact to `also`. A fact that makes it fail is skipped, so that it does not come again."""
        try:
            told = self._also(fact) if self._also is not None else None
            if asyncio.iscoroutine(told):
                await told
        except TransportError:
            raise
        except Exception:  # noqa: BLE001 - see above: told with its traceback, and passed over
            metrics.count(metrics.BAD_MESSAGES, "orchestrator", "malformed")
            _log.exception("a fact could not be handled", event_of_fact=str(fact.get("event"))[:64])

    async def _look_for_orphans(self, telling: Set[str]) -> None:
        """Make the open reservations of dead orchestrators orphans: they are paid at their estimates.

        Orchestrators in `telling` still write facts, and are not dead.
        """
        held = await self._ledger.open()
        if not held:
            self._missing.clear()
            return
        alive, now = await self._facts.alive(), self._clock()
        gone = {one.owner for one in held} - alive - telling
        self._missing = {owner: self._missing.get(owner, now) for owner in gone}
        for one in held:
            dead = now - self._missing.get(one.owner, now) >= GRACE_S
            reason = "dead" if dead else "expired" if one.age_s >= MAX_SECONDS else None
            if reason is None or await self._reprieve.waits(one):
                continue
            if await self._ledger.orphan(one.decision):
                metrics.count(metrics.BUDGET_ORPHANS, self._book, reason)
                _log.warning("nobody reported the cost of a call", decision=one.decision, reason=reason)
