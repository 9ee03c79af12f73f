"""Sentences for an LLM, or a user, about a call that may not run. Pure."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import Decision


def reason_of(decision: "Decision") -> str:
    """Return the reason why a call may not run."""
    return decision.reason or f"no reason was given ({decision.why})"


def refuse_tool(reason: str) -> str:
    """Return the result of a tool call that was denied."""
    return f"The tool call was denied: {reason}"


def refuse_yet() -> str:
    """Return the interim result of a tool call that waits for a person's answer."""
    return "The tool call was not run yet: a person is asked about it."


def refuse_request(reason: str) -> str:
    """Return the answer that replaces that of a language model which was not asked."""
    return f"The language model was not asked: {reason}"


def withhold_answer(reason: str) -> str:
    """Return the answer that replaces one of a language model which may not be seen."""
    return f"The language model's answer is withheld: {reason}"


def withhold_error(reason: str) -> str:
    """Return the words that replace those of a language model's error which may not be seen."""
    return f"its error is withheld: {reason}"
