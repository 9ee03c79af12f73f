"""The shipped scheduler `cost-aware`: budgets that hold, and the better of equivalent tools and agents.

    select ─▶ candidates: the call, its equivalents ─▶ in order of preference ─▶ reserve the first that
              every budget can hold ─▶ continue | modify | deny, with words that the LLM can use
    verify ─▶ the call that would run: reserve for it instead ─▶ continue | deny

With `admission` these two phases reserve nothing and only check the budgets. The phase `admit`, last,
reserves for the call that is about to run. Agents that do not ask in `admit` are reserved for as without
`admission`: agents of version 1 of the wire, and those that may not know yet that they must ask.

Without budgets nothing is reserved and nothing is denied; a call that costs nothing is not reserved for. A
delegation runs only if the expected cost of its agent is left, but reserves only the tool's own price: the
agent's calls pay for themselves. A ledger that does not answer is a failure of the scheduler: if the
scheduler is required, the call is denied.

With weights the candidates are ranked by `score`: every replica follows the facts and knows how calls of each
go at present.

Each replica runs a keeper (`toolgate_bus.ledger.money.settlement`), and one of them works at a time. It
settles reservations from the facts, learns costs from them, and charges the costs of LLMs. What it learned is
kept in the store, where the other replicas read it, and every replica after a restart.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from pydantic import BaseModel
from toolgate_bus.errors import TooFewReplicas, TransportError
from toolgate_bus.ledger.money.ledger import NO_AMOUNTS, Account, FallbackAccounts, Offer, Reservation
from toolgate_bus.ledger.money.limits import BudgetDescription, Limits, Overrides, describe, is_described
from toolgate_bus.ledger.money.reprieve import Reprieve
from toolgate_bus.ledger.money.settlement import SettlementWorker
from toolgate_bus.protocol.events import Continue, Deny, Hold, Modify, Phase, ToolSelecting, Verdict
from toolgate_bus.protocol.llm import ANY, LLM_REQUEST, complete_arguments
from toolgate_bus.protocol.money import format_amount, micro
from toolgate_bus.protocol.packing import VERSION
from toolgate_bus.state.shared_state import SharedState
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.tasks import keep, repeat

from toolgate_schedulers.author.scheduler import SchedulerContext, asking, wire
from toolgate_schedulers.shipped.alternatives import alternatives, group_of
from toolgate_schedulers.shipped.cost_aware.accounts import Payer, accounts_of, payer_of
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.delegations import Delegations
from toolgate_schedulers.shipped.cost_aware.estimates import (
    Candidate,
    CostHistory,
    Estimate,
    estimate,
    estimate_of_agent,
    estimate_of_request,
    rank_candidates,
)
from toolgate_schedulers.shipped.cost_aware.limits_reached import (
    over_budget,
    paused,
    question_beyond,
    rule_of,
    times_of,
)
from toolgate_schedulers.shipped.cost_aware.llm_prices import (
    LlmConfig,
    cost_of_usage,
    name_of_model,
    other_models,
)
from toolgate_schedulers.shipped.cost_aware.measures import (
    Measured,
    UnreadableArgumentError,
    costs_of,
    measure,
    unreserved,
)
from toolgate_schedulers.shipped.cost_aware.paused_calls import PAUSE_S, PausedCalls
from toolgate_schedulers.shipped.durability import DURABILITY, count_replicas, tell_replicas
from toolgate_schedulers.shipped.ejection_reporter import EjectionReporter
from toolgate_schedulers.shipped.facts_from_now import FactsFromNow
from toolgate_schedulers.shipped.score.outcomes import Outcomes
from toolgate_schedulers.shipped.score.score import describe as describe_rating

LOST: Final = (
    "The ledger was lost: nobody knows what was spent, and nothing that costs money may run until an "
    "operator decides (toolgate budget rebuild, or accept-loss). Do not repeat this call for now."
)
LOST_RULE: Final = "ledger-lost"
_SHOWN_TOOLS: Final = 5
_log = get_logger("toolgate.cost-aware")


def refusal(
    config: CostAwareConfig,
    learned: CostHistory,
    call: ToolSelecting,
    candidates: Sequence[Candidate],
    answer: Reservation,
    amount: int | None = None,
) -> str:
    """Return the reason of a denial: the money left, the price, affordable equivalents, and what to do.

    `amount` is what the call would take of a budget that does not count money.
    """
    own, *others = sorted(candidates, key=lambda one: not one.own)
    parts = [over_budget(config, own.name, own.estimate.most if amount is None else amount, answer)]
    times = times_of(config, answer.short)
    again = f": the budget is renewed {times}" if times else ""
    if own.model is not None:  # the reader waits for the LLM's answer, and calls no tools
        return " ".join([*parts, f"Ask again later{again}." if again else ""]).rstrip()
    if amount is not None:
        return " ".join([*parts, f"Do not repeat this call{f' for now{again}' if times else ''}."])
    if others:
        told = ", ".join(f"{one.name} ({_money(config, one.estimate.most)})" for one in others)
        parts.append(f"Its equivalents cost too much as well: {told}.")
    parts.append(_affordable(config, learned, call, candidates, answer.left))
    parts.append(f"Do not repeat this call{f' for now{again}' if times else ''}.")
    return " ".join(parts)


def not_replicated(error: TooFewReplicas) -> str:
    """Return the reason of a denial because too few server replicas have the write."""
    return (
        f"The reservation could not be stored safely: {error}. The reserved money is given back. "
        "Try again later. The operator of Toolgate must check the server's replicas."
    )


def replacement(config: CostAwareConfig, candidates: Sequence[Candidate], chosen: Candidate) -> str:
    """Return the reason that another tool runs; `candidates` are in order of preference."""
    own = next(one for one in candidates if one.own)
    if chosen.rating is None or own.rating is None or candidates.index(own) < candidates.index(chosen):
        return (
            f"Over budget: {own.name} would cost up to {_money(config, own.estimate.most)}; "
            f"{chosen.name} runs instead, for up to {_money(config, chosen.estimate.most)}."
        )
    told = describe_rating(chosen.name, chosen.rating, config.currency)
    instead = describe_rating(own.name, own.rating, config.currency)
    return f"{told}; it runs instead of {instead}."


def explanation(config: CostAwareConfig, own: Candidate) -> str | None:
    """Return the reason that a call stays as it is, if that is not because it is the best."""
    if own.rating is None or not own.rating.explored:
        return None
    return describe_rating(own.name, own.rating, config.currency)


def _affordable(
    config: CostAwareConfig,
    learned: CostHistory,
    call: ToolSelecting,
    candidates: Sequence[Candidate],
    left: int,
) -> str:
    """Return the affordable equivalents only, as a refused LLM may take up any other tool that it is
    shown."""
    tried = {one.tool for one in candidates}
    group = group_of(config.alternatives, call.tool_name)
    equivalents = [tool for tool in (group.tools if group else None) or () if tool in call.available_tools]
    prices = {tool: estimate(config, learned, tool).reserve for tool in equivalents if tool not in tried}
    possible = sorted((price, tool) for tool, price in prices.items() if price <= left)[:_SHOWN_TOOLS]
    if not possible:
        return "No equivalent is affordable: answer with what you have."
    told = ", ".join(f"{tool} ({_money(config, price) if price else 'free'})" for price, tool in possible)
    return f"Affordable in its place: {told}."


def _money(config: CostAwareConfig, amount: int) -> str:
    return format_amount(amount, config.currency)


def _offers(measured: Measured, money: Sequence[Account], *, is_first: bool) -> list[Offer]:
    """Return what each candidate takes of the accounts.

    The money that an agent will spend must be left, but is not reserved: its own calls pay for it. A free
    call that is limited by other budgets is not limited by those of money.
    """
    if not measured.accounts:
        return [
            Offer(one.offer, one.estimate.reserve, one.estimate.most, NO_AMOUNTS, one.own)
            for one in measured.candidates
        ]
    found = []
    for one, amounts in zip(measured.candidates, measured.amounts, strict=True):
        is_free = is_first and one.estimate.most == 0 and one.model is None
        shares = {**dict.fromkeys((each.key for each in money), 0), **amounts} if is_free else amounts
        found.append(Offer(one.offer, one.estimate.reserve, one.estimate.most, shares, may_exceed=one.own))
    return found


NOTICE_S: Final = 10.0
"""Seconds after which every living agent knows the phases of a replica that has started."""
MAX_ASKERS: Final = 10_000
LOOK_S: Final = 0.5
"""Seconds between two looks for changed limits and learned values."""
_FIRST: Final[tuple[Phase, ...]] = ("select", "verify")
_STEPS: Final[Mapping[Phase, int]] = {"select": 0, "verify": 1, "admit": 3}
"""Numbers of a decision's rounds in the ledger, in their order; `verify` may come twice."""
_WITH_LAST: Final[tuple[Phase, ...]] = (*_FIRST, "admit")


