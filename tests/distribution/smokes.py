"""Shows that an extra does what it promises, where nothing but that extra is installed: `smokes.py EXTRA`.

It runs in the bare environment that `build.py` made, in an empty folder, on the server that
TOOLGATE_REDIS_URL names; `embedded`, `bench` and `all` bring one of their own.
"""

import http.client
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

BIN = Path(sys.executable).parent
ACCEPTANCE = Path(__file__).resolve().parents[1] / "acceptance"
DENIED = "files are kept"
RULES = f"rules: [{{tools: delete_file, action: deny, reason: {DENIED}}}]\n"
CALL = {"tool": "delete_file", "arguments": {"path": "notes.txt"}}
PLAN = """
session: {orchestrator: {module: loop-events, config: {toolgate: {required: [policy]}}}}
tools: [{module: tool-workspace, config: {root: .}}]
providers: [PROVIDER]
"""
SCRIPTED = """{module: provider-scripted, config: {turns: [
  {tool_calls: [{name: delete_file, arguments: {path: notes.txt}}]}, {text: "${last_result}"}]}}"""
CHUNK = {
    "id": "c-1",
    "object": "chat.completion.chunk",
    "created": 0,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "delta": {"content": "good morning"}}],
}
PATIENCE_S = 100


def run(*words, **env):
    """Run a command to its end; return what it wrote to stdout."""
    ended = subprocess.run(
        [BIN / words[0], *words[1:]],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, f"{words}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@contextmanager
def started(*words, **env):
    """Start a command of `toolgate`; give what it says once it is ready, and end it."""
    command = [BIN / "toolgate", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | env) as process:
        try:
            line = process.stdout.readline()
            assert '"ready"' in line, f"{words}: {line or 'it ended'}"
            yield json.loads(line)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def policy(**env):
    Path("rules.yaml").write_text(RULES)
    return started("scheduler", "run", "policy", "--config", "rules.yaml", **env)


@contextmanager
def sink():
    """Listen on loopback, and answer as an LLM; give the address and the bodies that were posted there."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            answer = f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
        server.shutdown()


def guard_denies():
    from toolgate_orchestrator import Guard

    with Guard(agent="clerk", required=["policy"], patience_ms=20_000) as guard:

        @guard.tool(denied=lambda ruling: ruling.refusal)
        def delete_file(path):
            return f"{path} is gone"

        assert DENIED in delete_file("notes.txt")


def base():
    with policy():
        guard_denies()
        assert DENIED in run("toolgate", "decisions", "--json")
        run("toolgate", "doctor")


def orchestrator():
    Path("plan.yaml").write_text(PLAN.replace("PROVIDER", SCRIPTED))
    with policy():
        assert DENIED in run("toolgate", "run", "Tidy up", "--plan", "plan.yaml")


def llm():
    with sink() as (url, asked), policy():
        config = f'{{base_url: "{url}/v1", model: m, api_key: none}}'
        provider = f"{{module: provider-openai-compatible, config: {config}}}"
        Path("plan.yaml").write_text(PLAN.replace("PROVIDER", provider))
        assert "good morning" in run("toolgate", "run", "Hello", "--plan", "plan.yaml")
        assert b"Hello" in asked[0]


def console():
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with started("console", "--port", "0") as ready, browser.open(ready["url"]) as page:
        assert b"<html" in page.read().lower()


def serve():
    with policy(), started("serve", "--socket", "serve.sock", "--required", "policy"):
        asked = http.client.HTTPConnection("localhost")
        asked.sock = socket.socket(socket.AF_UNIX)
        asked.sock.connect("serve.sock")
        asked.request("POST", "/v1/decide", json.dumps(CALL), {"Content-Type": "application/json"})
        answer = json.loads(asked.getresponse().read())
        asked.close()
    assert answer["outcome"] == "deny", answer
    assert DENIED in answer["reason"]


def mcp():
    Path("rules.yaml").write_text(RULES.replace("delete_file", "write"))
    server = [sys.executable, str(ACCEPTANCE / "mcp" / "mcp_server.py")]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    with (
        started("scheduler", "run", "policy", "--config", "rules.yaml"),
        subprocess.Popen(
            [BIN / "toolgate", "mcp", "--agent", "t", "--required", "policy", "--", *server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        ) as proxy,
    ):

        def ask(number, method, params):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            proxy.stdin.write(json.dumps(request) + "\n")
            return next(one for line in proxy.stdout if (one := json.loads(line)).get("id") == number)

        try:
            ask(1, "initialize", hello)
            proxy.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
            assert "write" in str(ask(2, "tools/list", {}))
            denied = ask(3, "tools/call", {"name": "write", "arguments": {"path": "x"}})
            assert DENIED in str(denied), denied
        finally:
            proxy.stdin.close()
            proxy.wait(PATIENCE_S)


def notify():
    Path("notify.yaml").write_text("receivers: {ops: {url_env: HOOK}}\n")
    with sink() as (url, posted):
        run("toolgate", "notify", "--config", "notify.yaml", "--test", HOOK=url)
        assert len(posted) == 1


def otel():
    # The agent's own process has no trace here, so the scheduler is one that begins one.
    with sink() as (url, exported):
        with policy(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_BSP_SCHEDULE_DELAY="50"):
            from toolgate_bus.telemetry import tracing

            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = url
            with tracing.configure("smoke"):
                guard_denies()
        said = b"".join(exported)
    for span in (b"toolgate.decide", b"toolgate.verdict"):
        assert span in said, f"{span} was not exported"


def embedded():
    with policy():
        guard_denies()


def bench():
    said = run("toolgate", "bench", "-n", "1", "-c", "1", "--decisions", "100", "--json")
    for side in ("nats", "webhook"):
        assert side in said, said


def all():  # noqa: A001 - the name of the extra
    run("toolgate", "demo")


def docs():
    importlib.import_module("zensical")


def test():
    run("pytest", "--help")


def dev():
    for tool in ("pytest", "mypy", "ruff", "lint-imports"):
        run(tool, "--help")


def adapter(name):
    """The adapter of a framework can be imported beside its newest release; `make test-adapters` holds it."""
    for module in (name, f"{name}.check"):
        importlib.import_module(f"toolgate_orchestrator.contrib.{module}")


FRAMEWORKS = (
    "agent-framework",
    "claude-agent",
    "crewai",
    "google-adk",
    "langchain",
    "openai-agents",
    "pydantic-ai",
    "strands",
)
OWN_SERVER = ("embedded", "bench", "all")
SMOKES = {
    one.__name__: one
    for one in (
        base,
        orchestrator,
        llm,
        console,
        serve,
        mcp,
        notify,
        otel,
        embedded,
        bench,
        all,
        docs,
        test,
        dev,
    )
}
NAMES = (*SMOKES, *FRAMEWORKS)


if __name__ == "__main__":
    (NAME,) = sys.argv[1:]
    if NAME in OWN_SERVER:
        os.environ.pop("TOOLGATE_REDIS_URL", None)
    if NAME in SMOKES:
        SMOKES[NAME]()
    else:
        adapter(NAME.replace("-", "_"))
