"""What callers are answered: rulings, reports and turns as bodies. Pure.

The models are for the description of the interface (`openapi`) and its tests; what is answered is written as
plain values, which a decision's path has time for.
"""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from toolgate_bus.protocol.events import Decision

REFUSED: Final = "The tool call was denied: "
"""How the sentence for the LLM begins, as in the loops."""
TOO_LATE: Final = "The call was held, and nobody answered in time; it was not run."
ENDING: Final = "The sidecar that rules on calls is ending; the call was not run. Try again."
STOPPED: Final = "An operator ended this agent's turn; the call was not run."


class ResponseBody(BaseModel):
    """A body that is answered."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class StopBody(ResponseBody):
    """An operator ends the turn."""

    now: bool
    """At once; false: after the tools that run."""
    by: str
    """Who said it."""


class RulingResponse(ResponseBody):
    """What is to become of a call."""

    id: str
    """The decision's id, by which the call is reported; empty where none was made."""
    outcome: Literal["continue", "modify", "deny", "ask", "pending"]
    """`continue` and `modify`: run `tool` with `arguments`. `deny`: run nothing, tell the LLM `refusal`.
    `ask`: a person is to be asked, see `question`. `pending`: it is held; `POST /v1/wait` with `token`."""
    why: str
    """How it came about: `agreed`, `unasked`, `denied`, `silent` …"""
    tool: str
    """What to run. Meaningless where nothing may run."""
    arguments: dict[str, Any]
    """With what."""
    agent_target: str | None = None
    """Whom it delegates to, where it does."""
    reason: str | None = None
    """In the words of who decided."""
    refusal: str | None = None
    """The sentence for the LLM, where nothing may run."""
    scheduler: str | None = None
    """Whose verdict decided, if it was one scheduler's."""
    token: str | None = None
    """Of `ask` and `pending`: how to go on with it."""
    question: dict[str, Any] | None = None
    """Of `ask`: `prompt`, `options`, `timeout_s`, for the person."""
    stop: StopBody | None = None
    """An operator ends this session's turn: end it."""


class ReportResponse(ResponseBody):
    """That a report was taken."""

    recorded: bool
    """False: it had been told before."""
    stop: StopBody | None = None
    """An operator ends this session's turn: end it."""


class TurnResponse(ResponseBody):
    """How a session's turn stands."""

    session: str
    """Its id."""
    busy: bool
    """Whether a turn runs."""
    stop: StopBody | None = None
    """An operator ends the turn."""
    paused: bool = False
    """Whether an operator has its next calls wait."""


class ProblemResponse(ResponseBody):
    """Why there is no answer (RFC 9457)."""

    type: str = Field(default="about:blank")
    """Always `about:blank`: the status says what kind it is."""
    title: str
    """The status, in words."""
    status: int
    """The status."""
    detail: str
    """What is wrong, and what to do."""


def body_of_ruling(decision: Decision) -> dict[str, Any]:
    """A decision as it is answered to a caller."""
    body: dict[str, Any] = {
        "id": decision.id,
        "outcome": decision.outcome,
        "why": decision.why,
        "tool": decision.tool_name,
        "arguments": decision.tool_input,
        "agent_target": decision.agent_target,
        "reason": decision.reason,
        "refusal": None,
        "scheduler": decision.scheduler,
    }
    if decision.allowed:
        return body
    if decision.pending and decision.prompt is not None:
        asked = decision.prompt
        question = {"prompt": asked.prompt, "options": asked.options, "timeout_s": asked.timeout_s}
        return {**body, "token": decision.token, "question": question}
    reason = decision.reason or f"no reason was given ({decision.why})"
    body |= {"outcome": "deny", "tool": decision.original_tool, "arguments": decision.original_input}
    return {**body, "agent_target": None, "reason": reason, "refusal": REFUSED + reason}


def denial_body(tool: str, arguments: dict[str, Any], why: str, reason: str) -> dict[str, Any]:
    """A denial that no decision stands behind."""
    return {
        "id": "",
        "outcome": "deny",
        "why": why,
        "tool": tool,
        "arguments": arguments,
        "agent_target": None,
        "reason": reason,
        "refusal": REFUSED + reason,
        "scheduler": None,
    }


def body_of_question(tool: str, arguments: dict[str, Any], token: str, reason: str) -> dict[str, Any]:
    """A call that is held still."""
    return {
        "id": "",
        "outcome": "pending",
        "why": "held",
        "tool": tool,
        "arguments": arguments,
        "agent_target": None,
        "reason": reason,
        "refusal": None,
        "scheduler": None,
        "token": token,
    }
