"""Explain in plain words what schedulers ruled on the result of a call. No record has a hidden text."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolgate_bus.telemetry.printable import shorten

Fact = Mapping[str, Any]

_MAX_LENGTH: Final = 2000
_MAX_PARTS: Final = 8
"""Parts of one mask that are named; the rest is counted."""
_OUTCOMES: Final = {
    "released": "The result was given as it was",
    "masked": "The result was given without what was masked",
    "replaced": "Another result was given in its place",
    "withheld": "The result was withheld: the LLM was told that the tool ran, and why it sees no result",
    "cancelled": "Nobody got the result: the ruling on it was cancelled",
}
_WHYS: Final = {
    "agreed": "all who were asked said continue",
    "failed_open": "optional schedulers did not answer, and nobody objected",
    "silent": "a required scheduler gave no valid answer",
    "expired": "a hold, or the question to a person, ran out",
    "refused": "the person who was asked refused",
    "no_approver": "a person was to be asked, and there was none",
    "bus_down": "the server could not be reached",
    "gate_failed": "the gate could not rule on it",
}
_WORDS: Final = {
    "continue": "said continue",
    "deny": "withheld it",
    "mask": "masked parts of it",
    "replace": "gave another result",
    "ask_user": "wanted a person asked",
    "hold": "held it",
    "failed": "could not decide, which counts as silence",
}


def explain_result(decision: Fact) -> Iterable[str]:
    """Give the sentences about the ruling on a decision's result; none if nobody ruled on it."""
    result = decision.get("result")
    if not isinstance(result, Mapping) or not result.get("outcome"):
        return
    outcome, why = str(result["outcome"]), str(result.get("why"))
    size = result.get("size")
    about = f" of {size:,} bytes" if type(size) is int else ""
    words = _OUTCOMES.get(outcome, f"The ruling on the result ended as {outcome}")
    because = f", because {_WHYS[why]}" if why in _WHYS else ""
    yield f"{words.replace('result', f'result{about}', 1)}{because}."
    verdicts = result.get("verdicts")
    told = [one for one in verdicts if isinstance(one, Mapping)] if isinstance(verdicts, list) else []
    for verdict in told:
        yield _describe(verdict)
    silent = result.get("silent")
    for name in silent if isinstance(silent, list) else ():
        yield f"{name} gave no answer about it in time."
    if type(cut := result.get("cut")) is int and cut:
        yield f"Its last {cut:,} bytes were cut off, as no scheduler was sent them."
    for name in list_result_shadows(result):
        yield f"Had the shadow {name} counted, the LLM would not have got the result so."


def list_result_shadows(result: object) -> list[str]:
    """Return the shadows that would have changed what became of a result, by name."""
    if not isinstance(result, Mapping):
        return []
    verdicts = result.get("verdicts")
    named = set[str]()
    for told in (result, *(verdicts if isinstance(verdicts, list) else ())):
        names = told.get("disagreeing") if isinstance(told, Mapping) else None
        named |= {str(one) for one in names} if isinstance(names, list) else set()
    return sorted(named)


def describe_masks(verdict: Fact) -> str:
    """Return the places and names of what a verdict masks, or wanted to mask, for people; else nothing."""
    said = verdict.get("said")
    masks = said.get("masks") if isinstance(said, Mapping) else verdict.get("masks")
    if not isinstance(masks, list):
        return ""
    told = [_describe_part(one) for one in masks[:_MAX_PARTS] if isinstance(one, list) and len(one) == 4]
    more = f", and {len(masks) - _MAX_PARTS:,} more" if len(masks) > _MAX_PARTS else ""
    return f"{', '.join(told)}{more}"


def _describe_part(part: list[Any]) -> str:
    path, start, end, name = part
    where = f"at {path}" if path else "of the text" if start is not None or end is not None else "all of it"
    span = f", characters {start or 0} to {'the end' if end is None else end}"
    what = f"{name} " if name else ""
    return shorten(f"{what}{where}{span if start is not None or end is not None else ''}", _MAX_LENGTH)


def _describe(verdict: Fact) -> str:
    """Return one verdict on a result as a sentence."""
    name, action, reason = verdict.get("scheduler"), str(verdict.get("action")), verdict.get("reason")
    words = _WORDS.get(action, f"said {action}")
    again = " when asked again, about the other result" if verdict.get("again") else ""
    marks = [mark for mark in ("late", "shadow") if verdict.get(mark)]
    beside = f" ({', '.join(marks)}: it does not count)" if marks else ""
    masked = f": {parts}" if (parts := describe_masks(verdict)) else ""
    because = f", because: {shorten(str(reason), _MAX_LENGTH)}" if reason else ""
    return f"{name} {words}{again}{beside}{masked}{because}".removesuffix(".") + "."
