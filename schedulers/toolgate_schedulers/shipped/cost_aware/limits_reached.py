"""Words for a call beyond the limit of a budget: what it would take, what is left, what happens next."""

from toolgate_bus.ledger.money.ledger import Reservation
from toolgate_bus.protocol.events import AskUser
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.protocol.names import MAX_RULE

from toolgate_schedulers.shipped.cost_aware.config import DAY, HOUR, SLICE, Budget, CostAwareConfig

_TIMES = {HOUR: "every hour", DAY: "every day"}
SHOWN = 200


def budget_of(config: CostAwareConfig, account: str) -> Budget | None:
    """Return the budget of an account; None for a slice."""
    name = account.partition("/")[0]
    return next((one for one in config.budgets if one.name == name), None)


def rule_of(account: str) -> str:
    """Return the name of an account's budget as the name of a rule."""
    return account.partition("/")[0][:MAX_RULE]


def unit_of(config: CostAwareConfig, account: str) -> str:
    """Return the unit of an account's amounts."""
    budget = budget_of(config, account)
    return config.currency if budget is None or budget.is_money else budget.unit


def name_of(account: str) -> str:
    """Return a budget's name for an LLM."""
    name = account.partition("/")[0]
    return "what this work may cost" if name == SLICE else f"the budget {name}"


def times_of(config: CostAwareConfig, account: str) -> str:
    """Return how often an account's budget begins anew, such as `every day`; empty if never."""
    budget = budget_of(config, account)
    if budget is None or not budget.window_s:
        return ""
    if budget.calendar is not None:
        return f"every {budget.calendar.unit}"
    return _TIMES.get(budget.window_s, f"every {budget.window_s} seconds")


def over_budget(config: CostAwareConfig, name: str, amount: int, answer: Reservation) -> str:
    """Return what a call would take, and what is left of the account that is short of it."""
    unit = unit_of(config, answer.short)
    price, left = format_amount(amount, unit), format_amount(answer.left, unit)
    if unit == config.currency:
        return f"Over budget: {name} would cost up to {price}, and {left} is left of {name_of(answer.short)}."
    return f"Over budget: {name} would take up to {price}, and {name_of(answer.short)} has {left} left."


def paused(config: CostAwareConfig, name: str, amount: int, answer: Reservation) -> str:
    """Return the reason of a hold, with what ends it."""
    times = times_of(config, answer.short)
    turns = f", or the budget is renewed ({times})" if times else ""
    raised = f"until it is raised (toolgate budget set {answer.short[:SHOWN]} LIMIT)"
    return f"{over_budget(config, name, amount, answer)} The call waits {raised}{turns}."


def question_beyond(config: CostAwareConfig, name: str, amount: int, answer: Reservation) -> AskUser:
    """Return the question to a person about a call beyond a limit."""
    said = over_budget(config, name, amount, answer)
    prompt = f"{said} Run it anyway, and book it above the limit of {answer.short[:SHOWN]}?"
    return AskUser(prompt=prompt, reason=said, rule_name=rule_of(answer.short))
