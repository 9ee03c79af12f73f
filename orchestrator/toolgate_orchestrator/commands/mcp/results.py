"""The result of a tool call as schedulers are asked about it, and as the client gets it after that.

Both copies of a result, `content` and `structuredContent`, are one value, so that what is hidden in one is
hidden in the other.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolgate_bus.ruling.results import hide_texts

from toolgate_orchestrator.calls.result_parts import describe_data, read_cut
from toolgate_orchestrator.commands.mcp.messages import GET_PROMPT, READ_RESOURCE, Message
from toolgate_orchestrator.decision.question.schema_check import Checker, Uncheckable
from toolgate_orchestrator.decision.results.given_result import GivenResult

CONTENT: Final = "content"
STRUCTURED: Final = "structuredContent"
_APART: Final[Mapping[str, Callable[[Any], bool]]] = {
    "_meta": lambda value: True,
    "isError": lambda value: type(value) is bool,
    "resultType": lambda value: value in ("complete", "input_required"),
}
"""Fields that are for the client, and no part of what the LLM reads; and the values that they can have."""
_NOWHERE: Final = "about:blank"
"""Address of a part whose own one may not be seen."""
_PARTS: Final = {READ_RESOURCE: "contents", GET_PROMPT: "messages"}
_KEPT: Final[Mapping[str, Callable[[Any], bool]]] = {
    "resultType": lambda value: value == "complete",
    "ttlMs": lambda value: type(value) is int,
    "cacheScope": lambda value: value in ("public", "private"),
}
"""Fields of a resource or a prompt that bear no text, and the values with which they stay."""
_UNTOLD: Final = object()


def value_of(result: Message) -> dict[str, Any]:
    """Return the value that stands for a result in a question: all that an LLM could read of it."""
    told: dict[str, Any] = {name: result[name] for name in (CONTENT, STRUCTURED) if name in result}
    told |= {name: one for name, one in result.items() if name not in told and not _is_apart(name, one)}
    for name in (CONTENT, "contents", "messages"):
        if name in told:
            told[name] = describe_data(told[name])
    return told


def _is_apart(name: str, value: Any) -> bool:
    return name in _APART and _APART[name](value)


def value_of_question(result: Message) -> dict[str, Any]:
    """Return the value that stands for a server's question to the client (`input_required`).

    The state that the client sends back unread is no part of it.
    """
    return {name: one for name, one in value_of(result).items() if name != "requestState"}


def is_error(result: Mapping[str, Any]) -> bool:
    """Return whether the tool reports a failure."""
    return result.get("isError") is True


def given_result(result: Message, given: GivenResult, schema: Mapping[str, Any] | None) -> Message:
    """Return a result as the client may get it: the server's own if nothing was hidden in it.

    `schema` is that of the structured result which the tool promises. If the promise cannot be kept, the
    result is an error, so that the client does not insist on it.
    """
    if not given.changed:
        return result
    value, mark = given.value, ""
    if given.outcome == "masked" and given.is_cut and type(value) is str:
        found, mark = read_cut(value)
        value = hide_texts(found, given.hidden) if found is not None else value
    if given.outcome == "masked" and isinstance(value, dict) and isinstance(value.get(CONTENT), list):
        made = _mask(result, value, mark)
        apart = {name: one for name, one in result.items() if name != "isError" and _is_apart(name, one)}
        kept = hide_texts(apart, given.hidden)
    else:
        made = {CONTENT: [text_block(value if isinstance(value, str) else _write(value))]}
        kept = {name: result[name] for name in ("resultType",) if result.get(name) == "complete"}
    if "isError" in result:
        made["isError"] = is_error(result)
    if schema is not None and not (STRUCTURED in made and _fits(made[STRUCTURED], result, schema)):
        made.pop(STRUCTURED, None)
        made["isError"] = True
    return {**made, **(kept if isinstance(kept, dict) else {})}


def given_read(method: str, params: Mapping[str, Any], result: Message, given: GivenResult) -> Message:
    """Return a resource or a prompt as the client may get it: the server's own if nothing was hidden in it.

    Otherwise its parts are texts, each of those that kept its form; or one text, if one of them did not.
    """
    if not given.changed:
        return result
    value, name = given.value, _PARTS[method]
    parts = value.get(name) if given.outcome == "masked" and isinstance(value, dict) else None
    own = result.get(name)
    uris: set[Any] = (
        {one["uri"] for one in own if isinstance(one, dict) and isinstance(one.get("uri"), str)}
        if isinstance(own, list)
        else set()
    )
    made = [_read_part(method, part, uris) for part in parts] if isinstance(parts, list) else []
    texts = [one for one in made if one is not None]
    if not texts or len(texts) < len(made):
        words, uri = value if isinstance(value, str) else _write(value), params.get("uri")
        is_clean = isinstance(uri, str) and hide_texts(uri, given.hidden) == uri
        one: Message = {"uri": uri if is_clean else _NOWHERE, "text": words}
        texts = [one if method == READ_RESOURCE else {"role": "user", "content": text_block(words)}]
    kept = {name: result[name] for name, right in _KEPT.items() if name in result and right(result[name])}
    return {**kept, _PARTS[method]: texts}


def _read_part(method: str, part: Any, uris: set[Any]) -> Message | None:
    """Return a masked part of a resource or a prompt with its text; None if it has lost its form."""
    if not isinstance(part, dict):
        return None
    if method == READ_RESOURCE:
        text = part.get("text", part.get("blob"))  # (of data, type and size)
        uri = part.get("uri")
        is_own = isinstance(uri, str) and uri in uris
        return {"uri": uri if is_own else _NOWHERE, "text": text} if isinstance(text, str) else None
    content, role = part.get("content"), part.get("role")
    if role not in ("user", "assistant") or not isinstance(content, dict):
        return None
    text = content.get("text")
    words = text if content.get("type") == "text" and isinstance(text, str) else _write(content)
    return {"role": role, "content": text_block(words)}


def _mask(result: Message, value: dict[str, Any], mark: str) -> Message:
    """Return the masked result, each part in the form of MCP."""
    own = result.get(CONTENT)
    before = own if isinstance(own, list) else []
    told = describe_data(before)
    blocks = [
        _mask_block(
            one,
            before[at] if at < len(before) else _UNTOLD,
            told[at] if at < len(told) else _UNTOLD,
        )
        for at, one in enumerate(value[CONTENT])
    ]
    made = {name: one for name, one in value.items() if name not in _APART}
    made[CONTENT] = [*blocks, text_block(mark)] if mark else blocks
    if STRUCTURED in made and not isinstance(made[STRUCTURED], dict):
        del made[STRUCTURED]
    return made


def _mask_block(block: Any, own: Any, told: Any) -> Any:
    """Return a block of a masked result; `own` is the server's, and `told` what schedulers saw of it.

    One that was changed in anything but its text becomes a text: the client might not take it otherwise. So
    does one whose data no rule has seen.
    """
    if block == told and told is own and isinstance(own, dict) and isinstance(own.get("type"), str):
        return own
    if not isinstance(block, dict):
        return text_block(_write(block))
    text, is_known = block.get("text"), isinstance(own, dict)
    kind = block.get("type", own.get("type") if is_known else None)  # (it may stand behind the cut)
    if kind == "text" and isinstance(text, str) and is_known:
        same = {name: one for name, one in block.items() if name != "text"}
        return (
            block if same == {name: one for name, one in own.items() if name != "text"} else text_block(text)
        )
    return text_block(_write(block))


def _fits(structured: Any, result: Message, schema: Mapping[str, Any]) -> bool:
    """Return whether a structured result keeps the promise. The server's own is for the client to check."""
    if structured == result.get(STRUCTURED):
        return True
    try:
        return not Checker(schema).problems(structured)
    except Uncheckable:
        return False


def text_block(words: str) -> dict[str, str]:
    """Return a block of text."""
    return {"type": "text", "text": words}


def _write(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------- errors of the protocol


def value_of_error(message: str, data: Any) -> dict[str, Any]:
    """Return the value that stands for an error of the server in a question."""
    return {"error": {"message": message, **({} if data is None else {"data": data})}}


def given_error(given: GivenResult) -> tuple[str, Any]:
    """Return the words and the data of an error of which something was hidden."""
    value = given.value
    found = value.get("error") if given.outcome == "masked" and isinstance(value, dict) else None
    if isinstance(found, dict) and isinstance(found.get("message"), str):
        return found["message"], found.get("data")
    return value if isinstance(value, str) else _write(value), None
