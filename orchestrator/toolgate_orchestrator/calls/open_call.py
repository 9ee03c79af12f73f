"""A call that was let through, until its end is reported, with the fields of all facts about it. Pure.

open ─▶ tool:selected         succeed ─▶ tool:post    (of a request to an LLM: usage)
                              fail    ─▶ tool:error   (provider:error)
                              release ─▶ tool:unused
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from toolgate_bus.protocol.fact_events import (
    LABELLED,
    PROVIDER_ERROR,
    TOOL_ERROR,
    TOOL_POST,
    TOOL_SELECTED,
    TOOL_UNUSED,
    USAGE,
)
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.names import MAX_GRANTS
from toolgate_bus.telemetry.definitions import OTHER

from toolgate_orchestrator.decision.question.call import to_text

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import Decision

    from toolgate_orchestrator.decision.question.call import Call

Outcome = Literal["succeed", "fail", "release"]
"""End of a call that was let through; `release`: it did not run."""
Fact = tuple[str, dict[str, Any]]
"""Event and data, as `Gate.note` takes them."""
_TOOL: Final[Mapping[str, str]] = {"succeed": TOOL_POST, "fail": TOOL_ERROR, "release": TOOL_UNUSED}
_REQUEST: Final[Mapping[str, str]] = {"succeed": USAGE, "fail": PROVIDER_ERROR, "release": TOOL_UNUSED}
_NOTHING: Final[Mapping[str, Any]] = {}
_MAX_INTEGER: Final = 2**63 - 1


class OpenCall(NamedTuple):
    """A call that may run."""

    key: str
    """Name under which operators see it while it runs."""
    tool: str
    """Tool that runs, which may be another than the LLM asked for."""
    about: Mapping[str, Any]
    """Fields of each fact about it: `tool`, `tool_call_id`, `decision_id`, `grants`, and whose it is."""
    labels: Mapping[str, str]
    """Labels by which a request to an LLM is booked; empty for a tool."""
    request: Mapping[str, Any]
    """`provider`, `model`, `estimated_tokens` and `iteration` of a request to an LLM; empty for a tool."""
    replaced: str | None
    """Tool in whose place it runs; None for the LLM's own choice."""
    group: str
    iteration: int
    since: float
    """Moment when it was let through, in seconds of a monotonic clock."""

    @property
    def decision(self) -> str:
        """Id of the decision that let it through; empty if nobody was asked."""
        return str(self.about.get("decision_id", ""))

    @property
    def grants(self) -> Mapping[str, int]:
        """Fencing number of what each scheduler gave to it in `admit`, by scheduler."""
        found: Mapping[str, int] = self.about.get("grants", _NOTHING)
        return found

    @property
    def session(self) -> str:
        """Id of its session."""
        return str(self.about["session"])

    @property
    def tree(self) -> str:
        """Root session, or the agent if no session is known. Bounds go by it."""
        return str(self.about["root_session"] or self.about["agent"])

    def selected(self) -> Fact:
        """Return the fact that it was let through."""
        return TOOL_SELECTED, {
            **self.about,
            "tool_name": self.tool,
            "source": "llm" if self.replaced is None else "scheduler",
            "original_tool": self.replaced,
            "parallel_group_id": self.group,
            "iteration": self.iteration,
        }

    def ended(self, outcome: Outcome, seconds: float, told: Mapping[str, Any] = _NOTHING) -> Fact:
        """Return the fact of its end, after so many seconds; `told` is from its door (`cost`, `error` …)."""
        if self.tool != LLM_REQUEST:
            event, fact = _TOOL[outcome], {**self.about}
        else:
            event, fact = _REQUEST[outcome], {**self.about, **self.request}
        if event in LABELLED:
            fact["labels"] = {**self.labels}
        if outcome != "release":
            fact["seconds"] = max(0.0, seconds)
        fact.update(told)
        return event, fact


def open_call(
    call: "Call",
    decision: "Decision | None",
    whose: Mapping[str, Any],
    labels: Mapping[str, str],
    key: str,
    now: float,
) -> OpenCall:
    """Return the call that a decision lets through; without one, the call as the LLM chose it."""
    tool, replaced, given = call.tool, None, call.arguments
    grants: Mapping[str, int] = _NOTHING
    if decision is not None:
        tool, grants, given = decision.tool_name, decision.grants, decision.tool_input
        replaced = decision.original_tool if decision.outcome == "modify" else None
    is_request = tool == LLM_REQUEST
    # An LLM may name anything: an unknown tool is `other` in metrics and budgets.
    label = tool if is_request or tool in (call.tools or (call.tool,)) else OTHER
    about: dict[str, Any] = {"tool": label, "tool_call_id": as_text(call.id), **whose}
    if decision is not None:
        about["decision_id"] = decision.id
    if grants:
        about["grants"] = dict(islice(grants.items(), MAX_GRANTS))
    number, group = _as_number(call.iteration), as_text(call.group)
    request = _describe_request(given, number) if is_request else _NOTHING
    return OpenCall(key, tool, about, labels, request, replaced, group, number, now)


def describe_place(
    session: str, root_session: str, agent: str, lineage: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the caller of a call, request or turn as facts name it; only a sub-agent has `lineage`."""
    told: dict[str, Any] = {
        "session": as_text(session),
        "root_session": as_text(root_session),
        "agent": as_text(agent),
    }
    if lineage:
        told["lineage"] = list(map(as_text, (lineage,) if isinstance(lineage, str) else lineage))
    return told


def as_text(value: Any) -> str:
    """Return a name or an id as it travels; nearly all are unchanged."""
    return value if type(value) is str and value.isascii() else to_text(value)


def _as_number(value: Any) -> int:
    return value if type(value) is int and abs(value) <= _MAX_INTEGER else 0


def _describe_request(asked: Mapping[str, Any], iteration: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        name: as_text(asked[name]) for name in ("provider", "model") if isinstance(asked.get(name), str)
    }
    if type(tokens := asked.get("input_tokens")) is int and _as_number(tokens) == tokens:
        told["estimated_tokens"] = tokens
    return told | {"iteration": iteration}
