"""What a person is told of what came of an answer."""

import json
from typing import Any

from toolgate_bus.telemetry.printable import visible

from toolgate_schedulers.commands.approvals.answer import GONE, PROBLEMS, Outcome, changed, said
from toolgate_schedulers.commands.approvals.view import short
from toolgate_schedulers.shipped.approval.records import Answer, Approval

__all__ = ["failed", "told"]


def failed(approval: Approval, given: Answer, came: Outcome) -> str | None:
    """Why the answer did not do what it was meant to; None if it did, or if nothing is known yet."""
    if came.became == "gone":
        return "too late: nobody waits for this call any longer; it was not run by this answer"
    if came.became == "changed":
        return changed(came.instead) if came.instead else "the call changed after it was shown; list it again"
    if came.gone:
        return GONE.format(short(approval.id))
    if came.decision is None:
        return None
    if came.late or (given.action == "deny" and _allowed(came.decision)):
        how = f"{came.decision.get('outcome')}, {came.decision.get('why')}"
        return f"too late: the call had been decided ({visible(how)}); nothing was done by this answer"
    if given.action == "deny":
        return None
    problem = _problem(approval, came.decision)
    if problem is not None:
        ran = f"; what ran instead: {_call(came.decision)}" if _allowed(came.decision) else ""
        return f"the correction was set aside: {PROBLEMS.get(problem, problem)}{ran}"
    if not _allowed(came.decision):
        return f"the call was not run all the same: {visible(str(came.decision.get('reason')))}"
    return None


def told(approval: Approval, given: Answer, came: Outcome) -> str:
    """What came of an answer that was not in vain."""
    done = said(given)
    if came.became is None and came.decision is None:
        return (
            f"Kept: {done}. No replica of {approval.scheduler} has taken it up yet; one that is started will."
        )
    if came.instead is not None:
        return f"{done}. Then {changed(came.instead)}"
    if given.action == "deny":
        return f"{done}."
    if came.decision is None:
        return f"{done}. Others have still to rule on the call."
    return f"{done}: {_call(came.decision)}"


def _allowed(decision: dict[str, Any]) -> bool:
    return decision.get("outcome") in ("continue", "modify")


def _problem(approval: Approval, decision: dict[str, Any]) -> str | None:
    return next(
        (
            str(verdict["problem"])
            for verdict in decision.get("verdicts", ())
            if verdict.get("scheduler") == approval.scheduler and verdict.get("problem")
        ),
        None,
    )


def _call(decision: dict[str, Any]) -> str:
    arguments = json.dumps(decision.get("final_input"), ensure_ascii=False, default=repr)
    return visible(f"{decision.get('final_tool')} {arguments}")
