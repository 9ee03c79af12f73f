"""Answer calls at the desk: find the call that a person means, answer it once, and report the outcome.

Nothing is printed here and no server is named, so it works on any desk.
"""

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import anyio
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.telemetry.printable import visible

from toolgate_schedulers.commands.approvals.view import one_line, short
from toolgate_schedulers.shipped.approval.messages import person
from toolgate_schedulers.shipped.approval.queue import ApprovalQueue, ApprovalStatus, WaitingCall
from toolgate_schedulers.shipped.approval.records import Approval, ApprovalAnswer, StandingApproval, always_id

LOOK_S: Final = 0.05
MIN_DIGITS: Final = 4
GONE: Final = (
    "nobody waits for {} any longer: the agent that asked is gone (its process ended, or lost the bus); "
    "if it comes back, answer again"
)
_DONE: Final = {"approve": "approved", "deny": "refused", "edit": "corrected"}
PROBLEMS: Final = {
    "unavailable_tool": "the agent does not have that tool",
    "ambiguous_tool": "two functions of the agent have that name, so it is not clear which one is meant",
    "not_allowed": "the plan does not let this scheduler choose that tool (can_modify)",
    "schema": "the arguments do not fit the tool's schema",
    "placeholder": "the arguments hold a placeholder that may not go to that tool",
    "agent": "there is no such agent to delegate to",
}

Fact = dict[str, Any]
DecisionLookup = Callable[[str], Awaitable[Fact | None]]
"""Function that returns the decision with this id, if it was told since the last call."""


class Person(NamedTuple):
    """Person who answers, and their host."""

    name: str
    host: str


class AnswerOutcome(NamedTuple):
    """Outcome of an answer, as far as it is known."""

    became: ApprovalStatus | None
    decision: Fact | None = None
    instead: WaitingCall | None = None
    """Call of the same decision that waits now."""
    late: bool = False
    """True if the decision was made before the answer."""
    gone: bool = False
    """True if the agent that asked is gone, so that the answer has no effect."""


