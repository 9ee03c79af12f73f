"""What facts about calls, requests to LLMs and turns tell, whoever runs them: loops, guards, sidecars. Pure.

Their names are those of `protocol.fact_events`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from toolgate_bus.protocol.fact_events import PROVIDER_ERROR, TOOL_ERROR, TOOL_POST, TOOL_UNUSED, USAGE
from toolgate_bus.protocol.llm import LLM_REQUEST

Outcome = Literal["succeed", "fail", "release"]
"""What became of a call that was let through; `release`: it did not run."""
_TOOL: Final[Mapping[str, str]] = {"succeed": TOOL_POST, "fail": TOOL_ERROR, "release": TOOL_UNUSED}
_REQUEST: Final[Mapping[str, str]] = {"succeed": USAGE, "fail": PROVIDER_ERROR, "release": TOOL_UNUSED}


def end_event(outcome: Outcome, tool: str) -> str:
    """The fact that tells what became of a call."""
    return (_REQUEST if tool == LLM_REQUEST else _TOOL)[outcome]


def describe_place(
    session: str, root_session: str, agent: str, lineage: Sequence[str] = ()
) -> dict[str, Any]:
    """Whose call, request or turn it is; `lineage` is told of a sub-agent alone."""
    told: dict[str, Any] = {"session": session, "root_session": root_session, "agent": agent}
    if lineage:
        told["lineage"] = list(lineage)
    return told


def describe_call(
    tool: str, tool_call_id: str, decision_id: str, grants: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Of which call it tells; without an id nobody was asked about it."""
    told: dict[str, Any] = {"tool": tool, "tool_call_id": tool_call_id}
    if decision_id:
        told["decision_id"] = decision_id
    return told | describe_grants(grants)


def describe_grants(grants: Mapping[str, int] | None) -> dict[str, Any]:
    """The fencing numbers of what was given to a call, where anything was."""
    return {"grants": dict(grants)} if grants else {}


def describe_selection(replaced: str | None, group: str, iteration: int) -> dict[str, Any]:
    """That it was let through, in the place of the tool `replaced` if it is another one."""
    return {
        "source": "llm" if replaced is None else "scheduler",
        "original_tool": replaced,
        "parallel_group_id": group,
        "iteration": iteration,
    }


def describe_turn(
    loop: str,
    status: str,
    iterations: int,
    seconds: float,
    parent: str | None = None,
    lineage: Sequence[str] = (),
    trace: str | None = None,
) -> dict[str, Any]:
    """How a turn ended, and for whom it worked; `trace` is its traceparent."""
    told: dict[str, Any] = {"loop": loop, "status": status, "iterations": iterations, "seconds": seconds}
    if parent:
        told |= {"parent": parent, "lineage": list(lineage)}
    return told | ({"trace": trace} if trace else {})
