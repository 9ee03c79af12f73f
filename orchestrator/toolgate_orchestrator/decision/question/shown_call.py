"""A question to a person in words: the scheduler's question, and the very call that would run. Pure."""

import json
from collections.abc import Mapping
from typing import Final

from toolgate_bus.protocol.events import AskUser, SentResult, ToolQuestion
from toolgate_bus.telemetry.printable import printable, shorten, visible

from toolgate_orchestrator.decision.question.plain_values import to_plain
from toolgate_orchestrator.decision.round.one_question import MAX_PROMPT

_MAX_ARGUMENTS: Final = 1_500
"""Most characters of all arguments that are shown. With prompt and name, `printable` shows them in full."""
_MAX_RESULT: Final = 1_000
"""Most characters of a result that are shown, of the room for all arguments; they have the rest."""
_MAX_TOOL: Final = 128
_MIN_ARGUMENT: Final = 24
"""Number of characters of each argument that are shown. If there is no room for that, some are left out."""


def question_text(ask: AskUser, call: ToolQuestion) -> str:
    """Return the scheduler's question, followed by the very call that would run, and the result if the
    question is about that. None hides another."""
    if call.result is None:
        return question_about(ask, call.tool_name, call.tool_input)
    words, most = shorten(printable(ask.prompt), MAX_PROMPT), _MAX_ARGUMENTS - _MAX_RESULT
    return f"{words}\n{shown_call(call.tool_name, call.tool_input, most)}\n{_shown_result(call.result)}"


def question_about(ask: AskUser, tool_name: str, tool_input: Mapping[str, object]) -> str:
    """Return the same text for a call that is known by its parts."""
    return f"{shorten(printable(ask.prompt), MAX_PROMPT)}\n{shown_call(tool_name, tool_input)}"


def _shown_result(result: SentResult) -> str:
    """Return a result on one line. Of a long one the beginning and the end are shown."""
    told = "result" if result.success else "error"
    text = visible(json.dumps(result.text, ensure_ascii=False) if result.form == "text" else result.text)
    if len(text) <= _MAX_RESULT and not result.is_cut:
        return f"{told}: {text}"
    return f"{told} (in part: {len(text)} characters in all): {_ends(text, _MAX_RESULT)}"


def shown_call(tool_name: str, tool_input: Mapping[str, object], most: int = _MAX_ARGUMENTS) -> str:
    """Return a call on one line, for a person who decides on it.

    Of each long argument the beginning and the end are shown, so that an LLM cannot fill the line with one.
    """
    arguments = _shown(tool_input)
    if len(arguments) > most:
        arguments = _in_part(tool_input, len(arguments), most)
    return f"{shorten(visible(tool_name), _MAX_TOOL)} {arguments}"


def _shown(value: object, *, in_parts: bool = True) -> str:
    """Return a value as JSON. A value without a plain form is shown by its type."""
    plain = to_plain(value)
    try:
        return visible(json.dumps(plain, ensure_ascii=False, default=_type_of))
    except (TypeError, ValueError, RecursionError):  # keys that are not texts, integers with too many digits
        if in_parts and type(plain) is dict:
            parts = (
                f"{_shown(key, in_parts=False)}: {_shown(one, in_parts=False)}" for key, one in plain.items()
            )
            return f"{{{', '.join(parts)}}}"
        return visible(_type_of(plain))


def _type_of(value: object) -> str:
    return f"⟦{type.__dict__['__name__'].__get__(type(value))}⟧"


def _in_part(arguments: Mapping[str, object], length: int, total: int) -> str:
    """Return each argument, cut to the room there is; shorter ones whole."""
    parts = [f"{_shown(name)}: {_shown(value)}" for name, value in arguments.items()]
    hidden = max(0, len(parts) - total // _MIN_ARGUMENT)
    parts = parts[: len(parts) - hidden]
    room, left = total, len(parts)
    most: dict[int, int] = {}
    for place in sorted(range(len(parts)), key=lambda one: len(parts[one])):
        most[place] = room // left
        room, left = room - min(len(parts[place]), most[place]), left - 1
    cut = ", ".join(_ends(part, most[place]) for place, part in enumerate(parts))
    more = f", and {hidden} more arguments" if hidden else ""
    return f"{{{cut}{more}}} (in part: {length} characters in all)"


def _ends(part: str, most: int) -> str:
    if len(part) <= most:
        return part
    last = most // 3
    return f"{part[: most - last - 1]}…{part[-last:]}"
