"""Tell the LLM with each request how calls refer to each other.

These messages are stored only if the LLM thinks: then all that it has seen must stay.

The rules are a system message. The input and the state follow as a user message: they hold texts of tools
and users, which must not have the authority of the system. Long values are clipped, as the LLM refers to
them and need not read them.
"""

import json
from collections.abc import Mapping
from typing import Any

from toolgate_orchestrator.loops.reactive_engine.state import Data

_CALLS = """\
How calls work here: each one starts while you are still writing, as soon as what it refers to is there,
side by side with the others.
- "_outputPath": "†state.name" in a call saves its result in the state.
- A value that is the string "†state.name" (or "†state.name.field", "†state.list.0", "†input.name") stands
  for what is there. A call that refers to a result waits for the call that saves it, even in the same
  response, in any order. Never guess a result: refer to it.
- A reference is always the whole string. Write "††" for a text that begins with †.
- A failed call comes back as a message of kind "error" with the call and the reason. Correct it."""

_OUTPUT = """\
- The task ends when you call `{tool}` with an output that fits its schema. It may stand in the same
  response as calls, and refer to their results. With null, or without it, you are asked again."""

_NOTHING_GIVEN = "You have neither called a tool nor given an output. Call `{tool}` when the task is done."

_MAX_NOTE = 6_000
_CLIPS = ((200, 20, 6), (80, 8, 4), (40, 4, 2))
"""Limits for characters of a text, items of a list or dict, and depth: from generous to terse."""


def notes(calls: bool, output_tool: str, data: Data, *, nothing_given: bool = False) -> list[dict[str, str]]:
    """Return the messages for one request; none if there is nothing to say.

    They are the rules of calls, if there are tools; the rules of the final output, if a schema wants one; and
    with any rules, the input and the state as JSON. Each has its `kind`.
    """
    rules = [_CALLS] if calls else []
    rules += [_OUTPUT.format(tool=output_tool)] if output_tool else []
    found = [{"role": "system", "kind": "rules", "content": "\n".join(rules)}] if rules else []
    kinds = (("input", data.input), ("state", data.state))
    shown = [f"## Data: ¶{kind} {_format_data(value)}" for kind, value in kinds if value]
    if rules and shown:
        found.append({"role": "user", "kind": "data", "content": "\n".join(shown)})
    if nothing_given:
        found.append({"role": "user", "kind": "nudge", "content": _NOTHING_GIVEN.format(tool=output_tool)})
    return found


def _format_data(value: Mapping[str, Any]) -> str:
    text = ""
    for chars, items, depth in _CLIPS:
        text = json.dumps(_clip(value, chars, items, depth), ensure_ascii=False)
        if len(text) <= _MAX_NOTE:
            return text
    return f"{text[:_MAX_NOTE]}…"


def _clip(value: Any, chars: int, items: int, depth: int) -> Any:
    if isinstance(value, str) and len(value) > chars:
        return f"{value[:chars]}… ({len(value)} characters)"
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        return f"… ({len(value)} {'keys' if isinstance(value, dict) else 'items'})"
    left = len(value) - items
    if isinstance(value, list):
        shown = [_clip(item, chars, items, depth - 1) for item in value[:items]]
        return [*shown, f"… {left} more"] if left > 0 else shown
    kept = {key: _clip(value[key], chars, items, depth - 1) for key in list(value)[:items]}
    return {**kept, "…": f"{left} more"} if left > 0 else kept
