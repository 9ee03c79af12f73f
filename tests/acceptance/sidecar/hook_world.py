"""Runs hooks as clients do: one process an event, in a runtime folder with sidecars of its own.

A sidecar is found by its socket, and ended by its process id.
"""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import toolgate_hook

FILE = Path(toolgate_hook.__file__)


class HookAnswer:
    """What a hook's process left."""

    def __init__(self, done: "subprocess.CompletedProcess[bytes]", seconds: float) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr.decode()
        self.seconds = seconds

    @property
    def said(self) -> Any:
        """Its answer; None where it said nothing."""
        return json.loads(self.out) if self.out else None


class HookWorld:
    """One user's runtime folder, and the bus that their hooks are ruled on by."""

    def __init__(self, runtime: Path, url: str, namespace: str, idle_s: float = 600) -> None:
        self.runtime = runtime
        runtime.chmod(0o700)
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")},
            "XDG_RUNTIME_DIR": str(runtime),
            "TOOLGATE_REDIS_URL": url,
            "TOOLGATE_NAMESPACE": namespace,
            "TOOLGATE_HOOK_IDLE_S": str(idle_s),
        }

    def start(self, client: str, *words: str, **popen: Any) -> "subprocess.Popen[bytes]":
        """A hook's process; its event is still to be written."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, "-I", "-S", str(FILE), client, *words]
        return subprocess.Popen(command, env=self.env, **{**pipes, **popen})

    def ask(self, client: str, event: Any, *words: str, timeout_s: float = 50) -> HookAnswer:
        """One event, as a value or as bytes; its answer."""
        body = event if isinstance(event, bytes) else json.dumps(event).encode()
        started = time.monotonic()
        child = self.start(client, *words)
        try:
            out, err = child.communicate(body, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            raise
        done = subprocess.CompletedProcess(child.args, child.returncode, out, err)
        return HookAnswer(done, time.monotonic() - started)

    def sidecars(self) -> dict[int, Path]:
        """The living sidecars by process id, and their sockets."""
        found = {}
        for path in self.runtime.glob("toolgate-hook/*.sock"):
            with socket.socket(socket.AF_UNIX) as channel, contextlib.suppress(OSError):
                channel.connect(str(path))
                told = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                found[struct.unpack("3i", told)[0]] = path
        return found

    def processes(self) -> list[int]:
        """All processes that were started as sidecars here, whether they listen or not."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = entry.read_bytes().split(b"\0")
                if b"serve" in words and any(str(self.runtime).encode() in word for word in words):
                    found.append(int(entry.parent.name))
        return found

    def end(self) -> None:
        """End the sidecars."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 20
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def hook_world(runtime: Path, url: str, namespace: str, idle_s: float = 600) -> Iterator[HookWorld]:
    """A world whose sidecars end with it."""
    made = HookWorld(runtime, url, namespace, idle_s)
    try:
        yield made
    finally:
        made.end()


def event_of(
    client: str, arguments: dict[str, Any], call: str = "call-1", session: str = "s-1"
) -> dict[str, Any]:
    """The event before a call, as a client writes it."""
    if client == "copilot":
        return {
            "sessionId": session,
            "timestamp": 1,
            "cwd": "/src",
            "toolName": "bash",
            "toolArgs": arguments,
        }
    told: dict[str, Any] = {
        "session_id": session,
        "cwd": "/src",
        "tool_name": "bash",
        "tool_input": arguments,
    }
    names = {"gemini": "BeforeTool", "cursor": "preToolUse"}
    told["hook_event_name"] = names.get(client, "PreToolUse")
    if client == "cursor":
        told["conversation_id"] = told.pop("session_id")
    if client != "gemini":
        told["tool_use_id"] = call
    return told


def event_after(client: str, before: dict[str, Any]) -> dict[str, Any]:
    """The event after the same call."""
    if client == "copilot":
        return {**before, "toolResult": {"resultType": "success", "textResultForLlm": "ok"}}
    names = {"gemini": "AfterTool", "cursor": "postToolUse"}
    return {
        **before,
        "hook_event_name": names.get(client, "PostToolUse"),
        "tool_response": {"llmContent": "ok"},
    }
