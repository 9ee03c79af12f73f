"""Turn a person's answer into the verdict, with the words for the LLM and the record. Pure."""

import json
from typing import Any

from toolgate_bus.errors import TooFewReplicas
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Modify, ToolSelecting, Verdict

from toolgate_schedulers.shipped.approval.config import ApprovalNeed
from toolgate_schedulers.shipped.approval.records import ApprovalAnswer, StandingApproval

STORE_AWAY = "This call needs a person's approval, but nobody can be asked at the moment. Try again later."
_SHOWN = 600


def not_replicated(error: TooFewReplicas) -> str:
    """Return the reason that nobody is asked: too few replicas of the server have the write."""
    return (
        f"This call needs a person's approval, which could not be stored safely: {error}. "
        "Try again later. The operator of Toolgate must check the server's replicas."
    )


def verdict_of(answer: ApprovalAnswer, question: ToolSelecting) -> Verdict:
    """Return the verdict that answers a held question, from the person's answer about exactly this call."""
    why = f": {answer.reason}" if answer.reason else ""
    if answer.action == "approve":
        return Continue(reason=f"approved by {person(answer)}{why}")
    if answer.action == "deny":
        return Deny(reason=f"A person was asked about this call and refused it{why} ({answer.by})")
    if question.phase == "verify":  # a person corrects the LLM's own call alone
        wanted = json.dumps(answer.arguments, ensure_ascii=False)[:_SHOWN]
        return Deny(
            reason=f"A person was asked about this call and corrected it{why} ({answer.by}); "
            f"call {answer.tool} with {wanted} instead"
        )
    return Modify(
        tool=answer.tool or question.tool_name,
        arguments=answer.arguments,
        reason=f"corrected by {person(answer)}{why}",
    )


def make_ask_user(need: ApprovalNeed, call: ToolSelecting) -> AskUser:
    """Return the verdict that makes the app ask."""
    more: dict[str, Any] = {} if need.rule.options is None else {"options": need.rule.options}
    return AskUser(
        prompt=need.prompt or f"May {call.tool_name} run? ({need.called})",
        timeout_s=need.rule.expires_s,
        reason=f"{call.tool_name} needs a person's approval ({need.called})",
        **more,
    )


def person(record: ApprovalAnswer | StandingApproval) -> str:
    """Return the person's name, and the host if it is known."""
    return f"{record.by}@{record.host}" if record.host else record.by
