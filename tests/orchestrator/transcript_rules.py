"""The rules that hosts and providers hold a stored conversation to, and what of one breaks them.

A host that finds a break repairs the conversation before it resumes the session, or does not resume it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["breaks"]


def breaks(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong, in the order of the messages; empty for a conversation in order.

    Each call has one result, behind the message that makes it and before anything else is said; a user's
    message comes first or behind an assistant's answer; the last message is an assistant's answer. Messages
    of the system stand anywhere but between a call and its result.
    """
    found: list[str] = []
    waiting: list[str] = []
    before = "nothing"
    for index, message in enumerate(messages):
        role, calls = message["role"], [call["id"] for call in message.get("tool_calls") or []]
        if role == "tool":
            if message["tool_call_id"] in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                found.append(f"{index}: a result without a call that waits for it")
            before = "results"
            continue
        found += [f"{index}: {role} stands before the result of {each}" for each in waiting]
        waiting = calls
        if role == "system":
            continue
        if role == "user" and before not in ("nothing", "answer"):
            found.append(f"{index}: a user's message after {before}")
        if role == "assistant" and before in ("nothing", "answer"):
            found.append(f"{index}: an assistant's message after {before}")
        before = "prompt" if role == "user" else "calls" if calls else "answer"
    found += [f"end: no result of {each}" for each in waiting]
    if before not in ("nothing", "answer"):
        found.append(f"end: no answer after {before}")
    return found
