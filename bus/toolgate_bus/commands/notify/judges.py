"""Find incidents in what was read: for each cause, what is new, goes on, or is over. Time is an argument.

Each judge changes its part of the memory, and gives incidents to tell. The caller keeps both in one step, or
neither, so that each incident is told once.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.commands.notify.config import BudgetCause, ChangeCause, HeldCause, Severity
from toolgate_bus.commands.notify.notification import FieldValue, Incident, Stage, to_field
from toolgate_bus.fleet.books import Book, BookAccount
from toolgate_bus.ledger.money.ledger import Balance
from toolgate_bus.ledger.money.limits import BudgetDescription, is_per_task
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.state.changes import ConfigChange

MAX_HELD: Final = 5000
"""Maximum number of waiting calls that are remembered. Others are told when these are answered."""
MAX_ACCOUNTS: Final = 50_000
UNANSWERED: Final = "nobody answered in time"


class CallOnHold(NamedTuple):
    """Call that waits for a person, without its arguments and words."""

    id: str
    scheduler: str
    tool: str
    agent: str
    labels: Mapping[str, str]
    seconds_left: float


def judge_held(
    known: dict[str, dict[str, Any]],
    waiting: Iterable[CallOnHold],
    ends: Mapping[str, str],
    now: float,
    cause: HeldCause,
) -> Iterator[Incident]:
    """Give calls that wait, wait still, or wait no longer. `ends` says how they ended, in fixed words."""
    here = {one.id: one for one in waiting}
    for id_, call in here.items():
        entry = known.get(id_)
        if entry is None:
            if len(known) >= MAX_HELD:
                continue
            entry = known[id_] = {"times": 0, "fields": _held_fields(call), "labels": dict(call.labels)}
        elif not cause.repeat_s or now < entry["next"]:
            continue
        times = entry["times"]
        entry.update(times=times + 1, next=now + cause.repeat_s)
        fields = {**entry["fields"], "seconds_left": round(call.seconds_left)}
        stage: Stage = "repeat" if times else "open"
        yield Incident(f"held:{id_}:{times}", "held", "warning", stage, now, fields, entry["labels"])
    for id_ in known.keys() - here.keys():
        entry = known.pop(id_)
        if cause.tell_end:
            fields = {**entry["fields"], "end": ends.get(id_, UNANSWERED)}
            yield Incident(f"held:{id_}:end", "held", "info", "closed", now, fields, entry["labels"])


def _held_fields(call: CallOnHold) -> dict[str, str]:
    names = {"scheduler": call.scheduler, "tool": call.tool, "agent": call.agent, "call": call.id[:32]}
    return {name: to_field(value) for name, value in names.items()}


def judge_budgets(
    known: dict[str, int], books: Iterable[Book], now: float, cause: BudgetCause
) -> Iterator[Incident]:
    """Give accounts that passed a threshold in their window. If it passed several, the highest is told."""
    seen: set[str] = set()
    for book in books:
        for one in book.accounts(now):
            if one.budget is None or len(seen) >= MAX_ACCOUNTS:
                continue
            mark = f"{book.name}:{one.key}:{one.balance.window}"
            seen.add(mark)
            if not one.limit or (is_per_task(one.budget.level) and not cause.each):
                continue
            limit = one.limit
            passed = max((each for each in cause.thresholds if _is_past(one.balance, limit, each)), default=0)
            if passed > known.get(mark, 0):
                known[mark] = passed
                yield _budget_incident(f"budget:{mark}:{passed}", one, one.budget, passed, now)
    for mark in known.keys() - seen:
        del known[mark]


def _is_past(balance: Balance, limit: int, threshold: int) -> bool:
    """Return whether a threshold is passed. Reserved money counts at 100 % alone: it may be given back."""
    used = balance.spent + (balance.reserved if threshold == 100 else 0)
    return used * 100 >= limit * threshold


def _budget_incident(
    key: str, account: BookAccount, budget: BudgetDescription, passed: int, now: float
) -> Incident:
    fields: dict[str, FieldValue] = {
        "budget": to_field(budget.name),
        "level": to_field(budget.level),
        "whose": to_field(account.owner),
        "threshold": passed,
        "spent": to_field(format_amount(account.balance.spent, budget.currency)),
        "limit": to_field(format_amount(account.limit or 0, budget.currency)),
        "window": to_field(budget.window_words),
    }
    labels = {budget.level.removeprefix("label:"): account.owner} if account.owner else {}
    return Incident(key, "budget", "critical" if passed >= 100 else "warning", "open", now, fields, labels)


def judge_change(place: str, change: ConfigChange, now: float, cause: ChangeCause) -> Iterator[Incident]:
    """Give one entry of the record of changes, without people's own words (`why`)."""
    if change.event not in cause.events:
        return
    words = change._asdict()
    names = ("event", "scheduler", "was", "revision", "label", "author")
    fields: dict[str, FieldValue] = {name: to_field(words[name]) for name in names if words[name]}
    severity: Severity = "critical" if change.event == "rollout:undone" else "info"
    yield Incident(f"change:{place}", "change", severity, "open", now, fields)
