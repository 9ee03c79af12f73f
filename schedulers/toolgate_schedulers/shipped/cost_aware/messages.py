"""Write the reasons for the LLM: a call is over budget, another ran instead, and what is still affordable."""

from collections.abc import Sequence
from typing import Final

from toolgate_bus.errors import TooFewReplicas
from toolgate_bus.ledger.money.ledger import Reservation
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.protocol.money import format_amount

from toolgate_schedulers.shipped.alternatives import group_of
from toolgate_schedulers.shipped.cost_aware.config import DAY, HOUR, SLICE, CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.estimates import Candidate, CostHistory, estimate

LOST: Final = (
    "The ledger was lost: nobody knows what was spent, and nothing that costs money may run until an "
    "operator decides (toolgate budget rebuild, or accept-loss). Do not repeat this call for now."
)
LOST_RULE: Final = "ledger-lost"
_SHOWN_TOOLS: Final = 5
_TIMES: Final = {HOUR: "every hour", DAY: "every day"}


def refusal(
    config: CostAwareConfig,
    learned: CostHistory,
    call: ToolSelecting,
    candidates: Sequence[Candidate],
    answer: Reservation,
) -> str:
    """Return the reason of a denial: the money left, the price, affordable equivalents, and what to do."""
    own, *others = sorted(candidates, key=lambda one: not one.own)
    price, left = _money(config, own.estimate.most), _money(config, answer.left)
    budget = answer.short.partition("/")[0]
    of = "what this work may cost" if budget == SLICE else f"the budget {budget}"
    parts = [f"Over budget: {own.name} would cost up to {price}, and {left} is left of {of}."]
    found = next((one for one in config.budgets if one.name == budget), None)
    window, calendar = (found.window_s, found.calendar) if found is not None else (0, None)
    times = f"every {calendar.unit}" if calendar else _TIMES.get(window, f"every {window} seconds")
    again = f": the budget is renewed {times}" if window else ""
    if own.model is not None:  # the reader waits for the LLM's answer, and calls no tools
        return " ".join([*parts, f"Ask again later{again}." if again else ""]).rstrip()
    if others:
        told = ", ".join(f"{one.name} ({_money(config, one.estimate.most)})" for one in others)
        parts.append(f"Its equivalents cost too much as well: {told}.")
    parts.append(_affordable(config, learned, call, candidates, answer.left))
    parts.append(f"Do not repeat this call{f' for now{again}' if window else ''}.")
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
    if candidates.index(own) < candidates.index(chosen):
        return (
            f"Over budget: {own.name} would cost up to {_money(config, own.estimate.most)}; "
            f"{chosen.name} runs instead, for up to {_money(config, chosen.estimate.most)}."
        )
    return (
        f"{chosen.name} ({_terms(config, chosen)}) is preferred to its equivalent "
        f"{own.name} ({_terms(config, own)})."
    )


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


def _terms(config: CostAwareConfig, one: Candidate) -> str:
    return f"{_money(config, one.estimate.cost)}, {one.estimate.latency_s:g} s"


def _money(config: CostAwareConfig, amount: int) -> str:
    return format_amount(amount, config.currency)
