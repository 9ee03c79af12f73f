"""Views: what a person or a script sees of a turn.

`run` and `chat` show everything through a `View`. This one shows rulings, and the answer at the end of the
turn; `live_view` and `JsonLines` show the rest as it happens.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import typer
from rich.text import Text
from toolgate_bus.commands.terminal import err_console, print_text
from toolgate_bus.telemetry.printable import clean, json_text

from toolgate_orchestrator.commands.run.screen import ScreenOutput


class ToolRun(NamedTuple):
    """A tool call that runs, or has run."""

    id: str
    tool: str
    arguments: dict[str, Any]
    seconds: float | None = None
    """Seconds that the call took; None while it runs, or if its start was not seen."""
    problem: str | None = None
    """Reason that the call failed or did not finish; None if it succeeded."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """Result of a turn."""

    answer: str
    session: str
    status: str
    """Status: success, incomplete, cancelled or error."""
    decisions: tuple[dict[str, Any], ...] = field(default=())
    error: str | None = None
    """Error that the turn raised."""
    is_refused: bool = False
    """True if there is no answer because a request to the LLM was denied."""

    @property
    def problem(self) -> str | None:
        """Problem to show to the person: the error, or the answer that tells of one; None if all went
        well."""
        if self.error is not None:
            return self.error
        return (self.answer or "the turn failed") if self.status == "error" else None

    @property
    def record(self) -> dict[str, Any]:
        """The end of the turn as JSON fields."""
        return {
            "answer": self.answer,
            "status": self.status,
            "session_id": self.session,
            **({"error": self.error} if self.error else {}),
        }


class View:
    """View that shows rulings as they are made, and the answer at the end."""

    live: bool = False
    """True if the view takes text and tools as they come."""

    def on_ruling(self, line: Text) -> None:
        """Show a ruling that denied or replaced a call."""
        err_console.print(line, soft_wrap=True)

    def notice(self, text: str, style: str = "dim") -> None:
        """Show a line that the person should know and that is no part of the answer."""
        err_console.print(Text(clean(text), style=style), soft_wrap=True)

    def on_held(self, record: dict[str, Any]) -> None:
        """Take a call that waits for a person's answer. Its ruling is also shown in words."""

    def decision(self, record: dict[str, Any]) -> None:
        """Take a decision with every verdict."""

    def response(self) -> None:
        """Begin a new text of the LLM: a request is sent."""

    def text(self, piece: str) -> None:
        """Take a further piece of the LLM's text."""

    def on_call(self, run: ToolRun) -> None:
        """Take the start of a tool."""

    def on_result(self, run: ToolRun) -> None:
        """Take the end of a tool."""

    def pause(self) -> None:
        """Free the terminal for other output."""

    def on_end(self, ended: TurnResult) -> None:
        """Show the end of the turn."""
        if ended.error is not None:
            self.notice(f"Error: {ended.error}", "red")
        else:
            print_text(ended.answer)


class JsonView(View):
    """View that prints the whole turn as one JSON object at its end."""

    def on_end(self, ended: TurnResult) -> None:
        """Print the JSON object."""
        typer.echo(json_text(ended.record | {"decisions": list(ended.decisions)}, str))


class JsonLines(View):
    """View that writes a turn as JSON Lines, one event a line. Rulings are also shown on stderr.

    {"event": "text", "text": …}
    {"event": "tool", "tool": …, "tool_call_id": …, "arguments": {…}}
    {"event": "tool_result", "tool": …, "tool_call_id": …, "success": …, "seconds": …}
    {"event": "held", "tool_name": …, "scheduler": …, "reason": …, "seconds": …, "decision_id": …}
    {"event": "decision", …as in the record…}
    {"event": "answer", "answer": …, "status": …, "session_id": …}        always the last one
    """

    live = True

    def __init__(self, out: ScreenOutput) -> None:
        self._out = out

    def text(self, piece: str) -> None:
        """Take a further piece of the LLM's text."""
        self._write("text", text=piece)

    def on_call(self, run: ToolRun) -> None:
        """Take the start of a tool."""
        self._write("tool", tool=run.tool, tool_call_id=run.id, arguments=run.arguments)

    def on_result(self, run: ToolRun) -> None:
        """Take the end of a tool."""
        error = {} if run.problem is None else {"error": run.problem}
        success = run.problem is None
        self._write(
            "tool_result", tool=run.tool, tool_call_id=run.id, success=success, seconds=run.seconds, **error
        )

    def on_held(self, record: dict[str, Any]) -> None:
        """Write a call that waits for a person's answer."""
        names = ("tool_name", "tool_call_id", "decision_id", "scheduler", "reason", "seconds", "phase")
        self._write("held", **{name: record.get(name) for name in (*names, "paused")})

    def decision(self, record: dict[str, Any]) -> None:
        """Write a decision."""
        self._write("decision", **record)

    def on_end(self, ended: TurnResult) -> None:
        """Write the last line."""
        self._write("answer", **ended.record)

    def _write(self, event: str, **content: Any) -> None:
        self._out.write(json_text({"event": event, **content}, str) + "\n")
