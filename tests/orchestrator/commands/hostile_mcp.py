"""A server of MCP that misbehaves as it is told: `python hostile_mcp.py KIND`. Standard library alone, so it
starts fast.

Calls of `echo` are answered with their arguments, whatever else it does.
"""

import json
import os
import signal
import subprocess
import sys
import time

KIND = sys.argv[1] if len(sys.argv) > 1 else "plain"
ECHO = {"name": "echo", "inputSchema": {"type": "object"}}


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(id_, result):
    say({"jsonrpc": "2.0", "id": id_, "result": result})


def tools(cursor):
    match KIND:
        case "many":
            return {"tools": [{**ECHO, "name": f"tool{number}"} for number in range(100_000)]}
        case "endless":
            return {"tools": [{**ECHO, "name": f"tool{cursor}"}], "nextCursor": str(int(cursor or 0) + 1)}
        case "names":
            strange = ["a\x1b[2Jb", "x" * 300, "", 7, "two\nlines", "‮reversed"]
            return {"tools": [ECHO, None, "text", *({**ECHO, "name": name} for name in strange)]}
        case "deep":
            schema = {}
            for _ in range(150):
                schema = {"properties": {"a": schema}}
            return {"tools": [ECHO, {"name": "deep", "inputSchema": schema}]}
        case "no_list":
            return {"tools": "none"}
    return {"tools": [ECHO]}


def call(id_, params):
    if params["name"] == "echo":
        return answer(id_, {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]})
    match params["name"]:
        case "big":
            return answer(id_, {"content": [{"type": "text", "text": "x" * (50 << 20)}]})
        case "big_without_an_end":
            sys.stdout.write('{"jsonrpc":"2.0","result":{"content":"' + "x" * (50 << 20) + '"}}\n')
            return sys.stdout.flush()
        case "big_backwards":
            sys.stdout.write(
                '{"jsonrpc":"2.0","result":{"id":1,"t":"'
                + "x" * (20 << 20)
                + f'"}},"id":{json.dumps(id_)}}}\n'
            )
            return sys.stdout.flush()
        case "never":
            return None
        case "die":
            os._exit(3)
        case "garbage":
            sys.stdout.write("hello there\n[1, 2]\n{\n\n" + '{"jsonrpc":"2.0","id":99,"result":{}}\n')
            sys.stdout.flush()
            return answer(id_, {"content": []})
        case "flood":
            for number in range(2_000):
                say(
                    {
                        "jsonrpc": "2.0",
                        "method": "notifications/message",
                        "params": {"level": "info", "data": number},
                    }
                )
                say(
                    {
                        "jsonrpc": "2.0",
                        "method": "notifications/progress",
                        "params": {"progressToken": number, "progress": 1},
                    }
                )
            return answer(id_, {"content": []})
        case "twice":
            answer(id_, {"content": []})
            return answer(id_, {"content": [{"type": "text", "text": "again"}]})
        case "strange_result":
            return answer(id_, {"content": "no list", "isError": "yes", "structuredContent": [1], "_meta": 5})
    return say({"jsonrpc": "2.0", "id": id_, "error": {"code": -32602, "message": "no such tool"}})


if KIND == "stays":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if KIND == "leaves_a_child":
    print(subprocess.Popen(["sleep", "60"]).pid, file=sys.stderr, flush=True)

for line in sys.stdin:
    message = json.loads(line)
    method, id_, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        if KIND == "silent":
            continue
        able = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        answer(id_, {**able, "serverInfo": {"name": KIND, "version": "1"}})
    elif method == "tools/list":
        answer(id_, tools(params.get("cursor")))
    elif method == "tools/call":
        call(id_, params)
    elif id_ is not None:
        say({"jsonrpc": "2.0", "id": id_, "error": {"code": -32601, "message": "Method not found"}})
if KIND == "stays":
    time.sleep(3600)
