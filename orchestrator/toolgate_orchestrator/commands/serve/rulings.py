"""The bodies that callers get as answers: rulings, reports and turns. Pure.

The models are for the description of the interface (`openapi`) and its tests. Answers are written as plain
values, so that decisions stay fast.
"""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from toolgate_bus.protocol.events import Decision

REFUSED: Final = "The tool call was denied: "
"""Beginning of the sentence for the LLM, the same as in the loops."""
TOO_LATE: Final = "The call was held, and nobody answered in time; it was not run."
ENDING: Final = "The sidecar that rules on calls is ending; the call was not run. Try again."
STOPPED: Final = "An operator ended this agent's turn; the call was not run."
RESULT_LATE: Final = "it was held, and nobody answered in time."
RESULT_ENDING: Final = "the sidecar that rules on it is ending."
RESULT_STOPPED: Final = "an operator ended this agent's turn."


class ResponseBody(BaseModel):
    """A body of an answer."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class StopBody(ResponseBody):
    """An operator's order to end the turn."""

    now: bool
    """True: end it at once. False: end it after the tools that run."""
    by: str
    """Name of the operator."""


class RulingResponse(ResponseBody):
    """The ruling on a call."""

    id: str
    """Id of the decision, by which the call is reported; empty if none was made."""
    outcome: Literal["continue", "modify", "deny", "ask", "pending"]
    """`continue` and `modify`: run `tool` with `arguments`. `deny`: run nothing, and tell the LLM `refusal`.
    `ask`: ask a person, see `question`. `pending`: the call is held; call `POST /v1/wait` with `token`."""
    why: str
    """Cause of the outcome: `agreed`, `unasked`, `denied`, `silent` …"""
    tool: str
    """Tool to run. Meaningless if nothing may run."""
    arguments: dict[str, Any]
    """Arguments of the tool."""
    agent_target: str | None = None
    """Agent to which the call delegates, if it does."""
    reason: str | None = None
    """Reason, in the words of the scheduler that decided."""
    refusal: str | None = None
    """Sentence for the LLM, if nothing may run."""
    scheduler: str | None = None
    """Scheduler whose verdict decided, if it was one scheduler's."""
    token: str | None = None
    """Token that resumes a call after `ask` or `pending`."""
    question: dict[str, Any] | None = None
    """Question to the person after `ask`: `prompt`, `options`, `timeout_s`."""
    stop: StopBody | None = None
    """Order of an operator to end this session's turn: end it."""
    rules_on_result: bool = False
    """True if schedulers rule on the result of this call: post it to `/v1/result`, and use the answer."""


class ResultResponse(ResponseBody):
    """The ruling on a result."""

    outcome: Literal["released", "masked", "replaced", "withheld", "pending"]
    """`released`, `masked`, `replaced`: use `result`. `withheld`: give the LLM `result`, a sentence, in its
    place. `pending`: the result is held; post the same body again, and use nothing of it until then."""
    why: str
    """Cause of the outcome: `unasked`, `agreed`, `masked`, `denied`, `silent` …"""
    result: Any
    """Result to use in place of the call's own; the same if it was released."""
    reason: str | None = None
    """Reason, in the words of the scheduler that decided."""
    scheduler: str | None = None
    """Scheduler whose verdict decided, if it was one scheduler's."""


class ReportResponse(ResponseBody):
    """The answer to a report."""

    recorded: bool
    """False if it was reported before."""
    stop: StopBody | None = None
    """Order of an operator to end this session's turn: end it."""


class TurnResponse(ResponseBody):
    """State of a session's turn."""

    session: str
    """Id of the session."""
    busy: bool
    """True if a turn runs."""
    stop: StopBody | None = None
    """Order of an operator to end the turn."""
    paused: bool = False
    """True if an operator paused the session: its next calls wait."""


class ProblemResponse(ResponseBody):
    """An error (RFC 9457)."""

    type: str = Field(default="about:blank")
    """Always `about:blank`: the status tells the kind."""
    title: str
    """Status, in words."""
    status: int
    """Status code of HTTP."""
    detail: str
    """What is wrong, and what to do."""


def body_of_ruling(decision: Decision) -> dict[str, Any]:
    """Return a decision as the answer to a caller."""
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


def body_of_held_result() -> dict[str, Any]:
    """Return the answer for a result that is still held."""
    return {"outcome": "pending", "why": "held", "result": None, "reason": None, "scheduler": None}


def denial_body(tool: str, arguments: dict[str, Any], why: str, reason: str) -> dict[str, Any]:
    """Return a denial that no decision stands behind."""
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
    """Return the answer for a call that is still held."""
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
