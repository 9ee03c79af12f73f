"""Write the verdict of a rule on order: nothing, a denial, or a hold. Pure."""

from dataclasses import dataclass, field
from typing import Final

from toolgate_bus.protocol.events import Deny, Hold, ToolSelecting
from toolgate_bus.protocol.names import MAX_REASON, MAX_RULE
from toolgate_bus.ruling.conditions.conditions import Globs

from toolgate_schedulers.shipped.policy.needs import (
    LABEL,
    MAX_WINDOW_S,
    CallCount,
    OrderMatcher,
    Precondition,
)
from toolgate_schedulers.shipped.policy.order import CallHistory, State, read_amount

GRACE_S: Final = 0.25
"""Seconds a call of a response with several calls waits for the others: their questions come in no known
order."""
SLACK_S: Final = 10.0
"""Seconds that a hold lasts beyond the wait, so that the call is denied with a reason."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Past:
    """Knowledge of earlier calls."""

    history: CallHistory = field(default_factory=lambda: CallHistory(()))
    now: float = 0.0
    """Present time in seconds, by the server's clock."""
    waited: float = 0.0
    """Seconds for which the call was held."""


UNKNOWN: Final = Past()
"""Knowledge of no earlier calls."""


def check_order(
    rule: OrderMatcher, name: str, call: ToolSelecting, past: Past, reason: str | None
) -> Deny | Hold | None:
    """Return the rule's denial or hold by the earlier calls; None if they are as the rule wants."""
    for state, why in _barriers(rule, call, past):
        wait_s = rule.wait_s or 0.0
        hears_more = state == "unmet" and bool(call.parallel_group_id) and past.waited < GRACE_S
        if past.waited < wait_s and (state == "under way" or hears_more):
            return Hold(seconds=wait_s + SLACK_S, reason=f"waits: {why} ({name})"[:MAX_REASON])
        vain = f"; it waited {wait_s:g} s in vain" if past.waited and past.waited >= wait_s else ""
        before = f"{reason}. " if reason else ""
        return Deny(reason=f"{before}{why}{vain} ({name})"[:MAX_REASON], rule_name=name[:MAX_RULE])
    return None


def _barriers(rule: OrderMatcher, call: ToolSelecting, past: Past) -> list[tuple[State, str]]:
    """List the obstacles to a call; those that waiting cannot remove come first."""
    found: list[tuple[State, str]] = []
    history, now, tool = past.history, past.now, call.tool_name
    if (most := rule.at_most) is not None:
        state = history.count(most, rule.tools, rule.when, call, now)
        if state != "met":
            found.append((state, _describe_limit(most, call)))
    if (need := rule.unless_after) is not None:
        state = history.judge(need, call, now, True)
        done = "has run" if state == "met" else "is under way"
        if state != "unmet":
            words = f"{tool} may not run after {_words(need, against=True)}, which {done}"
            found.append(("unmet" if state == "met" else state, words))
    if (need := rule.after) is not None:
        state = history.judge(need, call, now, False)
        begun = state == "under way"
        todo = "It is under way: call this again when it has ended" if begun else "Do that first"
        if state != "met":
            found.append((state, f"{tool} may run only after {_words(need)}. {todo}"))
    return sorted(found, key=lambda one: one[0] == "under way")


def _describe_limit(most: CallCount, call: ToolSelecting) -> str:
    again = "Do something else, or answer with what you have."
    where = f"{_in_scope(most.scope, against=True)}{_in_time(most.within_s)}"
    if most.sum is None:
        times = "once" if most.n == 1 else f"{most.n} times"
        return f"{call.tool_name} may run {times}{where}, and it has. {again}"
    name = most.sum.removeprefix("$.")
    if read_amount(most.sum, call.tool_input) is None:
        return f"{call.tool_name} needs a number as {name}, so that it can be added up. Give it as a number"
    return f"{name} of {call.tool_name} may come to {most.n:,} in all{where}, and this would be more. {again}"


def _words(need: Precondition, *, against: bool = False) -> str:
    ended = {True: "ended well", False: "failed", None: "ended"}[need.success]
    pairs = [f"{there.removeprefix('$.')} = {here}" for here, there in need.same.items()]
    how = f" with {' and '.join(pairs[:_SHOWN])}" if pairs else ""
    told = [" (with arguments that the rule requires)"] if need.when else []
    more = "".join([*told, *([" (with a result that the rule requires)"] if need.result else [])])
    when = f"{_in_scope(need.scope, against=against)}{_in_time(need.within_s)}"
    return f"{_tools(need.tool)}{how}{more} has {ended}{when}"


def _tools(globs: Globs) -> str:
    return " or ".join(globs[:_SHOWN]) + (" or others" if len(globs) > _SHOWN else "")


def _in_scope(scope: str, *, against: bool) -> str:
    if scope == "own-session" or (scope == "session" and not against):
        return " in this session"
    if scope in ("session", "tree"):
        return " in this session or those of its agents"
    return f" for the same {scope.removeprefix(LABEL)}"


def _in_time(seconds: float) -> str:
    return "" if seconds == MAX_WINDOW_S else f" within {seconds:g} seconds"
