"""Table of a command, for people and for pipes. All commands make their tables here.

    in a pipe       a row is one line, and every cell is whole, however long that is
    on a terminal   the same if it fits; else long texts wrap at words and long names are cut in the middle,
                    then the spare columns are left out, then each row is a block with a line for each cell

No word is broken, and no figure is shortened.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions  # noqa: TID251 - the console that prints it

GAP: Final = "  "
"""Space between two columns."""
LEAST: Final = 24
"""Width below which no text is wrapped and no name is cut, in columns."""
CUT: Final = "…"

_Row = tuple[list[Text], str]
"""Cells and style of a row."""


class Table:
    """Rows below a head, without lines. Cells are texts with markup."""

    def __init__(
        self,
        columns: Iterable[str],
        *,
        right: Collection[str] = (),
        wrap: Collection[str] = (),
        cut: Collection[str] = (),
        spare: Sequence[str] = (),
        title: str = "",
        header: str = "bold",
    ) -> None:
        """Make a table with these columns, and no rows yet.

        Columns `right` are aligned right. On a narrow terminal, cells of `wrap` wrap at words, and cells of
        `cut` are cut in the middle. If that is too wide, `spare` columns are left out, the first one first.
        """
        self.columns = tuple(columns)
        self.title = title
        self._right, self._wrap, self._cut, self._spare = right, wrap, cut, tuple(spare)
        self._header = header
        self._rows: list[tuple[tuple[str, ...], str]] = []

    def add_row(self, *cells: str, style: str = "") -> None:
        """Add a row, with one cell for each column."""
        self._rows.append((cells, style))

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> Iterator[Segment]:
        for line in self._lines(console, options.max_width if console.is_terminal else None):
            yield from line.render(console, end="\n")

    def _lines(self, console: "Console", room: int | None) -> Iterator[Text]:
        """Return the lines. Without `room` there is no limit to their width."""
        rows: list[_Row] = [([*map(console.render_str, cells)], style) for cells, style in self._rows]
        heads = [Text(one) for one in self.columns]
        # A column of nothing takes no room.
        shown = [at for at, _ in enumerate(heads) if not rows or any(cells[at] for cells, _ in rows)]
        natural = [
            max(cell_len(cells[at].plain) for cells, _ in [(heads, ""), *rows]) for at in range(len(heads))
        ]
        if self.title:
            yield from _wrap(console, console.render_str(self.title), room or cell_len(self.title))
        spare = [name for name in self._spare if self.columns.index(name) in shown]
        for left_out in range(len(spare) + 1):
            gone = spare[:left_out]
            kept = [at for at in shown if self.columns[at] not in gone]
            if (widths := self._fit(kept, natural, rows, room)) is not None:
                for cells, style in [(heads, self._header), *rows]:
                    yield from self._row(console, [(at, cells[at]) for at in kept], widths, style)
                if gone and room:
                    words = f"This terminal is too narrow for: {', '.join(gone)}."
                    yield from _wrap(console, Text(words, "dim"), room)
                return
        yield from self._blocks(console, rows, shown, room or 0)

    def _fit(
        self, kept: Sequence[int], natural: Sequence[int], rows: Sequence[_Row], room: int | None
    ) -> dict[int, int] | None:
        """Return the width of each column, or None if there is no room for them."""
        widths = {at: natural[at] for at in kept}
        if room is None:
            return widths
        free = room - len(GAP) * (len(kept) - 1)
        for at in kept:
            if self.columns[at] in self._wrap:
                words = (cell_len(word) for cells, _ in rows for word in cells[at].plain.split())
                widths[at] = min(natural[at], max(LEAST, *words, 0))
            elif self.columns[at] in self._cut:
                widths[at] = min(natural[at], LEAST)
        free -= sum(widths.values())
        if free < 0:
            return None
        while free and (wanting := [at for at in kept if widths[at] < natural[at]]):
            widths[max(wanting, key=lambda at: natural[at] - widths[at])] += 1
            free -= 1
        return widths

    def _row(
        self, console: "Console", cells: Sequence[tuple[int, Text]], widths: dict[int, int], style: str
    ) -> Iterator[Text]:
        parts = [(at, self._part(console, at, cell, widths[at])) for at, cell in cells]
        for number in range(max((len(lines) for _, lines in parts), default=0)):
            line = Text(style=style)
            for place, (at, lines) in enumerate(parts):
                cell = lines[number] if number < len(lines) else Text()
                blank = " " * (widths[at] - cell_len(cell.plain))
                line.append(GAP if place else "")
                line.append_text(Text.assemble(blank, cell) if self.columns[at] in self._right else cell)
                if self.columns[at] not in self._right:
                    line.append(blank)
            line.rstrip()
            yield line

    def _part(self, console: "Console", at: int, cell: Text, width: int) -> list[Text]:
        """Return a cell as lines that fit into the width."""
        too_long = cell_len(cell.plain) - width
        if too_long <= 0:
            return [cell]
        if self.columns[at] in self._wrap:
            return _wrap(console, cell, width)
        keep = max(width - cell_len(CUT), 0)
        begin, end = cell[: keep - keep // 3], cell[len(cell) - keep // 3 :]
        while cell_len(begin.plain) + cell_len(end.plain) > keep:  # letters of two columns
            begin, end = begin[:-1], end[1:] if len(end) > len(begin) else end
        return [Text.assemble(begin, CUT, end)]

    def _blocks(
        self, console: "Console", rows: Sequence[_Row], shown: Sequence[int], room: int
    ) -> Iterator[Text]:
        margin = max(cell_len(self.columns[at]) for at in shown) + len(GAP)
        for number, (cells, style) in enumerate(rows):
            if number:
                yield Text()
            for at in shown:
                if not cells[at]:
                    continue
                for place, line in enumerate(_wrap(console, cells[at], max(room - margin, LEAST))):
                    head = Text("" if place else self.columns[at], self._header)
                    head.pad_right(margin - cell_len(head.plain))
                    yield Text.assemble(head, line, style=style)


def _wrap(console: "Console", text: Text, width: int) -> list[Text]:
    """Return a text as lines of whole words. A word that is longer than the width stays whole."""
    return list(text.wrap(console, max(width, *map(cell_len, text.plain.split()), 1)))
