"""Puts a test call to an installed hook as its client would, and reports its answer and time.

A shell runs the command of the entry, or the address is asked over HTTP. Schedulers rule on the tool
`toolgate_probe`; the sidecar knows that it does not run.
"""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolgate_orchestrator.coding_agents.event import PROBE
from toolgate_orchestrator.coding_agents.translation import FAULT

SESSION: Final = "toolgate-hook-status"
MAX_WAIT_S: Final = 60.0
_FAULT: Final = FAULT.partition("{")[0]


class ProbeAnswer(NamedTuple):
    """Answer of a hook to the test call."""

    verdict: str
    """`allowed`, `denied` or `asked`; `fault` if no scheduler could be asked; `broken` if no client would
    accept the answer."""
    reason: str
    milliseconds: int


def make_event(client: str) -> bytes:
    """Return the event before the test call, as the client writes it."""
    shared: dict[str, Any] = {
        "session_id": SESSION,
        "cwd": str(Path.cwd()),
        "tool_name": PROBE,
        "tool_input": {},
    }
    told: Mapping[str, dict[str, Any]] = {
        "claude": {"hook_event_name": "PreToolUse", "tool_use_id": "probe", **shared},
        "codex": {"hook_event_name": "PreToolUse", "tool_use_id": "probe", "turn_id": "probe", **shared},
        "gemini": {"hook_event_name": "BeforeTool", **shared},
        "cursor": {"hook_event_name": "preToolUse", "conversation_id": SESSION, **shared},
        "copilot": {"sessionId": SESSION, "cwd": str(Path.cwd()), "toolName": PROBE, "toolArgs": {}},
    }
    return json.dumps(told[client]).encode()


def probe(client: str, handler: Mapping[str, Any]) -> ProbeAnswer:
    """Put the test call to the hook, and return its answer."""
    started = time.monotonic()
    try:
        said = _ask(handler, make_event(client))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        verdict, reason = "broken", f"{type(error).__name__}: {error}"
    else:
        verdict, reason = judge(said)
    return ProbeAnswer(verdict, reason, round((time.monotonic() - started) * 1000))


def _ask(handler: Mapping[str, Any], event: bytes) -> bytes:
    url, command = handler.get("url"), handler.get("command") or handler.get("bash")
    if isinstance(url, str):
        headers = {"Content-Type": "application/json"}
        for name, value in (handler.get("headers") or {}).items():
            headers[name] = os.path.expandvars(str(value))
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url} is not an HTTP address")
        request = urllib.request.Request(url, event, headers)  # noqa: S310 - its scheme was checked
        with urllib.request.urlopen(request, timeout=MAX_WAIT_S) as response:  # noqa: S310 - as above
            body: bytes = response.read(1 << 20)
        return body
    done = subprocess.run(
        ["/bin/sh", "-c", str(command)], input=event, capture_output=True, timeout=MAX_WAIT_S, check=False
    )
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [""]
        raise ValueError(f"it exited with code {done.returncode} ({words[0]})")
    return done.stdout


def judge(said: bytes) -> tuple[str, str]:
    """Return the verdict and reason in an answer."""
    if not said.strip():
        return "allowed", ""
    try:
        fields = json.loads(said)
        inner = fields.get("hookSpecificOutput", fields)
    except (ValueError, AttributeError):
        return "broken", "its output is not a JSON object"
    decision = (
        fields.get("decision") or fields.get("permission") or inner.get("permissionDecision") or "allow"
    )
    reason = fields.get("reason") or fields.get("user_message") or inner.get("permissionDecisionReason") or ""
    if decision == "deny" and str(reason).startswith(_FAULT):
        return "fault", str(reason)[len(_FAULT) :]
    verdict = {"deny": "denied", "ask": "asked", "allow": "allowed"}.get(decision, "broken")
    return verdict, str(reason)
