"""Turns rulings into MCP: the result of a refused call, a notice, a question to the user and its answer.
Pure."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Literal

from toolgate_bus.protocol.money import dollars
from toolgate_bus.telemetry.printable import shorten

from toolgate_orchestrator.commands.mcp.messages import DECISION, Message, meta_of, with_meta

Answer = Literal["allow", "refuse", "expired", "no_approver"]

ELICIT: Final = "elicitation/create"
QUESTION: Final = "toolgate"
"""Key under which the user's answer comes back."""
_MAX_WORDS: Final = 4_000


def refusal_result(words: str, decision: str = "", *, modern: bool = False) -> Message:
    """Return the result of a call that did not run: an error that the LLM reads."""
    result: Message = {"content": [_text(shorten(words, _MAX_WORDS))], "isError": True}
    return _finish(with_meta(result, **{DECISION: decision}) if decision else result, modern=modern)


def withheld_question(why: str) -> str:
    """Return the words for the LLM if a server's question to the client is not shown."""
    return f"The tool call failed: the tool asked for an answer first, and its question is withheld: {why}"


def _finish(result: Message, *, modern: bool) -> Message:
    return {**result, "resultType": "complete"} if modern else result


def with_notice(result: Message, notice: str) -> Message:
    """Return the result with a notice on top: another call ran than the LLM had asked for."""
    content = result.get("content")
    return {**result, "content": [_text(notice), *(content if isinstance(content, list) else [])]}


def _text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


# ---------------------------------------------------------------- questions to the user


def elicitation(words: str) -> Message:
    """Return the parameters of a question to the client's user. Accepting the form allows the call."""
    return {"mode": "form", "message": words, "requestedSchema": {"type": "object", "properties": {}}}


def older_elicitation(words: str) -> Message:
    """Return the same parameters for revisions of MCP without modes."""
    return {key: value for key, value in elicitation(words).items() if key != "mode"}


def input_required(state: str, words: str) -> Message:
    """Return the result that makes a client of the newer era ask its user and call again."""
    return {
        "resultType": "input_required",
        "inputRequests": {QUESTION: {"method": ELICIT, "params": elicitation(words)}},
        "requestState": state,
    }


def answer_of(result: Any) -> Literal["allow", "refuse"]:
    """Read a user's answer to the form. Anything but accepting it is a refusal."""
    return "allow" if isinstance(result, Mapping) and result.get("action") == "accept" else "refuse"


def answer_in(params: Mapping[str, Any]) -> Literal["allow", "refuse"]:
    """Return the user's answer that a call brings along."""
    responses = params.get("inputResponses")
    return answer_of(responses.get(QUESTION)) if isinstance(responses, Mapping) else "refuse"


def needs_input(result: Mapping[str, Any]) -> bool:
    """Return whether a server asks for something before it makes the call."""
    return result.get("resultType") == "input_required"


# ---------------------------------------------------------------- cost


def cost_of(result: Mapping[str, Any], key: str) -> Decimal | None:
    """Return the cost that a result reports under a key of its `_meta`; None if it reports none."""
    return dollars(meta_of(result).get(key)) if key else None
