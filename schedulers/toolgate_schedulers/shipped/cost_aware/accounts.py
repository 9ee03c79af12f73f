"""Find the accounts that pay for a call: one of each budget, by session, agent, label or fleet.

An account is named `BUDGET/LEVEL/WHOSE`, such as `daily/session/s-1`, or `daily/fleet`. Calls without
a session, an agent or a label share one account, `-`: leaving a label out is no way round a budget.
Budgets that count something else, or the calls of some tools only, are in `measures`.
A sub-agent's call is paid from the account of the session at the root (level `session`), and from
those of its own agent and of each agent above (level `agent`).

A delegation may give its agent, and all below it, a slice: a label `slice:ID` with an amount. Each slice
has one more account, `slice/ID`. Giving a slice takes no money away: only spending counts.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolgate_bus.ledger.money.ledger import Account
from toolgate_bus.ledger.money.limits import Overrides, is_per_task, limit_of
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.protocol.money import MAX_AMOUNT
from toolgate_bus.protocol.names import MAX_LINEAGE

from toolgate_schedulers.shipped.cost_aware.config import DAY, SLICE, Budget, CostAwareConfig

NOBODY: Final = "-"
_MAX_LENGTH: Final = 128
_SPARE: Final = 2 * DAY
_IDLE: Final = 30 * DAY
_MAX_SLICES: Final = 64
_AMOUNT: Final = re.compile(r"[0-9]{1,16}")


class Payer(NamedTuple):
    """Caller that pays for a call or an LLM request."""

    session: str = ""
    root_session: str = ""
    agent: str = ""
    labels: Mapping[str, str] = {}
    lineage: Sequence[str] = ()
    """Agents that the call is made for, from the root down; the caller's own may be last."""

    @classmethod
    def of(cls, call: ToolSelecting) -> "Payer":
        """Return the payer of a call."""
        return cls(call.session, call.root_session, call.agent, call.labels, call.lineage)


def payer_of(fact: Mapping[str, Any]) -> Payer:
    """Return the payer that a fact names; fields that are missing or malformed are empty."""
    labels, lineage = fact.get("labels"), fact.get("lineage")
    return Payer(
        _text(fact.get("session")),
        _text(fact.get("root_session")),
        _text(fact.get("agent")),
        {str(name): _text(value) for name, value in labels.items()} if isinstance(labels, dict) else {},
        [_text(name) for name in lineage[:MAX_LINEAGE]] if isinstance(lineage, list) else (),
    )


def accounts_of(
    config: CostAwareConfig, payer: Payer, overrides: Overrides, now: float, only: str | None = None
) -> list[Account]:
    """Return the accounts of the money of all calls, in the order of the budgets; then those of slices.

    `now`, in seconds since the epoch, decides the calendar windows. `only` leaves out the budgets of all
    other levels.
    """
    budgets = [
        account_of(budget, whose, overrides, now)
        for budget in config.for_all
        if only in (None, budget.level)
        for whose in owners_of(budget, payer)
    ]
    # One account for each slice that the agent may spend.
    labels = payer.labels
    found = sorted(
        name for name in labels if name.startswith(f"{SLICE}:") and _AMOUNT.fullmatch(labels[name])
    )
    amounts = {f"{SLICE}/{_safe(name.partition(':')[2])}": int(labels[name]) for name in found[:_MAX_SLICES]}
    limits = {key: overrides.get(key, min(amount, MAX_AMOUNT)) for key, amount in amounts.items()}
    return [*budgets, *(Account(key, limit, 0, _IDLE) for key, limit in limits.items())]


def owners_of(budget: Budget, payer: Payer) -> Iterable[str]:
    """Return whose accounts of a budget pay for a call, by session, agent, label or fleet."""
    kind, _, label = budget.level.partition(":")
    if kind == "agent":
        return dict.fromkeys((payer.agent, *payer.lineage))
    if kind == "label":
        return (payer.labels.get(label, ""),)
    return ({"fleet": "", "own-session": payer.session}.get(kind, payer.root_session or payer.session),)


def account_of(budget: Budget, whose: str, overrides: Overrides, now: float) -> Account:
    """Return one account of a budget, with the limit that holds now."""
    key = f"{budget.name}/fleet"
    if budget.level != "fleet":
        key = f"{budget.name}/{budget.level}/{_safe(whose)}"
    # Keep the account well beyond its window, as calls of the window may still be settled. The account
    # of a session without a window goes after a month without use.
    calendar, seconds = budget.calendar, budget.window_s
    keep = seconds + _SPARE if seconds else _IDLE if is_per_task(budget.level) else 0
    window = seconds if calendar is None else -calendar.number_at(now)
    unit = "" if budget.is_money else budget.unit
    return Account(key, limit_of(key, budget.limit, overrides), window, keep, unit, budget.at_limit)


def _safe(whose: str) -> str:
    """Return a part of a key that is bounded and printable, and differs for different names."""
    if len(whose) <= _MAX_LENGTH and whose.isprintable():
        return whose or NOBODY
    return hashlib.sha256(whose.encode("utf-8", "replace")).hexdigest()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
