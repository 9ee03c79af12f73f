"""Listens on a session's hooks, and passes the text and tools of its turns to a view. Rules on nothing.

It works for any loop that emits the kernel's events. For a loop that does not, the view gets nothing before
the end.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import HookResult
from amplifier_core.events import CONTENT_BLOCK_DELTA, PROVIDER_REQUEST, TOOL_ERROR, TOOL_POST, TOOL_PRE

from toolgate_orchestrator.commands.run.view import ToolRun, View

_LAST = 1_000_000
"""Priority after all hooks that may still deny or change the call (the kernel calls low numbers first)."""
_FIRST = -1_000_000
"""Priority before all hooks that may keep the result to themselves."""


@dataclass(slots=True)
class TurnListener:
    """Listener that turns events into calls of a view."""

    _view: View
    _clock: Callable[[], float] = time.monotonic
    _running: dict[str, tuple[ToolRun, float]] = field(default_factory=dict)

    def listen(self, hooks: Any) -> None:
        """Register on the hooks, before the session's modules are loaded."""
        handlers = {
            PROVIDER_REQUEST: (self._request, _LAST),
            CONTENT_BLOCK_DELTA: (self._delta, _FIRST),
            TOOL_PRE: (self._pre, _LAST),
            TOOL_POST: (self._finish, _FIRST),
            TOOL_ERROR: (self._finish, _FIRST),
        }
        for event, (handler, priority) in handlers.items():
            hooks.register(event, handler, priority=priority, name="toolgate-live")

    @property
    def active_tools(self) -> list[str]:
        """Names of the tools that are running."""
        return sorted({run.tool for run, _ in self._running.values()})

    def on_turn_end(self) -> None:
        """End the lines of tools that were stopped with the turn."""
        for key in list(self._running):
            self._end_run(key, None, "stopped with the turn")

    async def _request(self, event: str, data: dict[str, Any]) -> HookResult:
        self._view.response()
        return HookResult()

    async def _delta(self, event: str, data: dict[str, Any]) -> HookResult:
        delta = data.get("delta")
        delta = delta if isinstance(delta, Mapping) else {}
        kind = delta.get("type") or data.get("block_type") or "text"
        text = delta.get("text") or data.get("text")
        if isinstance(text, str) and kind in ("text", "text_delta"):
            self._view.text(text)
        return HookResult()

    async def _pre(self, event: str, data: dict[str, Any]) -> HookResult:
        run = _run_of(data)
        self._running[run.id] = (run, self._clock())
        self._view.on_call(run)
        return HookResult()

    async def _finish(self, event: str, data: dict[str, Any]) -> HookResult:
        """Show the end of a tool; a result in an unknown form counts as success."""
        result, problem = data.get("result", data.get("tool_result")), None
        if event == TOOL_ERROR:
            problem = _words(data.get("error")) or "it failed"
        elif isinstance(result, Mapping) and not result.get("success", True):
            problem = _words(result.get("error")) or _words(result.get("output")) or "it failed"
        self._end_run(_key(data), data, problem)
        return HookResult()

    def _end_run(self, key: str, data: dict[str, Any] | None, problem: str | None) -> None:
        run, started = self._running.pop(key, (None, 0.0))
        if run is None and data is not None:
            run = _run_of(data)
            self._view.on_result(run._replace(problem=problem))
        elif run is not None:
            self._view.on_result(run._replace(seconds=self._clock() - started, problem=problem))


def _key(data: Mapping[str, Any]) -> str:
    return str(data.get("tool_call_id") or data.get("tool_name") or data.get("tool") or "")


def _run_of(data: Mapping[str, Any]) -> ToolRun:
    arguments = data.get("tool_input", data.get("input"))
    tool = str(data.get("tool_name") or data.get("tool") or "?")
    return ToolRun(_key(data), tool, dict(arguments) if isinstance(arguments, Mapping) else {})


def _words(error: Any) -> str:
    if not isinstance(error, Mapping):
        return str(error) if error else ""
    message = error.get("message") or error.get("msg")
    return ": ".join(str(part) for part in (error.get("type"), message) if part)
