"""What a turn looks like from outside: the little that a person or a script is told of it.

`View` is what `run` and `chat` show things through. This one shows rulings only, and the answer when
the turn is over; `live_view` and `JsonLines` show the rest as it happens.
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
    """None while it runs, and where nobody saw it start."""
    problem: str | None = None
    """Why it failed, or did not come to its end."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn came out."""

    answer: str
    session: str
    status: str
    """success, incomplete, cancelled or error."""
    decisions: tuple[dict[str, Any], ...] = field(default=())
    error: str | None = None
    """What the turn raised."""
    is_refused: bool = False
    """Whether it came to no answer as a request to the LLM was denied."""

    @property
    def problem(self) -> str | None:
        """What went wrong, for the person: what was raised, or the answer that tells of an error."""
        if self.error is not None:
            return self.error
        return (self.answer or "the turn failed") if self.status == "error" else None

    @property
    def record(self) -> dict[str, Any]:
        """The end of the turn as JSON."""
        return {
            "answer": self.answer,
            "status": self.status,
            "session_id": self.session,
            **({"error": self.error} if self.error else {}),
        }


class View:
    """Shows rulings as they are made, and the answer at the end."""

    live: bool = False
    """Whether it wants to be told of text and tools."""

    def on_ruling(self, line: Text) -> None:
        """A call was denied or replaced."""
        err_console.print(line, soft_wrap=True)

    def notice(self, text: str, style: str = "dim") -> None:
        """Something that the person should know, and that is no part of the answer."""
        err_console.print(Text(clean(text), style=style), soft_wrap=True)

    def on_held(self, record: dict[str, Any]) -> None:
        """A call waits for somebody's answer; the ruling of it is told in words, too."""

    def decision(self, record: dict[str, Any]) -> None:
        """A call was decided on; the decision with every verdict."""

    def response(self) -> None:
        """The LLM is asked: what it says from here on is a new text."""

    def text(self, piece: str) -> None:
        """Some more of what the LLM says."""

    def on_call(self, run: ToolRun) -> None:
        """A tool begins."""

    def on_result(self, run: ToolRun) -> None:
        """A tool is done."""

    def pause(self) -> None:
        """Something else is about to write to the terminal."""

    def on_end(self, ended: TurnResult) -> None:
        """The turn is over."""
        if ended.error is not None:
            self.notice(f"Error: {ended.error}", "red")
        else:
            print_text(ended.answer)


class JsonView(View):
    """The whole turn as one JSON object, when it is over."""

    def on_end(self, ended: TurnResult) -> None:
        """Print it."""
        typer.echo(json_text(ended.record | {"decisions": list(ended.decisions)}, str))


class JsonLines(View):
    """A turn as JSON Lines, one event a line, as it happens; rulings are also shown on stderr, as ever.

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
        self._write("held", **{name: record.get(name) for name in (*names, "paused")})

    def decision(self, record: dict[str, Any]) -> None:
        """A call was decided on."""
        self._write("decision", **record)

    def on_end(self, ended: TurnResult) -> None:
        """The last line."""
        self._write("answer", **ended.record)

    def _write(self, event: str, **content: Any) -> None:
        self._out.write(json_text({"event": event, **content}, str) + "\n")
