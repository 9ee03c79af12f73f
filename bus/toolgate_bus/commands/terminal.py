"""The one console: everything that a command says to people or scripts is printed here.

Whatever reaches it, text is shown without what could steer a terminal (`printable`); escape sequences
are its own; words of others in a line with markup go through `markup`. `print_json` is for `--json`. No rule
about characters is written here. A terminal parts lines at words; what is to stay whole for `grep`
(`soft_wrap`) does so where the output goes elsewhere.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType  # noqa: TID251 - made safe below
from rich.segment import Segment
from rich.text import Text

from toolgate_bus.telemetry.printable import clean, json_text

if TYPE_CHECKING:
    from rich.table import Table


MIN_WIDTH = 20
"""Columns that a text has at the least beside its margin."""
_SET_IN = 2
"""Columns by which the rest of a parted line is set in: words of others begin no line there."""


class Terminal(Console):
    """A console on which nobody else's text steers."""

    def __init__(self, **options: Any) -> None:
        """Takes the options of a rich Console."""
        super().__init__(highlight=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments as rich makes them, each with its text cleaned; its own control codes are left."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(clean(segment.text), segment.style)

    def print(self, *objects: Any, soft_wrap: bool | None = None, end: str = "\n", **options: Any) -> None:
        """As rich does, but a line of text that is parted keeps its margin, and its words stay whole."""
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
            discard_output(self.file)  # the terminal was closed, of which a signal tells whoever must know

    def _part_at_words(self, line: Text, *, set_in: bool) -> list[Text]:
        margin = line[: len(line) - len(line.plain.lstrip(" "))]
        rest = margin + " " * (_SET_IN if set_in or margin else 0)
        width = max(self.width - len(rest), MIN_WIDTH)
        longest = max(map(cell_len, line.plain.split()), default=0)  # of nothing but spaces there is no word
        if cell_len(line.plain) <= self.width or not 0 < longest <= width:
            return [line]
        first, *others = line[len(margin) :].wrap(self, width)
        return [margin + first, *(rest + one for one in others)]


console = Terminal()
"""Results go here: stdout."""
err_console = Terminal(stderr=True)
"""Progress, notices and errors go here: stderr."""


def discard_output(stream: IO[str]) -> None:
    """Have what is written to a stream go nowhere from now on: its reader has gone.

    What is left in its buffer is flushed at exit, and must not fail there again.
    """
    with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def new_table(
    columns: Iterable[str], *, right: Collection[str] = (), whole: Collection[str] = (), header: str = "bold"
) -> "Table":
    """A table without lines; figures stand `right`, and what is `whole` is not parted on a narrow screen."""
    from rich.table import Table  # here: many commands never show one

    table = Table(box=None, pad_edge=False, header_style=header)
    for one in columns:
        justify: Literal["right", "left"] = "right" if one in right else "left"
        table.add_column(one, justify=justify, overflow="fold", no_wrap=one in whole)
    return table


def print_json(value: Any, default: Callable[[Any], Any] = repr) -> None:
    """One line for scripts, on stdout."""
    typer.echo(json_text(value, default))


def print_text(text: str) -> None:
    """A text that is the result itself, on stdout, as it is but for what would steer."""
    typer.echo(clean(text))
