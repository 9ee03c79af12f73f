"""An error of a provider, as hooks, the host and the user may see it.

    raised ─▶ as a result of `llm:request` ─▶ as the sentence for the user, `turn:output` ─▶ provider:error
                                                                                          └▶ end of the turn

A part of it that anybody hides is in none of these: the error is replaced by a new one of its type.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from toolgate_orchestrator.calls.refusal import withhold_error
from toolgate_orchestrator.decision.results.given_result import GivenResult, show_error
from toolgate_orchestrator.turn.calls.ruled_output import clean_fact
from toolgate_orchestrator.turn.llm.gate import Admission, LlmGate
from toolgate_orchestrator.turn.points import PointRuling
from toolgate_orchestrator.turn.values.foreign_code import name_of, words_of
from toolgate_orchestrator.turn.values.tool_signals import signals_of

_START: Final = "The language model could not answer: "

RuleOnOutput = Callable[[str], Awaitable[PointRuling]]
"""Asks about a text for the user."""
Tell = Callable[[dict[str, Any]], None]
"""Takes the fields of a request's fact that tell of its error."""


class LlmFailure(Exception):  # noqa: N818 - control flow inside the turn engine, caught by it
    """The provider could not answer; the text is fit for the user."""

    def __init__(self, ruled: "RuledError") -> None:
        super().__init__(ruled.sentence)
        self.error = ruled.error


class RuledError(NamedTuple):
    """A provider's error as it may be seen."""

    error: Exception
    """The provider's own, if nobody hid any of it."""
    sentence: str
    """Text for the user."""
    payload: dict[str, Any]
    """Fields of provider:error."""


async def rule_on_error(
    error: Exception,
    tell: Tell,
    gate: LlmGate | None = None,
    asked: Admission | None = None,
    rule_on_output: RuleOnOutput | None = None,
) -> RuledError:
    """Return a provider's error as it may be seen, and tell its fact in any case.

    `asked` is the request that failed, as it was put to schedulers.
    """
    kind, given = name_of(error), GivenResult(error)
    told = {"error": kind, **signals_of(error)}
    try:
        if gate is not None and asked is not None and gate.rules_on_answers:
            given = await gate.give(asked, error, success=False)
            if given.outcome == "withheld":
                given = given._replace(value=withhold_error(given.reason or given.why))
        shown, told = show_error(error, given), clean_fact(given, told)
        sentence = f"{_START}{told['error']}: {words_of(shown)}"
        ruled = PointRuling(sentence) if rule_on_output is None else await rule_on_output(sentence)
    except BaseException:  # it is cancelled; the request was sent, and is paid for
        tell({"error": kind})
        raise
    if ruled.text != sentence:
        given = GivenResult(ruled.text.removeprefix(f"{_START}{told['error']}: "), "replaced")
        shown, told = show_error(error, given), clean_fact(given, told)
    tell(told)
    status = getattr(error, "status_code", None)
    payload = {
        "error": {"type": told["error"], "msg": words_of(shown)},
        "retryable": getattr(error, "retryable", False) is True,
        "status_code": status if shown is error or _is_status(status) else None,
    }
    return RuledError(shown, ruled.text, payload)


def _is_status(value: Any) -> bool:
    """Return whether a value is a status of HTTP: any other number may tell what was hidden."""
    return type(value) is int and 100 <= value <= 599