def candidates_of(
    config: CostAwareConfig,
    learned: CostHistory,
    call: ToolSelecting,
    outcomes: Outcomes | None = None,
    now: float = 0.0,
) -> list[Candidate]:
    """List the candidates for a call, best first; in phase `verify` only the call itself."""

    def estimate_for(tool: str, agent: str | None) -> Estimate:
        if agent is None:
            return estimate(config, learned, tool)
        return estimate_of_agent(config, learned, tool, agent, given=micro(call.tool_input.get("budget")))

    if call.tool_name == LLM_REQUEST:
        return rank_candidates(_requests(config, learned, call), config, outcomes, now, call)
    own = estimate_for(call.tool_name, call.agent_target)
    found = [Candidate(call.tool_name, None, own, own=True, agent=call.agent_target)]
    if call.phase == "select":
        found += [
            Candidate(tool, arguments, estimate_for(tool, agent), own=False, agent=agent)
            for tool, arguments, agent in alternatives(config.alternatives, call)
        ]
    return rank_candidates(found, config, outcomes, now, call)


def _requests(config: CostAwareConfig, learned: CostHistory, call: ToolSelecting) -> list[Candidate]:
    """List the candidates for a request to an LLM: itself, and requests to models that may replace it."""
    prices, own = config.llm or LlmConfig(), call.tool_input
    asked: list[tuple[dict[str, Any] | None, dict[str, Any]]] = [(None, own)]
    if call.phase == "select":
        others = other_models(prices, own, call.available_tools)
        asked += [(other, complete_arguments(own, other)) for other in others]
    return [
        Candidate(
            call.tool_name,
            given,
            estimate_of_request(prices, learned, request, config.learn),
            own=given is None,
            model=name_of_model(request),
        )
        for given, request in asked
    ]


