"""A turn on the terminal while it happens: the answer piece by piece, a line for each tool call.

    tool     read_file(path="notes.txt")  ok  3 ms
    denied   delete_file  (policy: deleting is for people)

The answer goes to stdout, everything else to stderr. Plain words carry the meaning, colour only
repeats it.
"""

from rich.text import Text
from toolgate_bus.telemetry.printable import PieceCleaner, clean, printable, shorten

from toolgate_orchestrator.commands.host.rulings import call_text
from toolgate_orchestrator.commands.run.screen import Screen
from toolgate_orchestrator.commands.run.view import ToolRun, TurnResult, View

_MAX_CALL = 120
_MAX_PROBLEM = 200


class LiveView(View):
    """View that shows everything at once. Text from an LLM or a tool cannot control the terminal."""

    live = True

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._cleaner = PieceCleaner()
        self._said: list[str] = []

    def on_ruling(self, line: Text) -> None:
        """Show a ruling that denied or replaced a call."""
        self._screen.note(line)

    def notice(self, text: str, style: str = "dim") -> None:
        """Show a line besides the answer."""
        self._screen.note(Text(clean(text), style=style))

    def response(self) -> None:
        """Begin a new text of the LLM on a new line."""
        self._said.clear()

    def text(self, piece: str) -> None:
        """Show a further piece of the answer."""
        if not self._said:
            self._end_text()
        self._said.append(piece)
        self._screen.text(self._cleaner.feed(piece))

    def on_call(self, run: ToolRun) -> None:
        """Show the line of a call, without its end."""
        self._screen.open_note(run.id, _head(run))

    def on_result(self, run: ToolRun) -> None:
        """Complete the line of a call with its result and duration."""
        rest = Text("  ")
        if run.problem is None:
            rest.append("ok", style="green")
        else:
            line = shorten(" ".join(printable(run.problem).split()), _MAX_PROBLEM)
            rest.append("failed", style="red").append(f": {line}")
        if run.seconds is not None:
            took = f"{run.seconds * 1000:.0f} ms" if run.seconds < 1 else f"{run.seconds:.1f} s"
            rest.append(f"  {took}", style="dim")
        self._screen.finish_note(run.id, _head(run), rest)

    def pause(self) -> None:
        """Free the line for other output."""
        self._screen.free()

    def on_end(self, ended: TurnResult) -> None:
        """Show what is still missing: an answer that did not come in pieces, or the error."""
        # White space between two blocks of an answer is not streamed, so it is not compared.
        said, answer = ("".join(text.split()) for text in ("".join(self._said), ended.answer))
        if ended.problem is not None:
            self.notice(f"Error: {ended.problem}", "red")
        elif not said.endswith(answer):
            self._said.clear()
            self.text(ended.answer)
        self._end_text()
        self._said.clear()

    def _end_text(self) -> None:
        self._screen.text(self._cleaner.close())
        self._screen.end_line()


def _head(run: ToolRun) -> Text:
    call = call_text(run.tool, run.arguments)
    call.truncate(_MAX_CALL, overflow="ellipsis")
    return Text.assemble(("tool     ", "bold green"), call)
