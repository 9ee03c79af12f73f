"""OpenAI's Responses API: what it refuses, and how it answers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strict_server import NAME, Says, check_tools, need, only, seal, sse

Item = dict[str, Any]
_PARTS = {"assistant": ("output_text",), "user": ("input_text", "input_image")}


class Responses:
    """`POST /v1/responses`, of a client that stores nothing there."""

    path = "/v1/responses"

    def check(self, body: Mapping[str, Any]) -> None:
        """Raises Refusal."""
        items = body.get("input")
        need(isinstance(items, list) and items, "input: at least one item is required")
        need(body.get("store") is False, "store: this client is to keep its conversations")
        called = _check_items(body["input"])
        _check_reasoning(body["input"])
        tools = body.get("tools") or []
        for tool in tools:
            only("tools", tool, ("type", "name", "parameters"), ("description", "strict"))
        names = [tool.get("name") for tool in tools]
        check_tools(names, called=called, chosen=body.get("tool_choice") is not None)
        need(body.get("tool_choice") in (None, "auto", "none", "required"), "tool_choice: unknown")

    def whole(self, says: Says, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer in one piece."""
        output = _output(says, thinks=bool(body.get("reasoning")))
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        usage |= {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": "gpt-test",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage,
        }

    def stream(self, says: Says, body: Mapping[str, Any]) -> Iterator[bytes]:
        """The answer as server-sent events."""
        whole = self.whole(says, body)
        number = iter(range(1_000))

        def tell(event: str, **data: Any) -> bytes:
            return sse(event, {"type": event, "sequence_number": next(number), **data})

        yield tell("response.created", response={**whole, "status": "in_progress", "output": []})
        for index, item in enumerate(whole["output"]):
            at = {"output_index": index, "item_id": item["id"]}
            yield tell("response.output_item.added", output_index=index, item=item)
            if item["type"] == "message":
                text = item["content"][0]["text"]
                yield tell("response.output_text.delta", content_index=0, delta=text, logprobs=[], **at)
            if item["type"] == "reasoning":
                said = item["summary"][0]["text"]
                yield tell("response.reasoning_summary_text.delta", summary_index=0, delta=said, **at)
            yield tell("response.output_item.done", output_index=index, item=item)
        yield tell("response.completed", response=whole)

    def error(self, message: str) -> dict[str, Any]:
        """The body of an error."""
        return {
            "error": {"message": message, "type": "invalid_request_error", "param": "input", "code": None}
        }


def _check_items(items: Sequence[Any]) -> bool:
    """Each call once, with one output behind it; whether there are calls."""
    open_: set[str] = set()
    seen: set[str] = set()
    for number, item in enumerate(items):
        where = f"input[{number}]"
        match item:
            case {"type": "function_call", "call_id": id_}:
                only(where, item, ("type", "call_id", "name", "arguments"), ("id", "status"))
                need(NAME.fullmatch(id_), f"{where}.call_id: {id_!r}")
                need(NAME.fullmatch(item["name"]), f"{where}.name: {item['name']!r}")
                need(isinstance(json.loads(item["arguments"]), dict), f"{where}.arguments")
                need(id_ not in seen, f"{where}: Duplicate 'call_id': {id_}")
                seen.add(id_)
                open_.add(id_)
            case {"type": "function_call_output", "call_id": id_}:
                only(where, item, ("type", "call_id", "output"), ("id", "status"))
                need(isinstance(item["output"], str), f"{where}.output: expected a string")
                why = f"{where}: No tool call found for function call output with call_id {id_}."
                need(id_ in open_, why)
                open_.discard(id_)
            case {"type": "reasoning"}:
                only(where, item, ("type", "id", "summary"), ("encrypted_content", "status", "content"))
                sealed = item.get("encrypted_content")
                need(sealed == seal(item["id"]), f"{where}: Item with id '{item['id']}' not found.")
            case {"role": role}:
                need(not open_, f"{where}: No tool output found for function call {', '.join(open_)}.")
                _check_message(where, role, item)
            case _:
                need(False, f"{where}: unknown item {item!r}")
    need(not open_, f"input: No tool output found for function call {', '.join(open_)}.")
    return bool(seen)


def _check_message(where: str, role: str, item: Item) -> None:
    only(where, item, ("role", "content"), ("type", "id", "status"))
    content = item["content"]
    need(content, f"{where}.content: must not be empty")
    for part in content if isinstance(content, list) else ():
        need(part.get("type") in _PARTS[role], f"{where}.content: {part.get('type')!r} is not for {role}")
        need(part.get("text", "an image").strip(), f"{where}.content: must not be empty")


def _check_reasoning(items: Sequence[Item]) -> None:
    """Reasoning stands once, and right before what it led to."""
    ids = [item["id"] for item in items if item.get("type") == "reasoning"]
    need(len(set(ids)) == len(ids), "input: Duplicate item found")
    for item, following in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") == "reasoning":
            led_to = (
                following.get("type") in ("function_call", "reasoning")
                or following.get("role") == "assistant"
            )
            why = f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
            need(led_to, why)


def _output(says: Says, *, thinks: bool) -> list[Item]:
    output: list[Item] = []
    for said in (says.thinking, says.redacted) if thinks else ():
        if said:
            id_ = f"rs_{seal(said)[5:]}"
            summary = [{"type": "summary_text", "text": said}]
            reasoning = {"type": "reasoning", "id": id_, "summary": summary, "encrypted_content": seal(id_)}
            output.append(reasoning)
    if says.text:
        part = {"type": "output_text", "text": says.text, "annotations": []}
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        output.append({**message, "content": [part]})
    for id_, name, given in says.calls:
        call = {"type": "function_call", "id": f"fc_{id_}", "call_id": id_, "name": name}
        output.append({**call, "arguments": json.dumps(given), "status": "completed"})
    return output
