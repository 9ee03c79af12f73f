"""An answer of the LLM as schedulers rule on it, and what is used of it after their ruling.

It travels as its text and its calls. Of an answer that was changed, only these are used again, and what
cannot hold anything hidden: thinking and provider state in which no hidden text stands. A call of which a
part may not be seen does not run.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from toolgate_bus.ruling.results import hide_texts

from toolgate_orchestrator.decision.results.given_result import GivenResult
from toolgate_orchestrator.turn.llm.provider_stream import Reply
from toolgate_orchestrator.turn.values.jsonable import jsonable
from toolgate_orchestrator.turn.values.messages import text_of
from toolgate_orchestrator.turn.values.raw_call import reader_of, refuse_call

TEXT: Final = "text"
CALLS: Final = "tool_calls"
_WITHHELD: Final = "a part of it is withheld, so it cannot run"
_THINKING: Final = frozenset(("thinking", "redacted_thinking"))

Clean = Callable[[Any], Any]
"""Returns a copy of the answer, or of a part of it, as it may be seen."""


def send_answer(reply: Reply) -> dict[str, Any]:
    """Return an answer as it is sent: its text, and the calls in it."""
    calls = [{name: call[name] for name in ("id", "name", "arguments")} for call in reply.calls]
    return {TEXT: text_of(reply.response), CALLS: jsonable(calls)}


def use_ruling(reply: Reply, sent: Mapping[str, Any], given: GivenResult) -> Reply:
    """Return what may be seen of an answer that was masked or replaced."""
    value = given.value
    if not isinstance(value, Mapping) or not isinstance(value.get(TEXT), str):
        value = {TEXT: value if isinstance(value, str) else json.dumps(jsonable(value))}
    calls: list[dict[str, Any]] = []
    if given.outcome == "masked" and isinstance(value.get(CALLS), list):
        for call, before, after in zip(reply.calls, sent[CALLS], value[CALLS], strict=False):
            calls.append(call if before == after else refuse_call(call, _WITHHELD, before, after))
    return _rebuild(reply, value[TEXT], calls, given.clean)


def replace_text(reply: Reply, text: str, *, denied: bool) -> Reply:
    """Return an answer with another text.

    Of one without calls, thinking and provider state are dropped. Of one with calls, they are dropped if what
    is gone stands in them: the whole text if it was denied, else each of its words that is left out.
    """
    if not reply.calls:
        return _rebuild(reply, text, (), _drop)
    before = text_of(reply.response).strip()
    kept = set(text.split())
    gone = [before] if denied else [one for one in before.split() if one not in kept]
    return _rebuild(reply, text, reply.calls, lambda part: hide_texts(part, gone))


def drop_thoughts(reply: Reply) -> Reply:
    """Return an answer without thinking and provider state."""
    return _rebuild(reply, text_of(reply.response), reply.calls, _drop)


def _drop(part: Any) -> Any:
    return None


def _rebuild(reply: Reply, text: str, calls: Sequence[dict[str, Any]], clean: Clean) -> Reply:
    read = reader_of(reply.response)
    content, metadata = read("content"), read("metadata")
    left = {call["id"]: call for call in calls}
    made: list[Any] = []
    said = False
    for block in content if isinstance(content, list | tuple) else ():
        plain = jsonable(block)
        kind = plain.get("type") if isinstance(plain, dict) else None
        if kind in _THINKING:
            made += [block] if clean(plain) == plain else []
        elif kind == "tool_call":
            call = left.pop(plain.get("id", ""), None)
            made += [] if call is None else [_block_of(call)]
        elif not said:
            made += [{"type": "text", "text": text}] if text.strip() else []
            said = True
    if not said and text.strip():
        made.append({"type": "text", "text": text})
    is_kept = isinstance(metadata, Mapping) and clean(jsonable(metadata)) == jsonable(metadata)
    response = SimpleNamespace(
        content=made,
        tool_calls=list(calls) or None,
        usage=read("usage"),
        metadata=dict(metadata) if is_kept and isinstance(metadata, Mapping) else None,
    )
    return Reply(response, list(calls), reply.stopped)


def _block_of(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "tool_call", "id": call["id"], "name": call["name"], "input": call["arguments"]}
