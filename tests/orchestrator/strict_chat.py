"""OpenAI's Chat Completions API: what it refuses, and how it answers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from openai_server import DONE, call, chunk, finish, text
from strict_server import NAME, Says, check_tools, need, only

_CONTENT = {"user": ("text", "image_url"), "assistant": ("text", "refusal")}


class Chat:
    """`POST /v1/chat/completions`."""

    path = "/v1/chat/completions"

    def check(self, body: Mapping[str, Any]) -> None:
        """Raises Refusal."""
        messages = body.get("messages")
        need(isinstance(messages, list) and messages, "messages: must not be empty")
        called = _check_messages(body["messages"])
        tools = body.get("tools")
        need(tools is None or tools, "tools: must not be empty")
        for tool in tools or ():
            only("tools", tool, ("type", "function"))
            only("tools.function", tool["function"], ("name",), ("description", "parameters", "strict"))
        names = [tool["function"]["name"] for tool in tools or ()]
        check_tools(names, called=called, chosen=body.get("tool_choice") is not None)
        need(body.get("tool_choice") in (None, "auto", "none", "required"), "tool_choice: unknown")

    def whole(self, says: Says, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer in one piece."""
        message: dict[str, Any] = {"role": "assistant", "content": says.text or None}
        if says.calls:
            message["tool_calls"] = [
                {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
                for id_, name, given in says.calls
            ]
        if says.thinking and body.get("reasoning_effort"):
            message["reasoning_content"] = says.thinking
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if says.calls else "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        told = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "gpt-test"}
        return {**told, "choices": [choice], "usage": usage}

    def stream(self, says: Says, body: Mapping[str, Any]) -> Iterator[bytes]:
        """The answer as server-sent events."""
        chunks = []
        if says.thinking and body.get("reasoning_effort"):
            chunks.append(chunk({"reasoning_content": says.thinking}))
        if says.text:
            chunks.append(text(says.text))
        for index, (id_, name, given) in enumerate(says.calls):
            chunks.append(call(index, json.dumps(given), id_, name))
        for each in [*chunks, finish("tool_calls" if says.calls else "stop")]:
            yield f"data: {json.dumps(each)}\n\n".encode()
        yield DONE

    def error(self, message: str) -> dict[str, Any]:
        """The body of an error."""
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


def _check_messages(messages: Sequence[Any]) -> bool:
    """Right behind each message with calls one result for each; whether there are calls."""
    open_: set[str] = set()
    seen: set[str] = set()
    for number, message in enumerate(messages):
        where, role = f"messages.[{number}]", message.get("role")
        if role == "tool":
            only(where, message, ("role", "content", "tool_call_id"), ("name",))
            id_ = message["tool_call_id"]
            why = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            need(id_ in open_, f"{where}: {why}: {id_}")
            open_.discard(id_)
            need(isinstance(message["content"], str), f"{where}.content: images are not for results")
            continue
        why = "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
        need(not open_, f"{where}: {why} 'tool_call_id': {', '.join(open_)}")
        need(role in ("system", "developer", "user", "assistant"), f"{where}.role: {role!r}")
        _check_content(where, role, message)
        for made in message.get("tool_calls") or ():
            only(f"{where}.tool_calls", made, ("id", "type", "function"))
            need(NAME.fullmatch(made["function"]["name"]), f"{where}: name {made['function']['name']!r}")
            need(isinstance(json.loads(made["function"]["arguments"]), dict), f"{where}: arguments")
            need(made["id"] not in seen, f"{where}: Duplicate value for 'tool_call_id': {made['id']}")
            seen.add(made["id"])
            open_.add(made["id"])
    need(not open_, f"messages: tool_call_ids without a response: {', '.join(open_)}")
    return bool(seen)


def _check_content(where: str, role: str, message: Mapping[str, Any]) -> None:
    only(where, message, ("role",), ("content", "name", "tool_calls", "refusal"))
    need("tool_calls" not in message or role == "assistant", f"{where}.tool_calls: not for {role}")
    need("tool_calls" not in message or message["tool_calls"], f"{where}.tool_calls: must not be empty")
    content = message.get("content")
    need(content or message.get("tool_calls"), f"{where}.content: must not be empty")
    for part in content if isinstance(content, list) else ():
        need(part.get("type") in _CONTENT.get(role, ("text",)), f"{where}.content: {part.get('type')!r}")
        need(part.get("text", "an image").strip(), f"{where}.content: must not be empty")
