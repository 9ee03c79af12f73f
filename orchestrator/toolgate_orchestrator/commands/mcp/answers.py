"""What becomes of a ruling in MCP: a refused call's result, a notice, a question to the user and its
answer. Pure."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Literal

from toolgate_bus.protocol.money import dollars
from toolgate_bus.telemetry.printable import shorten

from toolgate_orchestrator.commands.mcp.messages import DECISION, Message, meta_of, with_meta

Answer = Literal["allow", "refuse", "expired", "no_approver"]

ELICIT: Final = "elicitation/create"
QUESTION: Final = "toolgate"
"""Under this key the user's answer comes back."""
_MAX_WORDS: Final = 4_000


def refusal_result(words: str, decision: str = "", *, modern: bool = False) -> Message:
    """The result of a call that was not run: an error that the LLM reads."""
    result: Message = {"content": [_text(shorten(words, _MAX_WORDS))], "isError": True}
    return _finish(with_meta(result, **{DECISION: decision}) if decision else result, modern=modern)


def _finish(result: Message, *, modern: bool) -> Message:
    return {**result, "resultType": "complete"} if modern else result


def with_notice(result: Message, notice: str) -> Message:
    """A result with a word on top: another call was made than the LLM had asked for."""
    content = result.get("content")
    return {**result, "content": [_text(notice), *(content if isinstance(content, list) else [])]}


def _text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


# ---------------------------------------------------------------- the user is asked


def elicitation(words: str) -> Message:
    """Parameters of the question to a client's user: to accept the form is to allow the call."""
    return {"mode": "form", "message": words, "requestedSchema": {"type": "object", "properties": {}}}


def older_elicitation(words: str) -> Message:
    """The same for revisions that know no modes."""
    return {key: value for key, value in elicitation(words).items() if key != "mode"}


def input_required(state: str, words: str) -> Message:
    """The result that has a client of the newer era ask its user, and call again."""
    return {
        "resultType": "input_required",
        "inputRequests": {QUESTION: {"method": ELICIT, "params": elicitation(words)}},
        "requestState": state,
    }


def answer_of(result: Any) -> Literal["allow", "refuse"]:
    """What a user said to the form; anything but to accept it is a refusal."""
    return "allow" if isinstance(result, Mapping) and result.get("action") == "accept" else "refuse"


def answer_in(params: Mapping[str, Any]) -> Literal["allow", "refuse"]:
    """The answer to our question that a call brings along."""
    responses = params.get("inputResponses")
    return answer_of(responses.get(QUESTION)) if isinstance(responses, Mapping) else "refuse"


def needs_input(result: Mapping[str, Any]) -> bool:
    """Whether a server has not done the call, but asks for something first."""
    return result.get("resultType") == "input_required"


# ---------------------------------------------------------------- what it cost


def cost_of(result: Mapping[str, Any], key: str) -> Decimal | None:
    """What a result says that it cost, under a key of its `_meta`; None where it says nothing of use."""
    return dollars(meta_of(result).get(key)) if key else None