class CostAware:
    """Scheduler that a `CostAwareConfig` configures."""

    name = "cost-aware"
    priority = 20
    """Priority above the router: the call that it has reserved for must be the one that runs."""
    tools: tuple[str, ...] = ("*",)
    """Globs of its tools; with `llm` in the config, requests to an LLM as well."""
    config_model: ClassVar[type[BaseModel]] = CostAwareConfig

    def __init__(
        self,
        config: CostAwareConfig,
        *,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """Configure the scheduler; `clock` decides the day, week or month of the calendar, and outcomes are
        forgotten by `ticks`."""
        self._clock, self._ticks = clock, ticks
        self._reporter: EjectionReporter | None = None
        self.configure(config)
        self._facts: FactsFromNow | None = None
        self.phases = _WITH_LAST if config.admission else _FIRST
        self._reserves_last = config.admission
        self._noticed_at = 0.0
        self._askers: dict[str, None] = {}
        """Orchestrators that have asked in `admit`."""
        if config.llm is not None:
            self.tools = (*self.tools, ANY)
        self.server_replicas = count_replicas(config.durability)
        self.learned = CostHistory()
        self._delegations = Delegations()
        self.overrides: Overrides = {}
        self._news = False
        """True if the store lacks values that were learned."""
        self._tasks: list[asyncio.Task[None]] = []
        self._paused: PausedCalls | None = None

    def configure(self, config: CostAwareConfig) -> None:
        """Take up other groups, prices and weights; what is remembered of calls begins anew."""
        self.config = config
        self.outcomes = None
        if config.chooses:
            self.outcomes = Outcomes(
                config.rivals, config.half_life_s, config.sticky, config.success_by, config.explorer
            )
        if self._reporter is not None:
            self._reporter.forget()

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Rule on one call; raise TransportError if the ledger does not answer."""
        # In verify money may be reserved already, for the call that this one replaces.
        only_looks = self._only_looks(call.phase)
        is_first = only_looks or call.phase == "select" or (call.phase == "admit" and self._is_noticed)
        verdict = await self._rule(call, is_first=is_first, only_looks=only_looks)
        if self._paused is not None and isinstance(verdict, Hold):
            self._paused.add(call, asking.get())
        return verdict

    async def _rule_again(self, call: ToolSelecting, reserves: bool) -> Verdict:
        """Rule on a paused call."""
        return await self._rule(call, is_first=call.phase == "select", only_looks=not reserves, goes_on=True)

    async def _rule(
        self, call: ToolSelecting, *, is_first: bool, only_looks: bool, goes_on: bool = False
    ) -> Verdict:
        """Rule on one call. A call that `goes_on` was paused, and stays so while it has no room."""
        found = candidates_of(self.config, self.learned, call, self.outcomes, self._ticks())
        now = self._clock()
        try:
            measured = measure(self.config, self.learned, call, found, self.overrides, now)
        except UnreadableArgumentError as error:
            return Deny(reason=str(error), rule_name=rule_of(error.budget))
        candidates, best = measured.candidates, measured.candidates[0]
        accounts = accounts_of(self.config, Payer.of(call), self.overrides, now)
        free = best.estimate.most == 0 and is_first and call.tool_name != LLM_REQUEST
        if free and measured.accounts:
            free = not any(measured.amounts[0].values())
        if free or not (accounts or measured.accounts):
            return self._let(call, candidates, best)
        offers = _offers(measured, accounts, is_first=is_first)
        accounts += measured.accounts
        ask = self._shared.ledger.preview if only_looks else self._shared.ledger.reserve
        phase = _STEPS[call.phase] + call.again
        try:
            answer = await ask(call.id, phase, offers, accounts, asking.get())
            is_foreign = answer.status == "closed" and call.phase == "admit"
            if is_foreign and await self._reprieve.take_over(call.id, asking.get()):
                # The call waited for a person, and another orchestrator now goes on with it.
                answer = await ask(call.id, phase, offers, accounts, asking.get())
        except TooFewReplicas as error:
            return Deny(reason=not_replicated(error), rule_name=DURABILITY)
        if answer.status == "lost":
            return Deny(reason=LOST, rule_name=LOST_RULE)
        chosen = next((one for one in candidates if one.offer == answer.name), None)
        if answer.status == "closed" or (answer.status == "reserved" and chosen is None):
            return Deny(reason="This decision is over: the call must be decided anew.")
        if chosen is not None and not answer.short:
            return self._let(call, candidates, chosen)
        own = next(n for n, one in enumerate(candidates) if one.own)
        amount = measured.amounts[own].get(answer.short)
        most = candidates[own].estimate.most if amount is None else amount
        waits = self._paused is not None and (goes_on or not only_looks)
        if answer.status == "denied" or (answer.status == "paused" and not waits and not only_looks):
            said = refusal(self.config, self.learned, call, candidates, answer, amount)
            return Deny(reason=said, rule_name=rule_of(answer.short))
        if answer.status == "paused" and waits:
            words = paused(self.config, candidates[own].name, most, answer)
            return Hold(seconds=PAUSE_S, reason=words)
        if answer.is_beyond:
            return question_beyond(self.config, candidates[own].name, most, answer)
        return self._let(call, candidates, chosen or candidates[own])

    def _only_looks(self, phase: Phase) -> bool:
        """Return whether to reserve nothing yet, because the orchestrator will ask again in `admit`."""
        asker = asking.get()
        if phase == "admit":
            if len(self._askers) >= MAX_ASKERS:
                self._askers.clear()
            self._askers[asker] = None
            return False
        if not self._reserves_last or wire.get() == VERSION:
            return False
        return asker in self._askers or self._is_noticed

    @property
    def _is_noticed(self) -> bool:
        """True if all agents know by now in which phases this replica rules."""
        return time.monotonic() >= self._noticed_at

    def _let(self, call: ToolSelecting, candidates: Sequence[Candidate], chosen: Candidate) -> Verdict:
        if self.outcomes is not None:
            # The fact of the decision comes a moment later; the next call must know already.
            explored = chosen.rating is not None and chosen.rating.explored
            self.outcomes.expect(call.id, chosen.key, self._ticks(), explored=explored)
        if chosen.own:
            return Continue(reason=explanation(self.config, chosen))
        reason = replacement(self.config, candidates, chosen)
        return Modify(tool=chosen.tool, arguments=chosen.arguments, agent_target=chosen.agent, reason=reason)

    async def start(self, context: SchedulerContext) -> None:
        """Read the limits and learned values, and begin to keep the ledger."""
        self.use(context.shared)
        self._noticed_at = time.monotonic() + NOTICE_S
        self._reserves_last = self.config.admission and not context.shadow  # shadows are not asked in `admit`
        if self.config.durability is not None:
            await tell_replicas(context.name, context.shared.ledger)
        if self.config.budgets and self.config.on_ledger_lost == "deny":
            await context.shared.ledger.watch()
        await self._describe()
        await self.look()
        if self.config.idle_weights:
            _log.warning("the weights choose among nothing", fix=self.config.idle_weights)
        if self.outcomes is not None:
            self._reporter = EjectionReporter(context)
            self._reporter.start()
            self._facts = FactsFromNow(context.shared.news, self.follow)
            await self._facts.start()
        keeper = SettlementWorker(
            context.shared.ledger,
            context.shared.facts,
            context.shared.store,
            book=context.shared.book,
            replica=context.replica,
            also=self.hear,
            otherwise=self.otherwise,
            cost_of=self.cost_of if self.config.llm is not None else None,
            costs_of=self.costs_of,
        )
        works = [keep(keeper.run), keep(repeat, self.look, LOOK_S)]
        if any(one.at_limit == "pause" for one in self.config.budgets) and not context.shadow:
            self._paused = PausedCalls(context, self._rule_again)
            works.append(keep(repeat, self._paused.look, LOOK_S))
        self._tasks = [asyncio.create_task(work) for work in works]

    async def _describe(self) -> None:
        """Describe the budgets in the store."""
        told = [
            BudgetDescription(
                one.name,
                one.level,
                one.limit,
                one.window_s,
                self.config.currency if one.is_money else one.unit,
                one.calendar,
            )
            for one in self.config.budgets
        ]
        await describe(self._shared.store, self._shared.book, told)

    async def stop(self) -> None:
        """Stop keeping the ledger, and write what was learned last."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._facts is not None:
            await self._facts.stop()
        if self._reporter is not None:
            await self._reporter.stop()
        with contextlib.suppress(TransportError):
            await self._shared.ledger.leave()
            await self._write_down()

    def use(self, shared: SharedState) -> None:
        """Reserve in the ledger of this state; `start` calls this."""
        self._shared = shared
        self._reprieve = Reprieve(shared.ledger, shared.store, time.monotonic)
        if self.config.durability is not None:
            shared.ledger.require_replicas(self.config.durability.value)
        self._limits = Limits(shared.store, shared.book)
        self._learned_key = f"{shared.book}:learned"

    async def look(self) -> None:
        """Read the limits and the learned values; or write what this replica learned.

        A ledger that was lost may have lost the data beside it, too, so the budgets are described again if
        needed.
        """
        await self._shared.ledger.look()
        names = [one.name for one in self.config.budgets]
        if not await is_described(self._shared.store, self._shared.book, names):
            await self._describe()
        self.overrides = await self._limits.read()
        if self._news:
            await self._write_down()
        else:
            learned = await self._shared.store.get(self._learned_key)
            if learned is None:
                self._news = self._news or self.learned != CostHistory()
            elif not self._news:  # nothing was heard meanwhile
                self.learned = CostHistory.from_bytes(learned)

    async def _write_down(self) -> None:
        if self._news:
            self._news = False
            try:
                await self._shared.store.put(self._learned_key, self.learned.to_bytes())
            except TransportError:
                self._news = True
                raise

    def follow(self, fact: Mapping[str, Any]) -> None:
        """Follow how calls go; every replica hears each fact once."""
        if self.outcomes is not None:
            self.outcomes.hear(fact, self._ticks())
            if self._reporter is not None:
                self._reporter.take([self.outcomes])

    async def hear(self, fact: Mapping[str, Any]) -> None:
        """Learn from a fact, and charge the cost of an LLM request; called by the keeper that works."""
        worked = self._delegations.hear(fact, self._price_of)
        if worked is not None:
            self.learned.record_delegation(*worked)
        if self.learned.hear(fact) or worked is not None:
            self._news = True
        if fact.get("event") == "usage" and self._is_charged_apart(fact):
            charged = self._fallback(fact, self.cost_of(fact) or 0)
            orchestrator, number = fact.get("orchestrator"), fact.get("seq")
            is_paid = charged.accounts and (charged.amount or any(charged.amounts.values()))
            if is_paid and isinstance(orchestrator, str) and type(number) is int:
                await self._shared.ledger.charge(f"usage-{orchestrator}-{number}", *charged)

    def _is_charged_apart(self, fact: Mapping[str, Any]) -> bool:
        """Return whether the request's cost is charged by itself, as no reservation pays for it.

        With `llm` these are the requests that no scheduler was asked about.
        """
        return self.config.charge_llm if self.config.llm is None else not fact.get("decision_id")

    def otherwise(self, fact: Mapping[str, Any]) -> FallbackAccounts | None:
        """Return the charge for a call without a reservation.

        The server lost the reservation, or the call ran without this scheduler. The fleet's accounts pay for
        a tool's call, the caller's accounts for an LLM request.
        """
        if fact.get("event") == "usage":  # the fact names the caller, and slices need no budget
            charged = self._fallback(fact, cost_of_usage(self.config.llm, fact) or 0)
            return charged if charged.accounts or self.config.budgets else None
        if not self.config.budgets:
            return None
        return self._fallback(fact, self._price_of(str(fact.get("tool"))))

    def _fallback(self, fact: Mapping[str, Any], amount: int) -> FallbackAccounts:
        """Return the accounts that pay for a call without a reservation, and what it takes of each."""
        is_request, now = fact.get("event") == "usage", self._clock()
        payer, only = (payer_of(fact), None) if is_request else (Payer(), "fleet")
        accounts = accounts_of(self.config, payer, self.overrides, now, only=only)
        others = unreserved(self.config, fact, payer, self.overrides, now)
        return FallbackAccounts(amount, (*accounts, *others.accounts), others.amounts)

    def costs_of(self, fact: Mapping[str, Any]) -> Mapping[str, int]:
        """Return what a call took of budgets that do not count money, by budget."""
        return costs_of(self.config, fact)

    def cost_of(self, fact: Mapping[str, Any]) -> int | None:
        """Return the cost of a request to an LLM from its fact; None if it is not known."""
        return cost_of_usage(self.config.llm, fact)

    def _price_of(self, tool: str) -> int:
        return estimate(self.config, self.learned, tool).reserve
