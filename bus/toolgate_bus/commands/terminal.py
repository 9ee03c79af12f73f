"""The one console: everything that a command says to people or scripts is printed here.

Whatever reaches it, text is shown without what could steer a terminal (`printable`); escape sequences
are its own. `escape` is for words of others in a line of ours: they cannot begin a line of their own
nor hold markup. `print_json` is for `--json`. No rule about characters is written here.
"""

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich.console import Console, ConsoleOptions, RenderableType  # noqa: TID251 - made safe below
from rich.markup import escape as _escape_markup  # noqa: TID251 - as above
from rich.segment import Segment

from toolgate_bus.telemetry.printable import clean, json_text, visible

if TYPE_CHECKING:
    from rich.table import Table


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


console = Terminal()
"""Results go here: stdout."""
err_console = Terminal(stderr=True)
"""Progress, notices and errors go here: stderr."""


def escape(text: object) -> str:
    """Words of others for a line with markup: they stay on it, and are no markup."""
    return _escape_markup(visible(str(text)))


def escape_lines(text: str) -> str:
    """A text of several lines for output with markup."""
    return _escape_markup(clean(text))


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
