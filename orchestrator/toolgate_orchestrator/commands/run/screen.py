"""Two streams that may be one terminal: the answer on stdout, notes about it on stderr.

If both are the terminal, a note in the middle of the answer begins a line of its own. If stdout is
redirected, it gets only the answer.
"""

from typing import TextIO

from rich.text import Text
from toolgate_bus.commands.terminal import Terminal, discard_output


class ScreenOutput:
    """Output stream whose reader may go away (`| head`); later output is then dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.terminal = stream.isatty()
        self.lost = False
        """True if the reader has gone."""

    def write(self, text: str) -> None:
        """Write and flush. Characters that the stream's encoding lacks are escaped."""
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._stream.flush()
        except BrokenPipeError:
            self.lost = True
            discard_output(self._stream)


class Screen:
    """Screen that keeps lines whole: it knows the unfinished line on either stream."""

    def __init__(self, out: ScreenOutput, notes: Terminal) -> None:
        self._out, self._notes = out, notes
        self._one_terminal = out.terminal and notes.is_terminal
        self._in_line = False
        self._open: str | None = None

    def text(self, text: str) -> None:
        """Write a further piece of the answer."""
        if not text:
            return
        if self._one_terminal:
            self._close_note()
        self._out.write(text)
        self._in_line = not text.endswith("\n")

    def end_line(self) -> None:
        """End the answer's line, if one is begun."""
        if self._in_line:
            self._out.write("\n")
            self._in_line = False

    def note(self, line: Text) -> None:
        """Write a whole line besides the answer."""
        self.free()
        self._notes.print(line, soft_wrap=True)

    def open_note(self, name: str, line: Text) -> None:
        """Begin a line that `finish_note` ends; without a terminal, nothing is written until then."""
        if self._notes.is_terminal:
            self.free()
            self._notes.print(line, end="", soft_wrap=True)
            self._open = name

    def finish_note(self, name: str, line: Text, rest: Text) -> None:
        """End the line that was begun under this name. If other output came between, write the whole line
        again."""
        if self._open == name:
            self._open = None
            self._notes.print(rest, soft_wrap=True)
        else:
            self.note(line + rest)

    def free(self) -> None:
        """End open lines, so that other output begins a new one."""
        self._close_note()
        if self._one_terminal:
            self.end_line()

    def _close_note(self) -> None:
        if self._open is not None:
            self._open = None
            self._notes.print()
