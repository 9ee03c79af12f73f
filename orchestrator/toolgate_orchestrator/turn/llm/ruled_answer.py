"""An answer of the LLM as schedulers rule on it, and what is used of it after their ruling.

It travels as its text, its calls, and `other`: what else stands in it, by the fields of the response. Of an
answer that was changed, only text and calls are used again, and what cannot hold anything hidden: thinking
and provider state in which no hidden text stands, and counts of tokens. A call of which a part may not be
seen does not run.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from pydantic import BaseModel
from toolgate_bus.ruling.results import hide_texts

from toolgate_orchestrator.calls.result_parts import describe_data, read_cut
from toolgate_orchestrator.decision.results.given_result import GivenResult
from toolgate_orchestrator.turn.facts import counts_of
from toolgate_orchestrator.turn.llm.provider_stream import Reply
from toolgate_orchestrator.turn.values.jsonable import jsonable
from toolgate_orchestrator.turn.values.messages import text_of
from toolgate_orchestrator.turn.values.raw_call import reader_of, refuse_call

TEXT: Final = "text"
CALLS: Final = "tool_calls"
OTHER: Final = "other"
_WITHHELD: Final = "a part of it is withheld, so it cannot run"
_THINKING: Final = ("thinking", "redacted_thinking", "reasoning")
_TEXTS: Final = (None, "text")
_TOLD: Final = (*_TEXTS, "tool_call")
"""Types of blocks of which rules see a part elsewhere: in the text, or as a call."""
_FIELDS: Final = {"id": "id", "name": "name", "tool": "name", "input": "arguments", "arguments": "arguments"}
"""Fields of a call as providers write them, and as they are sent."""
_WORD: Final = re.compile("[A-Za-z_-]{1,32}")
"""Why an answer ended, as providers write it: rules see only what is none of their words."""
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})

Clean = Callable[[Any], Any]
"""Returns a copy of the answer, or of a part of it, as it may be seen."""


def send_answer(reply: Reply) -> dict[str, Any]:
    """Return an answer as it is sent: its text, the calls in it, and what else stands in it."""
    calls = jsonable([{name: call[name] for name in ("id", "name", "arguments")} for call in reply.calls])
    sent = {TEXT: text_of(reply.response), CALLS: calls}
    other = _find_other(reply, calls)
    return sent | {OTHER: describe_data(other)} if other else sent


def use_ruling(reply: Reply, sent: Mapping[str, Any], given: GivenResult) -> Reply:
    """Return what may be seen of an answer that was masked or replaced."""
    value = _read_cut(given.value) if given.is_cut else given.value
    if not isinstance(value, Mapping) or not isinstance(value.get(TEXT), str):
        value = {TEXT: value if isinstance(value, str) else json.dumps(jsonable(value))}
    calls: list[dict[str, Any]] = []
    if given.outcome == "masked" and isinstance(value.get(CALLS), list):
        for call, before, after in zip(reply.calls, sent[CALLS], value[CALLS], strict=False):
            is_kept = before == after and not call["raw"]
            calls.append(call if is_kept else refuse_call(call, call["problem"] or _WITHHELD, before, after))
    return _rebuild(reply, value[TEXT], calls, given.clean, given.hidden)


def replace_text(reply: Reply, text: str, *, denied: bool) -> Reply:
    """Return an answer with another text.

    Of one without calls, thinking and provider state are dropped. Of one with calls, they are dropped if what
    is gone stands in them: the whole text if it was denied, else each of its words that is left out.
    """
    before = text_of(reply.response).strip()
    kept = set(text.split())
    gone = [before] if denied else [one for one in before.split() if one not in kept]
    clean = (lambda part: hide_texts(part, gone)) if reply.calls else _drop
    return _rebuild(reply, text, reply.calls, clean, gone)


def drop_thoughts(reply: Reply) -> Reply:
    """Return an answer without thinking and provider state."""
    return _rebuild(reply, text_of(reply.response), reply.calls, _drop)


def _drop(part: Any) -> Any:
    return None


def _read_cut(value: Any) -> Any:
    """Return an answer that was cut, with as much of its text and its calls as was ruled on."""
    found, mark = read_cut(value) if isinstance(value, str) else (None, "")
    if not isinstance(found, dict) or not isinstance(found.get(TEXT), str):
        return value
    return found if CALLS in found else {TEXT: f"{found[TEXT]}\n{mark}"}


def _find_other(reply: Reply, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what stands in an answer besides its text, its calls, thinking and provider state, by fields."""
    read = reader_of(reply.response)
    shown = jsonable(reply.response) if isinstance(reply.response, BaseModel) else {}
    fields = shown if isinstance(shown, dict) else {"response": shown}
    fields |= {name: jsonable(read(name)) for name in ("content", CALLS, "usage")}
    fields.pop("metadata", None)
    if _WORD.fullmatch(str(fields.get("finish_reason"))):
        fields.pop("finish_reason", None)
    blocks = fields["content"] if isinstance(fields["content"], list) else []
    texts = (block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") in _TEXTS)
    said = frozenset([text_of(reply.response), *(one for one in texts if isinstance(one, str))])
    known = {call["id"]: call for call in calls}
    other: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "usage" and isinstance(value, dict):
            counts = counts_of(value)
            rest: Any = {key: one for key, one in value.items() if key not in counts}
        elif isinstance(value, list):
            rest = [part for one in value if (part := _rest_of(one, said, known)) not in _EMPTY]
        else:
            rest = None if _is_said(value, said) else value
        if rest not in _EMPTY:
            other[name] = rest
    unread = [call["raw"] for call in reply.calls if call["raw"]]
    return other | ({"unread_arguments": unread} if unread else {})


def _is_said(value: Any, said: frozenset[str]) -> bool:
    return isinstance(value, str) and value in said


def _rest_of(block: Any, said: frozenset[str], known: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return what rules do not see of a block as a text or a call; None if that is nothing."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in _THINKING or not isinstance(block, dict):
        return None if kind in _THINKING or _is_said(block, said) else block
    rest = {name: one for name, one in block.items() if one not in _EMPTY}
    if kind not in _TOLD:
        return rest
    call = known.get(str(block.get("id")), {})
    told = {"type": kind} | {name: call[own] for name, own in _FIELDS.items() if own in call}
    left = {name: one for name, one in rest.items() if not _is_said(one, said) and one != told.get(name)}
    return {"type": kind, **left} if left else None


def _rebuild(
    reply: Reply, text: str, calls: Sequence[dict[str, Any]], clean: Clean, hidden: Collection[str] = ()
) -> Reply:
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
    counts = counts_of(jsonable(read("usage")))
    response = SimpleNamespace(
        content=made,
        tool_calls=list(calls) or None,
        usage={name: one for name, one in counts.items() if hide_texts(one, hidden) == one} or None,
        metadata=dict(metadata) if is_kept and isinstance(metadata, Mapping) else None,
    )
    return Reply(response, list(calls), reply.stopped)


def _block_of(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "tool_call", "id": call["id"], "name": call["name"], "input": call["arguments"]}
