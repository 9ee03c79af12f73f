"""Tables of figures, as `toolgate replay` prints them."""

from collections.abc import Iterable

from toolgate_bus.commands.table import Table


def table_of(title: str, columns: Iterable[str]) -> Table:
    """Return an empty table of figures, a line for each name."""
    name, *figures = columns
    return Table(
        (name, *figures),
        right=figures,
        cut={name},
        spare=figures[:2:-1],
        title=f"[bold]{title}[/]",
        header="dim",
    )


def count(number: int) -> str:
    """Return a number as a cell; 0 is a dot."""
    return str(number) if number else "[dim]·[/]"
