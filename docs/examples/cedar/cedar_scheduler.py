"""A scheduler that asks Cedar: toolgate scheduler run cedar_scheduler:rule"""

from pathlib import Path

from cedarpy import PolicySet, is_authorized
from toolgate_schedulers import Continue, Deny, ToolSelecting, Verdict, scheduler

POLICIES = PolicySet.from_str(Path(__file__).with_name("policies.cedar").read_text(encoding="utf-8"))


def entity(kind: str, name: str) -> dict[str, str]:
    """Return an entity as Cedar takes it; no quote in a name can end it."""
    return {"type": kind, "id": name}


@scheduler(name="cedar", tools=["*"])
def rule(call: ToolSelecting) -> Verdict:
    """Allow a call that Cedar permits, and that every policy could be evaluated for."""
    if call.truncated:
        return Deny(reason="an argument is too long to be seen by Cedar")
    request = {
        "principal": entity("Agent", call.agent),
        "action": entity("Action", call.tool_name),
        "resource": entity("Session", call.session),
        "context": dict(call.tool_input),
    }
    answer = is_authorized(request, POLICIES, [])
    if answer.diagnostics.errors:  # Cedar passes over a policy that fails, also one that forbids
        return Deny(reason=f"Cedar cannot evaluate it: {answer.diagnostics.errors[0]}")
    if answer.allowed:
        return Continue()
    return Deny(
        reason=", ".join(answer.diagnostics.id_annotations_by_reason.values()) or "no policy permits it"
    )