async def find(desk: ApprovalQueue, prefix: str) -> WaitingCall:
    """Return the waiting call whose id begins with this prefix.

    Raise ToolgateError, which says what became of the call, if there is none or more than one.
    """
    digits = _digits(prefix)
    held = await desk.list_held()
    waiting = [one for one in held if not one.gone]
    meant = [one for one in waiting if has_id_prefix(one, digits)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ToolgateError(f"{len(meant)} calls begin with {digits}: give more of the id")
    if any(has_id_prefix(one, digits) for one in held):
        raise ToolgateError(GONE.format(digits))
    approval = await past(desk, digits)
    raise ToolgateError(await _explain_absence(desk, approval, waiting))


def has_id_prefix(one: WaitingCall, digits: str) -> bool:
    """Return whether the digits begin the call's own id, or the id of its decision, which the asker is
    shown."""
    return one.approval.id.startswith(digits) or one.approval.question.id.startswith(digits)


async def past(desk: ApprovalQueue, prefix: str) -> Approval:
    """Return the call, waiting or not, whose id begins with this prefix; raise ToolgateError if it is not
    found."""
    digits = _digits(prefix)
    ids = await desk.find_ids(digits)
    if len(ids) > 1:
        raise ToolgateError(f"{len(ids)} calls begin with {digits}: give more of the id")
    approval = await desk.approval(ids[0]) if ids else None
    if approval is None:
        raise ToolgateError(f"no call begins with {digits}; `toolgate approvals list` shows what waits")
    return approval


def _digits(prefix: str) -> str:
    digits = prefix.strip().lower()
    if not re.fullmatch(rf"[0-9a-f]{{{MIN_DIGITS},32}}", digits):
        raise ConfigError(
            f"ID: must be {MIN_DIGITS} to 32 hexadecimal digits, as `toolgate approvals list` shows them"
        )
    return digits


async def _explain_absence(desk: ApprovalQueue, approval: Approval, waiting: list[WaitingCall]) -> str:
    instead = _instead(approval, waiting)
    if instead is not None:
        return describe_change(instead)
    given = await desk.answer_to(approval.id)
    if given is not None:
        return f"{short(approval.id)} was {describe_answer(given)} already"
    return (
        f"nobody waits for {short(approval.id)} any longer: it expired, the turn ended, "
        "or another scheduler denied it"
    )


def _instead(approval: Approval, waiting: list[WaitingCall]) -> WaitingCall | None:
    decision = approval.question.id
    others = [
        one for one in waiting if one.approval.question.id == decision and one.approval.id != approval.id
    ]
    return next((one for one in others if one.approval.scheduler == approval.scheduler), None)


def describe_change(instead: WaitingCall) -> str:
    """Say that the call has changed, and show the one that waits in its place."""
    new = instead.approval
    return (
        f"the call changed after it was shown; what would run now is\n  {one_line(new.question)}\n"
        f"Look at it: toolgate approvals show {short(new.id)}"
    )


def describe_answer(given: ApprovalAnswer) -> str:
    """Describe an answer, as a part of a sentence."""
    why = f" ({visible(given.reason)})" if given.reason else ""
    return f"{_DONE[given.action]} by {visible(person(given))}{why}"


async def answer(
    desk: ApprovalQueue,
    approval: Approval,
    who: Person,
    action: Literal["approve", "deny", "edit"],
    reason: str | None = None,
    corrected: tuple[str, Mapping[str, Any]] | None = None,
    standing: StandingApproval | None = None,
) -> ApprovalAnswer:
    """Give an answer about exactly this call, and let later ones pass if `standing` is given.

    Raise ToolgateError if another person answered first.
    """
    tool, arguments = corrected if corrected is not None else (None, None)
    mine = ApprovalAnswer(
        action=action,
        decision=approval.question.id,
        digest=approval.digest,
        tool=tool,
        arguments=None if arguments is None else dict(arguments),
        reason=reason,
        by=who.name,
        host=who.host,
        at=time.time(),
    )
    counts = await desk.answer(approval, mine, standing)
    if counts != mine:
        raise ToolgateError(
            f"{short(approval.id)} was {describe_answer(counts)} already: that answer counts, not yours"
        )
    return mine


def build_standing_rule(
    approval: Approval, who: Person, reason: str | None, *, exactly: bool
) -> StandingApproval:
    """Make the approval that lets later calls like this one pass in its session; raise ToolgateError if that
    is not allowed."""
    call = approval.question
    if not approval.always:
        raise ToolgateError(f"--always: {approval.rule or 'its rule'} requires a person for each call")
    if not call.session:
        raise ToolgateError("--always: the agent names no session to bind it to")
    if exactly and "⟦toolgate:" in repr(call.tool_input):
        raise ToolgateError(
            "--exactly: the arguments hold placeholders, which differ in every call: leave --exactly out"
        )
    digest = approval.digest if exactly else None
    return StandingApproval(
        id=always_id(approval, digest),
        scheduler=approval.scheduler,
        session=call.session,
        tool=call.tool_name,
        rule=approval.rule,
        digest=digest,
        reason=reason,
        by=who.name,
        host=who.host,
        at=time.time(),
    )


async def resolve_outcome(
    desk: ApprovalQueue, one: WaitingCall, came: AnswerOutcome, earlier: DecisionLookup
) -> AnswerOutcome:
    """Complete an outcome that is not known yet: the call may have been decided earlier, or its agent may be
    gone.

    `earlier` finds a decision that was told at any time.
    """
    if came.decision is not None or came.instead is not None or came.became in ("gone", "changed"):
        return came
    if await desk.find_gone({one.orchestrator}):
        return came._replace(gone=True)
    decision = await earlier(one.approval.question.id)
    if decision is None:
        return came
    # The scheduler that asks people rules only after a person has answered. If it has a verdict, the answer
    # was not too late, even if the replica that gave it died before it could record that.
    own = [each for each in decision.get("verdicts", ()) if each.get("scheduler") == one.approval.scheduler]
    ruled = any(each.get("action") not in ("hold", None) for each in own)
    return came._replace(decision=decision, late=not ruled)


async def outcome(
    desk: ApprovalQueue, approval: Approval, decided: DecisionLookup, wait_s: float
) -> AnswerOutcome:
    """Wait for the outcome of an answer, for `wait_s` seconds at most."""
    seen = AnswerOutcome(None)
    with anyio.move_on_after(wait_s):
        while True:
            became = await desk.get_status(approval.id)
            seen = seen._replace(became=became)
            if became == "gone":
                break
            if became is not None:
                decision = await decided(approval.question.id)
                instead = None if decision else _instead(approval, await desk.list_waiting())
                seen = AnswerOutcome(became, decision, instead)
                if decision or instead:
                    break
            await anyio.sleep(LOOK_S)
    return seen


def explain_failure(approval: Approval, given: ApprovalAnswer, came: AnswerOutcome) -> str | None:
    """Explain why the answer had no effect; None if it had, or if nothing is known yet."""
    if came.became == "gone":
        return "too late: nobody waits for this call any longer; your answer did not run it"
    if came.became == "changed":
        return (
            describe_change(came.instead)
            if came.instead
            else "the call changed after it was shown; list it again"
        )
    if came.gone:
        return GONE.format(short(approval.id))
    if came.decision is None:
        return None
    if came.late or (given.action == "deny" and _is_allowed(came.decision)):
        how = f"{came.decision.get('outcome')}, {came.decision.get('why')}"
        return f"too late: the call had been decided ({visible(how)}); your answer had no effect"
    if given.action == "deny":
        return None
    problem = next(
        (
            str(verdict["problem"])
            for verdict in came.decision.get("verdicts", ())
            if verdict.get("scheduler") == approval.scheduler and verdict.get("problem")
        ),
        None,
    )
    if problem is not None:
        ran = f"; what ran instead: {_call(came.decision)}" if _is_allowed(came.decision) else ""
        return f"the correction was set aside: {PROBLEMS.get(problem, problem)}{ran}"
    if not _is_allowed(came.decision):
        return f"the call still did not run: {visible(str(came.decision.get('reason')))}"
    return None


def describe_outcome(approval: Approval, given: ApprovalAnswer, came: AnswerOutcome) -> str:
    """Describe the outcome of an answer that had an effect."""
    done = describe_answer(given)
    if came.became is None and came.decision is None:
        return (
            f"Stored: {done}. No replica of {approval.scheduler} has taken it up yet. The next one that "
            "starts will."
        )
    if came.instead is not None:
        return f"{done}. Then {describe_change(came.instead)}"
    if given.action == "deny":
        return f"{done}."
    if came.decision is None:
        return f"{done}. Other schedulers have still to rule on the call."
    return f"{done}: {_call(came.decision)}"


def _is_allowed(decision: dict[str, Any]) -> bool:
    return decision.get("outcome") in ("continue", "modify")


def _call(decision: dict[str, Any]) -> str:
    arguments = json.dumps(decision.get("final_input"), ensure_ascii=False, default=repr)
    return visible(f"{decision.get('final_tool')} {arguments}")
