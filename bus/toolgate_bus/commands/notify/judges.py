"""Find incidents in what was read: for each cause, what is new, goes on, or is over. Time is an argument.

Each judge changes its part of the memory, and gives incidents to tell. The caller keeps both in one step, or
neither, so that each incident is told once.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.commands.notify.config import (
    BudgetCause,
    ChangeCause,
    FailingOpenCause,
    GoneCause,
    HeldCause,
    RevisionsCause,
)
from toolgate_bus.commands.notify.incident import FieldValue, Incident, Severity, Stage, to_field
from toolgate_bus.fleet.books import Book, BookAccount
from toolgate_bus.ledger.money.ledger import Balance
from toolgate_bus.ledger.money.limits import PER_TASK, BudgetDescription
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.state.changes import ConfigChange
from toolgate_bus.transport.redis.clock import entry_order

MAX_HELD: Final = 5000
"""Maximum number of waiting calls that are remembered. Others are told when these are answered."""
MAX_ACCOUNTS: Final = 50_000
MAX_SCHEDULERS: Final = 1000
UNREQUIRED_S: Final = 60.0
"""Seconds after the last agent that required a scheduler until it is required no longer."""
UNANSWERED: Final = "nobody answered in time"


class CallOnHold(NamedTuple):
    """Call that waits for a person, without its arguments and words."""

    id: str
    scheduler: str
    tool: str
    agent: str
    labels: Mapping[str, str]
    seconds_left: float


class RosterState(NamedTuple):
    """Part of the roster that matters here."""

    alive: frozenset[str]
    """Schedulers that are alive."""
    required: frozenset[str]
    """Schedulers that some agent waits for."""
    revisions: Mapping[str, int]
    """Number of different configurations that the replicas of each scheduler rule by."""


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
            if not one.limit or (one.budget.level in PER_TASK and not cause.each):
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


def judge_gone(
    known: dict[str, dict[str, Any]], roster: RosterState, now: float, cause: GoneCause
) -> Iterator[Incident]:
    """Give required schedulers that have not been alive for a while, and those that are back."""
    for name in sorted(roster.required - roster.alive)[:MAX_SCHEDULERS]:
        entry = known.setdefault(name, {"since": now, "told": False})
        entry["required"] = now
    for name in sorted(known):
        entry, back = known[name], name in roster.alive
        since, fields = entry["since"], _name(name)
        if back or now - entry["required"] >= UNREQUIRED_S:
            del known[name]
            if entry["told"]:
                fields["back"] = back
                yield Incident(f"gone:{name}:{since}:end", "gone", "info", "closed", now, fields)
        elif not entry["told"] and now - since >= cause.after_s:
            entry["told"] = True
            yield Incident(f"gone:{name}:{since}", "gone", "critical", "open", now, fields)


def judge_revisions(
    known: dict[str, dict[str, Any]], roster: RosterState, now: float, cause: RevisionsCause
) -> Iterator[Incident]:
    """Give schedulers whose replicas have ruled by different configurations for a while, or agree again."""
    differing = [name for name, count in sorted(roster.revisions.items()) if count > 1][:MAX_SCHEDULERS]
    for name in differing:
        entry = known.setdefault(name, {"since": now, "told": False})
        if not entry["told"] and now - entry["since"] >= cause.after_s:
            entry["told"] = True
            fields = _name(name) | {"count": roster.revisions[name]}
            yield Incident(f"revisions:{name}:{entry['since']}", "revisions", "warning", "open", now, fields)
    for name in sorted(known.keys() - set(differing)):
        entry = known.pop(name)
        if entry["told"]:
            key, fields = f"revisions:{name}:{entry['since']}:end", _name(name)
            yield Incident(key, "revisions", "info", "closed", now, fields)


def judge_fact(
    known: dict[str, dict[str, Any]], fact: Mapping[str, Any], cause: FailingOpenCause
) -> Iterator[Incident]:
    """Count a decision that went on without verdicts. Give the schedulers that now fail open.

    The time of a decision is the server's.
    """
    failed = fact.get("failed_open")
    if fact.get("event") != "decision" or not isinstance(failed, Mapping) or not failed:
        return
    entry_id = str(fact.get("entry", "0-0"))
    at = entry_order(entry_id)[0] / 1000
    for name in failed:
        if not isinstance(name, str) or (name not in known and len(known) >= MAX_SCHEDULERS):
            continue
        entry = known.setdefault(name, {"times": [], "since": ""})
        entry["times"] = [*entry["times"], at][-cause.calls :]
        times = entry["times"]
        if not entry["since"] and len(times) >= cause.calls and at - times[0] <= cause.within_s:
            entry["since"] = f"{entry_id}:{fact.get('orchestrator')}:{fact.get('seq')}"
            fields = _name(name) | {"calls": len(times), "within_s": cause.within_s}
            key = f"failing_open:{name}:{entry['since']}"
            yield Incident(key, "failing_open", "warning", "open", at, fields)


def judge_quiet(known: dict[str, dict[str, Any]], now: float, cause: FailingOpenCause) -> Iterator[Incident]:
    """Give schedulers that have not failed open for `within_s` seconds."""
    for name in sorted(known):
        entry = known[name]
        if now - entry["times"][-1] < cause.within_s:
            continue
        del known[name]
        if entry["since"]:
            key, fields = f"failing_open:{name}:{entry['since']}:end", _name(name)
            yield Incident(key, "failing_open", "info", "closed", now, fields)


def judge_change(place: str, change: ConfigChange, now: float, cause: ChangeCause) -> Iterator[Incident]:
    """Give one entry of the record of changes, without people's own words (`why`)."""
    if change.event not in cause.events:
        return
    words = change._asdict()
    names = ("event", "scheduler", "was", "revision", "label", "author")
    fields: dict[str, FieldValue] = {name: to_field(words[name]) for name in names if words[name]}
    severity: Severity = "critical" if change.event == "rollout:undone" else "info"
    yield Incident(f"change:{place}", "change", severity, "open", now, fields)


def _name(scheduler: str) -> dict[str, FieldValue]:
    return {"scheduler": to_field(scheduler)}
