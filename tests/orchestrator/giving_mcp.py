"""A server of MCP whose tool `read` gives the generated result of the case that it is asked for.

A result that is no map of content blocks comes as a text, with a structured copy if it is a map. Errors come
as errors of the protocol, or as results that say so.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from generated_results import make_case

TOOL = {"name": "read", "inputSchema": {"type": "object"}}


def give(seed: int) -> dict[str, Any]:
    """Return what answers a call: a result, or an error."""
    case = make_case(seed)
    result = case.result
    if isinstance(result, BaseException):
        words = f"{result} because of {result.__cause__}"
        if seed % 2:
            return {"error": {"code": -32000, "message": words, "data": case.copy}}
        return {"result": {"content": [{"type": "text", "text": words}], "isError": True}}
    if isinstance(result, dict) and "content" in result and "structuredContent" in result:
        return {"result": result}
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=seed % 2 == 0)
    given: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if isinstance(result, dict):
        given["structuredContent"] = result
    if seed % 3 == 0:
        given |= {"_meta": {"x": case.copy}, "later": case.copy}
    return {"result": given}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        able = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        return {"result": {**able, "serverInfo": {"name": "giving", "version": "1"}}}
    if method == "tools/list":
        return {"result": {"tools": [TOOL]}}
    if method == "tools/call":
        return give(int(params["arguments"]["case"]))
    return {"error": {"code": -32601, "message": "Method not found"}}


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "method" in message and "id" in message:
            said = {"jsonrpc": "2.0", "id": message["id"], **answer(message)}
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()
