"""A turn as JSON Lines on stdout, one event a line, as it happens: for scripts (`run --stream --json`).

{"event": "text", "text": …}
{"event": "tool", "tool": …, "tool_call_id": …, "arguments": {…}}
{"event": "tool_result", "tool": …, "tool_call_id": …, "success": …, "seconds": …}
{"event": "held", "tool_name": …, "scheduler": …, "reason": …, "seconds": …, "decision_id": …}
{"event": "decision", …as in the record…}
{"event": "answer", "answer": …, "status": …, "session_id": …}        always the last one
"""

from typing import Any

from toolgate_orchestrator.commands.run.screen import ScreenOutput
from toolgate_orchestrator.commands.run.view import ToolRun, TurnResult, View, json_line

__all__ = ["JsonLines"]


class JsonLines(View):
    """Writes each event at once; rulings are also shown on stderr, as ever."""

    live = True

    def __init__(self, out: ScreenOutput) -> None:
        self._out = out

    def text(self, piece: str) -> None:
        """Some more of what the LLM says."""
        self._write("text", text=piece)

    def on_call(self, run: ToolRun) -> None:
        """A tool begins."""
        self._write("tool", tool=run.tool, tool_call_id=run.id, arguments=run.arguments)

    def on_result(self, run: ToolRun) -> None:
        """A tool is done."""
        error = {} if run.problem is None else {"error": run.problem}
        success = run.problem is None
        self._write(
            "tool_result", tool=run.tool, tool_call_id=run.id, success=success, seconds=run.seconds, **error
        )

    def on_held(self, record: dict[str, Any]) -> None:
        """A call waits for somebody's answer."""
        names = ("tool_name", "tool_call_id", "decision_id", "scheduler", "reason", "seconds", "phase")
        self._write("held", **{name: record.get(name) for name in names})

    def decision(self, record: dict[str, Any]) -> None:
        """A call was decided on."""
        self._write("decision", **record)

    def on_end(self, ended: TurnResult) -> None:
        """The last line."""
        self._write("answer", **ended.record)

    def _write(self, event: str, **content: Any) -> None:
        self._out.write(json_line({"event": event, **content}) + "\n")
