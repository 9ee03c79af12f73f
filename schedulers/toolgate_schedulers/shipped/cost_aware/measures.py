"""Measure what a call takes of budgets that do not count the money of all calls.

    unit: calls     ─▶ 1 for a call of a tool                  as reserved
    unit: requests  ─▶ 1 for a request to an LLM               as reserved
    unit: seconds   ─▶ usual longest duration of the tool      settled by the duration of the call
    unit: tokens    ─▶ tokens of the request and its answer    settled by the tokens that were used
    amount: $.path  ─▶ number at that argument                 as reserved
    tools: [...]    ─▶ money of the calls of these tools       settled by the cost

A call is measured for each tool or model that could run in its place. An account in which a candidate takes
nothing has the amount 0 for it, and does not limit it. An argument that cannot be read is an error, never 0.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolgate_bus.ledger.money.ledger import NO_AMOUNTS, Account, FallbackAccounts
from toolgate_bus.ledger.money.limits import ARGUMENT, Overrides
from toolgate_bus.protocol import placeholders
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.protocol.llm import LLM_REQUEST, complete_arguments
from toolgate_bus.protocol.money import MAX_AMOUNT, REQUESTS, SECONDS, TOKENS, UNIT, micro
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.arguments import MISSING, UNSEEN, Each, readings

from toolgate_schedulers.shipped.cost_aware.accounts import Payer, account_of, owners_of
from toolgate_schedulers.shipped.cost_aware.config import Budget, CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.estimates import (
    ENOUGH,
    Candidate,
    CostHistory,
    microseconds,
    quantile,
    tokens_of_request,
)
from toolgate_schedulers.shipped.cost_aware.llm_prices import LlmConfig, count_tokens, name_of_model, price_of

UNKNOWN_S: Final = UNIT
"""Duration that is reserved for a tool of which none is known: one second, in microseconds."""
_DECIMAL: Final = re.compile(r"(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,6})?")


class UnreadableArgumentError(Exception):
    """An argument that a budget counts, or whose value names an account, cannot be read."""

    def __init__(self, budget: Budget, path: str, why: str) -> None:
        super().__init__(
            f"The budget {budget.name} counts the argument {path} of this call, and it {why}. "
            "Give it as a plain value, and call again."
        )
        self.budget = budget.name


class Measured(NamedTuple):
    """Accounts beside those of money, and what each candidate takes of them."""

    candidates: Sequence[Candidate]
    """Candidates without those whose arguments cannot be read."""
    accounts: Sequence[Account]
    amounts: Sequence[Mapping[str, int]]
    """Amounts of each candidate, by the key of the account. Money of its own tools is not among them."""


def measure(
    config: CostAwareConfig,
    learned: CostHistory,
    call: ToolSelecting,
    candidates: Sequence[Candidate],
    overrides: Overrides,
    now: float,
) -> Measured:
    """Measure a call. Raise UnreadableArgumentError if one of the call itself cannot be read."""
    if not config.counted:
        return Measured(candidates, (), (NO_AMOUNTS,) * len(candidates))
    accounts: dict[str, Account] = {}
    kept: list[Candidate] = []
    shares: list[dict[str, int | None]] = []
    for candidate in candidates:
        try:
            found = list(_shares(config, learned, call, candidate, overrides, now))
        except UnreadableArgumentError:
            if candidate.own:
                raise
            continue
        kept.append(candidate)
        shares.append({account.key: amount for account, amount in found})
        accounts |= {account.key: account for account, amount in found if amount != 0}
    amounts = [
        {key: amount for key in accounts if (amount := share.get(key, 0)) is not None} for share in shares
    ]
    return Measured(kept, list(accounts.values()), amounts)


def _shares(
    config: CostAwareConfig,
    learned: CostHistory,
    call: ToolSelecting,
    candidate: Candidate,
    overrides: Overrides,
    now: float,
) -> Iterator[tuple[Account, int | None]]:
    """Yield each account of a candidate with the amount that it takes; None stands for its money."""
    arguments = call.tool_input if candidate.arguments is None else candidate.arguments
    if candidate.model is not None and candidate.arguments is not None:
        arguments = complete_arguments(call.tool_input, candidate.arguments)
    for budget in config.counted:
        if not counts(budget, candidate.tool):
            continue
        amount: int | None = None
        if budget.amount is not None:
            amount = _read_number(budget, arguments)
        elif budget.unit == SECONDS:
            amount = _duration(config, learned, candidate)
        elif budget.unit == TOKENS:
            sent, _, most = tokens_of_request(config.llm or LlmConfig(), learned, arguments, config.learn)
            amount = min(max(sent + most, 1), MAX_AMOUNT)
        elif not budget.is_money:
            amount = 1
        elif candidate.estimate.most == 0:
            amount = 0
        if budget.level.startswith(ARGUMENT):
            owners: Any = (_read_owner(budget, arguments),)
        else:
            owners = owners_of(budget, Payer.of(call))
        for whose in owners:
            yield account_of(budget, whose, overrides, now), amount


def counts(budget: Budget, tool: str) -> bool:
    """Return whether a budget counts calls of a tool; requests to LLMs have the tool `llm:request`."""
    if budget.tools is not None:
        return globs.either(budget.tools, tool)
    return budget.is_money or (tool == LLM_REQUEST) == (budget.unit in (TOKENS, REQUESTS))


def costs_of(config: CostAwareConfig, fact: Mapping[str, Any]) -> dict[str, int]:
    """Return what a call took of the budgets that a fact of its end can tell, by budget."""
    request = fact.get("event") == "usage"
    tool = LLM_REQUEST if request else str(fact.get("tool"))
    found: dict[str, int] = {}
    for budget in config.counted:
        if budget.is_money or budget.amount is not None or not counts(budget, tool):
            continue
        amount: int | None = 1
        if budget.unit == SECONDS:
            amount = microseconds(fact.get("seconds"))
        elif budget.unit == TOKENS:
            amount = tokens_used(config.llm, fact)
        if amount is not None:
            found[budget.name] = amount
    return found


def unreserved(
    config: CostAwareConfig, fact: Mapping[str, Any], payer: Payer, overrides: Overrides, now: float
) -> FallbackAccounts:
    """Return what a call without a reservation took beside money, as far as its fact tells.

    Only the caller of a request is known: of calls of tools, the fleet's budgets are charged.
    """
    told, request = costs_of(config, fact), fact.get("event") == "usage"
    shares = {
        account_of(budget, whose, overrides, now): told[budget.name]
        for budget in config.budgets
        if budget.name in told and (request or budget.level == "fleet")
        for whose in owners_of(budget, payer)
    }
    return FallbackAccounts(0, tuple(shares), {one.key: amount for one, amount in shares.items()})


def tokens_used(config: LlmConfig | None, fact: Mapping[str, Any]) -> int | None:
    """Return the tokens that a request used, with those of its answer; None if they are not told."""
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    sent, answered, read, written = (count_tokens(fact, name) for name in names)
    price = None if config is None else price_of(config, name_of_model(fact))
    if price is not None and price.cache_in_input:
        sent = max(sent - read, 0)
    return sent + answered + read + written or None


def _duration(config: CostAwareConfig, learned: CostHistory, candidate: Candidate) -> int:
    """Return the duration to reserve for a call, in microseconds; never 0."""
    tool = candidate.tool
    price = config.tools.get(tool, config.default)
    declared = round((price.latency_s or config.default.latency_s or 0) * UNIT)
    known = learned.durations.get(tool, ()) if config.learn else ()
    if len(known) >= ENOUGH:
        return max(declared, quantile(known, 0.9), 1)
    return declared or UNKNOWN_S


def _read(budget: Budget, path: str, arguments: Mapping[str, Any]) -> Any:
    """Return the value at a path that has one reading, and that was sent."""
    found = readings(path.removeprefix("$."), arguments)
    value = found[0]
    if len(found) > 1:
        raise UnreadableArgumentError(budget, path, "can be read in two ways")
    if value is MISSING or value is None:
        raise UnreadableArgumentError(budget, path, "is missing")
    if value is UNSEEN or placeholders.hides(value):
        raise UnreadableArgumentError(budget, path, "is hidden or cut off (`redact` of the plan)")
    return value


def _read_number(budget: Budget, arguments: Mapping[str, Any]) -> int:
    path = budget.amount or ""
    value = _read(budget, path, arguments)
    is_text = isinstance(value, str) and _DECIMAL.fullmatch(value) is not None
    if isinstance(value, bool) or not (is_text or isinstance(value, int | float)) or value != value:
        raise UnreadableArgumentError(budget, path, "is not a number")
    amount = micro(value)
    if amount is None:
        is_negative = isinstance(value, int | float) and value < 0
        raise UnreadableArgumentError(budget, path, "is negative" if is_negative else "is too large")
    return amount


def _read_owner(budget: Budget, arguments: Mapping[str, Any]) -> str:
    path = budget.level.removeprefix(ARGUMENT)
    value = _read(budget, path, arguments)
    if isinstance(value, bool) or type(value) is Each or not isinstance(value, str | int) or value == "":
        raise UnreadableArgumentError(budget, path, "is not a text or whole number")
    return str(value)
