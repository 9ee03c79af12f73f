"""Print everything that a command shows to people or scripts, on one console.

Text is shown without characters that could steer a terminal (`printable`). Escape sequences come from the
console alone. Text of others goes through `markup` before it is put into a line with markup. `print_json`
is for `--json`. No rule about characters is written here. On a terminal, lines are wrapped at words. Lines
that must stay whole for `grep` (`soft_wrap`) stay whole where the output goes elsewhere.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType  # noqa: TID251 - made safe below
from rich.segment import Segment
from rich.text import Text

from toolgate_bus.telemetry.printable import clean, json_text

MIN_WIDTH = 20
"""Minimum width of a text beside its margin, in columns."""
_SET_IN = 2
"""Indentation of the rest of a wrapped line, in columns. So no text of others begins a line."""


class Terminal(Console):
    """Console on which no text of others steers the terminal."""

    def __init__(self, **options: Any) -> None:
        """Take the options of a rich Console."""
        super().__init__(highlight=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Give the segments that rich makes, with clean text. Control codes of rich itself are left."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(clean(segment.text), segment.style)

    def print(self, *objects: Any, soft_wrap: bool | None = None, end: str = "\n", **options: Any) -> None:
        """Print as rich does, but keep the margin of a line that is wrapped, and keep its words whole."""
        options.setdefault(
            "crop", False
        )  # a pipe has no width, and a terminal breaks a line that is too long
        parted = end == "\n" and (self.is_terminal or not soft_wrap)
        if parted and len(objects) == 1 and isinstance(text := objects[0], str | Text):
            if isinstance(text, str):
                text = self.render_str(text, markup=options.get("markup"))
            lines = text.split("\n", allow_blank=True)
            parts = (part for line in lines for part in self._part_at_words(line, set_in=bool(soft_wrap)))
            objects, soft_wrap = (Text("\n").join(parts),), True
        try:
            super().print(*objects, soft_wrap=soft_wrap, end=end, **options)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            discard_output(self.file)  # the terminal was closed: a signal tells the process

    def _part_at_words(self, line: Text, *, set_in: bool) -> list[Text]:
        margin = line[: len(line) - len(line.plain.lstrip(" "))]
        rest = margin + " " * (_SET_IN if set_in or margin else 0)
        width = max(self.width - len(rest), MIN_WIDTH)
        longest = max(map(cell_len, line.plain.split()), default=0)  # a line of spaces has no word
        if cell_len(line.plain) <= self.width or not 0 < longest <= width:
            return [line]
        first, *others = line[len(margin) :].wrap(self, width)
        return [margin + first, *(rest + one for one in others)]


console = Terminal()
"""Console for results: stdout."""
err_console = Terminal(stderr=True)
"""Console for progress, notices and errors: stderr."""


def discard_output(stream: IO[str]) -> None:
    """Discard everything that is written to a stream from now on: its reader has gone.

    The rest of its buffer is flushed at exit, and must not fail there again.
    """
    with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def print_json(value: Any, default: Callable[[Any], Any] = repr) -> None:
    """Print one line of JSON for scripts on stdout."""
    typer.echo(json_text(value, default))


def print_text(text: str) -> None:
    """Print a text that is itself the result on stdout, without characters that would steer a terminal."""
    typer.echo(clean(text))
