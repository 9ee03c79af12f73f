"""Anthropic's Messages API: what it refuses, and how it answers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strict_server import NAME, Says, check_tools, need, only, seal, sse

Block = dict[str, Any]
_FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "text": (("type", "text"), ("cache_control", "citations")),
    "image": (("type", "source"), ("cache_control",)),
    "thinking": (("type", "thinking", "signature"), ()),
    "redacted_thinking": (("type", "data"), ()),
    "tool_use": (("type", "id", "name", "input"), ("cache_control",)),
    "tool_result": (("type", "tool_use_id"), ("content", "is_error", "cache_control")),
}
_BY_ROLE = {
    "user": {"text", "image", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
}
_THINKING = ("thinking", "redacted_thinking")
_BOUND = "@"
"""Between the seal of a thought and that of what stood before it."""


class Messages:
    """`POST /v1/messages`."""

    path = "/v1/messages"

    def check(self, body: Mapping[str, Any]) -> None:
        """Raises Refusal."""
        messages = body.get("messages")
        need(isinstance(messages, list) and messages, "messages: at least one message is required")
        need(isinstance(body.get("max_tokens"), int), "max_tokens: Field required")
        turns = _merge_turns(body["messages"])
        need(turns[0][0] == "user", "messages: first message must use the user role")
        need(turns[-1][0] == "user", "messages: the conversation must end with a user message")
        _check_calls(turns)
        called = any(block["type"].startswith("tool_") for _, blocks in turns for block in blocks)
        _check_options(body, called)
        if body.get("thinking"):
            _check_thinking_first(turns)
        _check_system(body.get("system"))
        marks = json.dumps([body.get("system"), body["messages"], body.get("tools")]).count('"cache_control"')
        need(marks <= 4, "A maximum of 4 blocks with cache_control may be provided.")

    def whole(self, says: Says, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer in one piece."""
        return _envelope(
            _blocks(says, thinks=bool(body.get("thinking"))), "tool_use" if says.calls else "end_turn"
        )

    def stream(self, says: Says, body: Mapping[str, Any]) -> Iterator[bytes]:
        """The answer as server-sent events."""
        whole = self.whole(says, body)
        start = {**whole, "content": [], "stop_reason": None}
        yield sse("message_start", {"type": "message_start", "message": start})
        for index, block in enumerate(whole["content"]):
            empty, deltas = _parts(block)
            told = {"type": "content_block_start", "index": index, "content_block": empty}
            yield sse("content_block_start", told)
            for delta in deltas:
                yield sse(
                    "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
                )
            yield sse("content_block_stop", {"type": "content_block_stop", "index": index})
        end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield sse("message_delta", {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}})
        yield sse("message_stop", {"type": "message_stop"})

    def error(self, message: str) -> dict[str, Any]:
        """The body of an error."""
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


