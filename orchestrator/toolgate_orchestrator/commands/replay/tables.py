"""Tables of figures, as `toolgate replay` prints them."""

from collections.abc import Iterable
from typing import Final

from rich.table import Table

MAX_NAME: Final = 48


def table_of(title: str, columns: Iterable[str]) -> Table:
    """Return an empty table. On a narrow terminal its names are shortened, its figures never."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        header_style="dim",
        padding=(0, 1, 0, 0),
    )
    for at, column in enumerate(columns):
        if at:
            table.add_column(column, justify="right", no_wrap=True, min_width=len(column))
        else:
            table.add_column(column, no_wrap=True, min_width=10, max_width=MAX_NAME)
    return table


def count(number: int) -> str:
    """Return a number as a cell; 0 is a dot."""
    return str(number) if number else "[dim]·[/]"
