"""Doors of coding agents: `POST /hooks/{client}`, with events and answers as each client has them.

What runs is what the client makes of the answer: nothing said is the call as it was, and new arguments take
the place of the old, or are laid over them (Gemini CLI).
"""

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from carrying import is_json
from meanings import Written
from readings import Call
from sidecar_doors import Sidecar
from station import Station

__all__ = ["ClaudeDoor", "CodexDoor", "CopilotDoor", "CursorDoor", "GeminiDoor"]

HOME = "/home/ann/src"
Event = dict[str, Any]
Told = Mapping[str, Any]


class HookDoor:
    """The hook of one client."""

    name: ClassVar[str]
    client: ClassVar[str]
    can: ClassVar[frozenset[str]] = frozenset()
    deepest: ClassVar[int] = 0
    """Agents above one another that the client can tell."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar, self._station = sidecar, sidecar.station
        self._numbers = itertools.count(1)

    @classmethod
    def carries(cls, call: Call, written: Written) -> bool:
        """Values of JSON. Schemas, labels, a user's request and other tools are not told."""
        who = call.who
        plain = not (call.rewrites or call.schema or who.labels or who.request)
        plain = plain and written.scheduler != "router"
        return plain and len(who.lineage) <= cls.deepest and is_json(call.arguments)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, station: Station) -> AsyncIterator["HookDoor"]:
        """See Door."""
        async with Sidecar.open(station) as sidecar:
            yield cls(sidecar)

    async def make(self, call: Call) -> None:
        """See Door."""
        event = self.before(call, next(self._numbers))
        answer = await self._send(call, event) or {}
        answer = answer if isinstance(answer, dict) else {}
        runs, is_asked, arguments = self.read(answer, call.arguments)
        if is_asked:
            runs = self._station.agree()
        if runs:
            self._station.take(call.tool, arguments)
            if not self._station.keeps_open:
                await self._send(call, self.after(event))

    async def _send(self, call: Call, event: Event) -> Any:
        headers = {"toolgate-agent": (*call.who.lineage, call.who.agent)[0], "toolgate-timeout": "60"}
        return await self._sidecar.post(f"/hooks/{self.client}", event, headers)

    def before(self, call: Call, number: int) -> Event:
        """The event before a call."""
        raise NotImplementedError

    def after(self, event: Event) -> Event:
        """The event after a call that ran."""
        raise NotImplementedError

    def read(self, answer: Told, arguments: Told) -> tuple[bool, bool, Told]:
        """Whether the call runs, whether the user is asked first, and the arguments."""
        raise NotImplementedError


class ClaudeDoor(HookDoor):
    """Claude Code."""

    name = client = "claude"
    can = frozenset(("ask",))
    deepest = 1

    def before(self, call: Call, number: int) -> Event:
        """See HookDoor."""
        who = call.who
        below = {"agent_id": f"a-{who.session}", "agent_type": who.agent} if who.lineage else {}
        return {
            "session_id": who.tree,
            "transcript_path": f"{HOME}/chat.jsonl",
            "cwd": HOME,
            "permission_mode": "default",
            "hook_event_name": "PreToolUse",
            "tool_name": call.tool,
            "tool_input": call.arguments,
            "tool_use_id": f"toolu_{number}",
            **below,
        }

    def after(self, event: Event) -> Event:
        """See HookDoor."""
        return event | {"hook_event_name": "PostToolUse", "tool_response": {"stdout": "ok"}}

    def read(self, answer: Told, arguments: Told) -> tuple[bool, bool, Told]:
        """See HookDoor."""
        told = answer.get("hookSpecificOutput") or {}
        said = told.get("permissionDecision")
        return said in (None, "allow"), said == "ask", told.get("updatedInput", arguments)


class CodexDoor(ClaudeDoor):
    """Codex CLI: it takes an answer for invalid that it does not know, and the call runs."""

    name = client = "codex"
    can = frozenset()

    def before(self, call: Call, number: int) -> Event:
        """See HookDoor."""
        return super().before(call, number) | {"turn_id": "turn-3", "model": "gpt-6-codex"}

    def read(self, answer: Told, arguments: Told) -> tuple[bool, bool, Told]:
        """See HookDoor."""
        told = answer.get("hookSpecificOutput") or {}
        said = told.get("permissionDecision")
        if said == "deny" and told.get("permissionDecisionReason"):
            return False, False, arguments
        changed = told.get("updatedInput") if said == "allow" else None
        return True, False, arguments if changed is None else changed


class GeminiDoor(HookDoor):
    """Gemini CLI."""

    name = client = "gemini"

    def before(self, call: Call, number: int) -> Event:
        """See HookDoor."""
        return {
            "session_id": call.who.session,
            "transcript_path": f"{HOME}/session.json",
            "cwd": HOME,
            "hook_event_name": "BeforeTool",
            "timestamp": "2026-11-20T09:00:00.000Z",
            "tool_name": call.tool,
            "tool_input": call.arguments,
        }

    def after(self, event: Event) -> Event:
        """See HookDoor."""
        return event | {"hook_event_name": "AfterTool", "tool_response": {"llmContent": "ok"}}

    def read(self, answer: Told, arguments: Told) -> tuple[bool, bool, Told]:
        """See HookDoor."""
        changed = (answer.get("hookSpecificOutput") or {}).get("tool_input", {})
        return answer.get("decision") not in ("deny", "block"), False, {**arguments, **changed}


class CursorDoor(HookDoor):
    """Cursor, by `preToolUse`; an answer that says nothing blocks."""

    name = client = "cursor"

    def before(self, call: Call, number: int) -> Event:
        """See HookDoor."""
        return {
            "conversation_id": call.who.session,
            "generation_id": "490b90b7",
            "model": "default",
            "cursor_version": "3.9.16",
            "workspace_roots": [HOME],
            "cwd": HOME,
            "hook_event_name": "preToolUse",
            "tool_name": call.tool,
            "tool_input": call.arguments if number % 2 else json.dumps(call.arguments),
            "tool_use_id": f"call-{number}",
        }

    def after(self, event: Event) -> Event:
        """See HookDoor."""
        return event | {"hook_event_name": "postToolUse", "tool_output": "ok", "duration": 1.5}

    def read(self, answer: Told, arguments: Told) -> tuple[bool, bool, Told]:
        """See HookDoor."""
        return answer.get("permission") == "allow", False, answer.get("updated_input", arguments)


class CopilotDoor(HookDoor):
    """Copilot CLI: no ids of calls, and arguments as a text every other time."""

    name = client = "copilot"
    can = frozenset(("ask",))
    deepest = 1

    def before(self, call: Call, number: int) -> Event:
        """See HookDoor."""
        who = call.who
        below = {"parentAgentId": who.tree, "agentType": who.agent} if who.lineage else {}
        return {
            "sessionId": who.session,
            "timestamp": 1795478400000,
            "cwd": HOME,
            "toolName": call.tool,
            "toolArgs": json.dumps(call.arguments) if number % 2 else call.arguments,
            **below,
        }

    def after(self, event: Event) -> Event:
        """See HookDoor."""
        return event | {"toolResult": {"resultType": "success", "textResultForLlm": "ok"}}

    def read(self, answer: Told, arguments: Told) -> tuple[bool, bool, Told]:
        """See HookDoor."""
        said = answer.get("permissionDecision")
        return said in (None, "allow"), said == "ask", answer.get("modifiedArgs", arguments)
