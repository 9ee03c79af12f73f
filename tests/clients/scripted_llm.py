"""A server on loopback with the interfaces of three LLMs, whose model follows scripts.

Anthropic's messages (Claude Code, Copilot CLI), OpenAI's responses (Codex CLI) and Gemini's content are
spoken as far as these programs need them. A script is found by its name in the conversation's first words,
and goes on by the number of results that the conversation has: nothing is remembered between requests.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

LAST = "All done."


@dataclass(frozen=True)
class Use:
    """A call that the LLM asks for."""

    tool: str
    arguments: dict[str, Any]
    namespace: str = ""
    """Where the tool is, with OpenAI."""


@dataclass
class Script:
    """What the LLM asks for, response by response, in the conversations whose prompt names it."""

    name: str
    responses: list[list[Use]]
    results: list[str] = field(default_factory=list)
    """What the tools gave, as the LLM was told it."""
    tools: set[str] = field(default_factory=set)
    """What the LLM was offered."""

    @property
    def prompt(self) -> str:
        """What begins such a conversation."""
        return f"Follow the script {self.name}."

    def uses(self, results: list[str], tools: set[str]) -> list[Use]:
        """The calls of the next response; none at the end."""
        self.tools |= tools
        if len(results) >= len(self.results):
            self.results[:] = results
        over = 0
        for uses in self.responses:
            if over >= len(results):
                return uses
            over += len(uses)
        return []


@dataclass
class Scripts:
    """All scripts of one server."""

    scripts: list[Script] = field(default_factory=list)

    def find(self, messages: Any) -> Script | None:
        """Whose name comes first in the conversation: one that starts another names both."""
        text = json.dumps(messages)
        places = {text.find(one.prompt): one for one in self.scripts if one.prompt in text}
        return places[min(places)] if places else None

    def uses(self, messages: Any, results: list[str], tools: set[str]) -> list[Use]:
        """The next calls of a conversation; none where it has no tools: a title, a summary."""
        script = self.find(messages) if tools else None
        return script.uses(results, tools) if script else []


def say_anthropic(scripts: Scripts, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """`POST /v1/messages` with `stream`."""
    messages = body["messages"]
    parts = [part for one in messages if isinstance(one["content"], list) for part in one["content"]]
    results = [json.dumps(part.get("content")) for part in parts if part.get("type") == "tool_result"]
    uses = scripts.uses(messages, results, {tool["name"] for tool in body.get("tools") or ()})
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {"id": f"msg_{len(results)}", "type": "message", "role": "assistant", "model": body["model"]}
    empty = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield {"type": "message_start", "message": {**message, **empty}}
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (
            {"type": "tool_use", "id": f"toolu_{len(results) + place:024d}", "name": use.tool, "input": {}},
            {"type": "input_json_delta", "partial_json": json.dumps(use.arguments)},
        )
        for place, use in enumerate(uses)
    ] or [({"type": "text", "text": ""}, {"type": "text_delta", "text": LAST})]
    for index, (block, delta) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": "tool_use" if uses else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": usage}
    yield {"type": "message_stop"}


def say_openai(scripts: Scripts, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """`POST /v1/responses` with `stream`."""
    said = body["input"]
    results = [json.dumps(one.get("output")) for one in said if one.get("type", "").endswith("_output")]
    tools = {tool.get("name", tool["type"]) for tool in body.get("tools") or ()}
    uses = scripts.uses(said, results, tools)
    items: list[dict[str, Any]] = [
        {
            "type": "function_call",
            "id": f"fc_{len(results) + place}",
            "call_id": f"call_{len(results) + place}",
            "name": use.tool,
            "arguments": json.dumps(use.arguments),
            "status": "completed",
            **({"namespace": use.namespace} if use.namespace else {}),
        }
        for place, use in enumerate(uses)
    ] or [
        {
            "type": "message",
            "id": "msg_0",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": LAST, "annotations": []}],
        }
    ]
    response = {"id": f"resp_{len(results)}", "object": "response", "status": "in_progress", "output": []}
    yield {"type": "response.created", "response": response}
    for index, item in enumerate(items):
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 15,
    }
    over = {"status": "completed", "output": items, "usage": usage}
    yield {"type": "response.completed", "response": {**response, **over}}


def say_gemini(scripts: Scripts, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """`POST /v1beta/models/MODEL:streamGenerateContent`."""
    contents = body["contents"]
    parts = [part for one in contents for part in one["parts"]]
    results = [
        json.dumps(part["functionResponse"]["response"]) for part in parts if "functionResponse" in part
    ]
    tools = {one["name"] for tool in body.get("tools") or () for one in tool["functionDeclarations"]}
    uses = scripts.uses(contents, results, tools)
    said = [{"functionCall": {"name": use.tool, "args": use.arguments}} for use in uses]
    content = {"role": "model", "parts": said or [{"text": LAST}]}
    yield {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
        "modelVersion": "scripted",
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    scripts: ClassVar[Scripts]

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0]
        if path.endswith("/v1/messages"):
            self._stream(say_anthropic(self.scripts, json.loads(raw)), named=True)
        elif path.endswith("/responses"):
            self._stream(say_openai(self.scripts, json.loads(raw)), named=True)
        elif path.endswith(":streamGenerateContent"):
            self._stream(say_gemini(self.scripts, json.loads(raw)), named=False)
        else:
            self._say("application/json", b"{}")

    def do_GET(self) -> None:
        self._say("application/json", b'{"data": [], "models": []}')

    def do_HEAD(self) -> None:
        self.do_GET()

    def _stream(self, events: Iterator[dict[str, Any]], *, named: bool) -> None:
        lines = [
            (f"event: {one['type']}\n" if named else "") + f"data: {json.dumps(one)}\n\n" for one in events
        ]
        self._say("text/event-stream", "".join(lines).encode())

    def _say(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Nothing is said."""


@contextmanager
def scripted_llm(*scripts: Script) -> Iterator[str]:
    """Its address, without a path."""
    handler = type("Handler", (_Handler,), {"scripts": Scripts(list(scripts))})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