class BoundMessages(Messages):
    """The same, of a server that holds thinking to the exact conversation before it.

    The signature of thinking seals all that stood before it, marks for the cache apart. A request in which
    that is not what it was is refused.
    """

    def check(self, body: Mapping[str, Any]) -> None:
        """Raises Refusal."""
        super().check(body)
        messages = body["messages"]
        for number, message in enumerate(messages):
            content = message["content"] if isinstance(message["content"], list) else []
            for block in content:
                if block["type"] == "thinking":
                    sealed = block["signature"].partition(_BOUND)[2]
                    why = "the conversation before this thinking is not what it was"
                    need(sealed == _seal_before(messages[:number], body), f"messages.{number}: {why}")

    def whole(self, says: Says, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer in one piece."""
        answer = super().whole(says, body)
        for block in answer["content"]:
            if block["type"] == "thinking":
                block["signature"] += _BOUND + _seal_before(body["messages"], body)
        return answer


def _seal_before(messages: Sequence[Any], body: Mapping[str, Any]) -> str:
    turns = [(role, [_unmarked(block) for block in blocks]) for role, blocks in _merge_turns(messages)]
    system = body.get("system")
    return seal(json.dumps([list(map(_unmarked, system)) if isinstance(system, list) else system, turns]))


def _unmarked(block: Any) -> Any:
    return {key: value for key, value in block.items() if key != "cache_control"}


def _merge_turns(messages: Sequence[Any]) -> list[tuple[str, list[Block]]]:
    """Messages of one role that follow each other count as one."""
    turns: list[tuple[str, list[Block]]] = []
    for number, message in enumerate(messages):
        where = f"messages.{number}"
        only(where, message, ("role", "content"))
        role, content = message["role"], message["content"]
        need(role in _BY_ROLE, f"{where}.role: {role!r}")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        need(isinstance(content, list) and content, f"{where}: all messages must have non-empty content")
        for index, block in enumerate(content):
            need(
                block.get("type") in _BY_ROLE[role],
                f"{where}.content.{index}: unexpected {block.get('type')!r}",
            )
            _check_block(f"{where}.content.{index}", block)
        if role == "assistant":
            _check_order(where, content)
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(content)
        else:
            turns.append((role, list(content)))
    return turns


def _check_block(where: str, block: Block) -> None:
    only(f"{where}.{block['type']}", block, *_FIELDS[block["type"]])
    match block:
        case {"type": "text", "text": text}:
            need(isinstance(text, str) and text.strip(), f"{where}: text content blocks must be non-empty")
        case {"type": "thinking", "thinking": text, "signature": signature}:
            own = signature.partition(_BOUND)[0]
            need(own == seal(text), f"{where}: Invalid `signature` in `thinking` block")
        case {"type": "redacted_thinking", "data": data}:
            text, _, sealed = data.rpartition(" ")
            need(sealed == seal(text), f"{where}: Invalid `data` in `redacted_thinking` block")
        case {"type": "tool_use", "id": id_, "name": name, "input": given}:
            need(isinstance(id_, str) and NAME.fullmatch(id_), f"{where}.tool_use.id: {id_!r}")
            need(isinstance(name, str) and NAME.fullmatch(name), f"{where}.tool_use.name: {name!r}")
            need(isinstance(given, dict), f"{where}.tool_use.input: Input should be a valid dictionary")
        case {"type": "image", "source": source}:
            only(f"{where}.image.source", source, ("type", "media_type", "data"))
        case {"type": "tool_result", "content": list(content)}:
            for part in content:
                need(
                    part.get("type") in ("text", "image"),
                    f"{where}.tool_result.content: {part.get('type')!r}",
                )
                _check_block(f"{where}.tool_result.content", part)


def _check_order(where: str, content: Sequence[Block]) -> None:
    kinds = [block["type"] for block in content]
    need(
        kinds[-1] not in _THINKING, f"{where}: The final block in an assistant message cannot be `thinking`."
    )
    if any(kind in _THINKING for kind in kinds):
        why = "If an assistant message contains any thinking blocks, the first block must be `thinking`"
        need(kinds[0] in _THINKING, f"{where}.content.0: {why}. Found `{kinds[0]}`.")


def _check_calls(turns: Sequence[tuple[str, list[Block]]]) -> None:
    """Each call has one result in the very next message, in front of all else; no result is anywhere else."""
    seen: set[str] = set()
    for number, (_, blocks) in enumerate(turns):
        before = turns[number - 1][1] if number else []
        asked = [block["id"] for block in before if block["type"] == "tool_use"]
        given = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        front = [block["type"] for block in blocks[: len(given)]]
        for id_ in given:
            need(
                id_ in asked,
                f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {id_}",
            )
        why = f"messages.{number}: each tool_use must have a single result. Found multiple"
        need(len(set(given)) == len(given), why)
        missing = [id_ for id_ in asked if id_ not in given]
        why = "`tool_use` ids were found without `tool_result` blocks immediately after"
        need(not missing, f"messages.{number}: {why}: {', '.join(missing)}")
        need(set(front) <= {"tool_result"}, f"messages.{number}: tool_result blocks must come first")
        for block in blocks:
            if block["type"] == "tool_use":
                need(block["id"] not in seen, "messages: `tool_use` ids must be unique")
                seen.add(block["id"])


def _check_thinking_first(turns: Sequence[tuple[str, list[Block]]]) -> None:
    """The LLM's latest turn begins with its thinking as long as its calls are being answered."""
    if any(block["type"] == "tool_result" for block in turns[-1][1]):
        found = turns[-2][1][0]["type"]
        why = "Expected `thinking` or `redacted_thinking`, but found"
        need(found in _THINKING, f"messages.{len(turns) - 2}.content.0.type: {why} `{found}`.")


def _check_options(body: Mapping[str, Any], called: bool) -> None:
    tools, choice, thinking = body.get("tools") or [], body.get("tool_choice"), body.get("thinking")
    for tool in tools:
        if "type" not in tool:
            only("tools", tool, ("name", "input_schema"), ("description", "cache_control"))
            need(tool["input_schema"].get("type") == "object", "tools.input_schema.type: Field required")
        else:
            need(not {"parameters", "description"} & set(tool), f"tools.{tool['type']}: Extra inputs")
    check_tools([tool.get("name") for tool in tools], called=called, chosen=choice is not None)
    if choice is not None:
        kinds = ("auto", "none", "any", "tool")
        need(isinstance(choice, dict) and choice.get("type") in kinds, f"tool_choice: {choice!r}")
    if thinking is not None:
        budget = thinking.get("budget_tokens", 0)
        need(1024 <= budget < body["max_tokens"], "thinking.budget_tokens: must be within max_tokens")
        why = "Thinking may not be enabled when tool_choice forces tool use."
        need((choice or {}).get("type") not in ("any", "tool"), why)


def _check_system(system: Any) -> None:
    for block in system if isinstance(system, list) else ():
        need(block.get("text", "").strip(), "system: text content blocks must be non-empty")


def _blocks(says: Says, *, thinks: bool) -> list[Block]:
    blocks: list[Block] = []
    if says.thinking and thinks:
        blocks.append({"type": "thinking", "thinking": says.thinking, "signature": seal(says.thinking)})
    if says.redacted and thinks:
        blocks.append({"type": "redacted_thinking", "data": f"{says.redacted} {seal(says.redacted)}"})
    if says.text:
        blocks.append({"type": "text", "text": says.text})
    for id_, name, given in says.calls:
        blocks.append({"type": "tool_use", "id": id_, "name": name, "input": given})
    return blocks


def _parts(block: Block) -> tuple[Block, list[Block]]:
    """A block at its beginning, and what then comes of it."""
    match block["type"]:
        case "text":
            half = len(block["text"]) // 2
            texts = (block["text"][:half], block["text"][half:])
            return {**block, "text": ""}, [{"type": "text_delta", "text": text} for text in texts]
        case "thinking":
            said = {"type": "thinking_delta", "thinking": block["thinking"]}
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [said, signed]
        case "tool_use":
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            ]
    return block, []


def _envelope(content: list[Block], reason: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
