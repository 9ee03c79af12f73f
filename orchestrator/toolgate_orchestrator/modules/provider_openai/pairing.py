"""Puts each tool result behind its call, as chat-completions servers insist. Pure, on wire messages.

A sound conversation passes unchanged. Elsewhere (a message between call and result, a result that
was compacted away, a call that never got one) the conversation is mended rather than refused.
"""

from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["paired"]

WireMessage = dict[str, Any]

_NO_RESULT = "No result of this call was recorded."


def paired(messages: Sequence[WireMessage]) -> list[WireMessage]:
    """The messages, with exactly one result right behind each call and no result without one."""
    taken: set[int] = set()
    out: list[WireMessage] = []
    for index, message in enumerate(messages):
        if index in taken:
            continue
        out.append(_as_text(message) if message["role"] == "tool" else message)
        for call in message.get("tool_calls", ()):
            found = next(_results(messages, index, call["id"], taken), None)
            taken |= {found} if found is not None else set()
            out.append(_no_result(call) if found is None else messages[found])
    return out


def _results(messages: Sequence[WireMessage], start: int, call_id: str, taken: set[int]) -> Iterator[int]:
    """Where results of a call lie: behind it, and before another call of the same id (ids may repeat)."""
    for index in range(start + 1, len(messages)):
        message = messages[index]
        if any(call["id"] == call_id for call in message.get("tool_calls", ())):
            return
        if message["role"] == "tool" and message["tool_call_id"] == call_id and index not in taken:
            yield index


def _no_result(call: dict[str, Any]) -> WireMessage:
    return {"role": "tool", "tool_call_id": call["id"], "content": _NO_RESULT}


def _as_text(result: WireMessage) -> WireMessage:
    """A result whose call is gone, as something the user says."""
    return {"role": "user", "content": f"[Result of an earlier tool call]\n{result['content']}"}
