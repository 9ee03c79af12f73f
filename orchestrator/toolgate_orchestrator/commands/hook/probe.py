"""Puts a test call to an installed hook as its client would, and reports its answer and time.

A shell runs the command of the entry, or the address is asked over HTTP. The sidecar itself denies each call
of the tool `toolgate_probe`, and says whether schedulers would be asked about others. It records nothing.
"""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolgate_bus.telemetry.printable import shorten, visible

from toolgate_orchestrator.coding_agents.event import PROBE, PROBED
from toolgate_orchestrator.coding_agents.translation import FAULT

SESSION: Final = "toolgate-hook-status"
MAX_WAIT_S: Final = 60.0
MAX_WORDS: Final = 100
"""Maximum length of a wrong answer that is shown, in characters."""
_FAULT: Final = FAULT.partition("{")[0]


class ProbeAnswer(NamedTuple):
    """Answer of a hook to the test call."""

    verdict: str
    """`answered`; `unruled` if calls run without rulings; `fault` if they are denied because no scheduler can
    be asked; `broken` if no client would accept the answer."""
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
    try:
        fields = json.loads(said)
        inner = fields.get("hookSpecificOutput", fields)
    except (ValueError, AttributeError):
        words = shorten(visible(said.decode("utf-8", "replace").strip()), MAX_WORDS) or "nothing"
        return "broken", f"it did not deny the test call; it said: {words}"
    decision = fields.get("decision") or fields.get("permission") or inner.get("permissionDecision")
    reason = str(
        fields.get("reason") or fields.get("user_message") or inner.get("permissionDecisionReason") or ""
    )
    if decision == "deny" and reason.startswith(_FAULT):
        return "fault", reason[len(_FAULT) :]
    if decision == "deny" and reason.startswith(PROBED):
        problem = reason.removeprefix(PROBED).removeprefix("; ")
        return ("unruled" if problem else "answered"), problem
    return "broken", f"it did not deny the test call; it said: {decision or 'nothing'} {reason}".rstrip()
