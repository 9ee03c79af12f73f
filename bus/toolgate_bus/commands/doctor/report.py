"""Findings as lines for people."""

import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

from toolgate_bus.commands.markup import escape
from toolgate_bus.fleet.finding import Finding, group_by_subject, summary

MARKS: Final = {"error": "bold red", "warning": "yellow", "notice": "cyan", "ok": "green"}
INDENT: Final = 11
NARROWEST: Final = 40


def lines_of(findings: Iterable[Finding], *, verbose: bool, width: int | None = None) -> Iterator[str]:
    """Give lines of markup. `verbose` adds what is fine. `width` None leaves every sentence on one line."""
    found = list(findings)
    for subject, own in group_by_subject(found):
        shown = [one for one in own if verbose or one.level != "ok"]
        if shown:
            yield f"[bold]{escape(subject)}[/]"
        for one in shown:
            mark = f"  [{MARKS[one.level]}]{one.level}[/]{' ' * (INDENT - 2 - len(one.level))}"
            for number, line in enumerate(_wrap(one.what, width)):
                yield f"{mark if number == 0 else ' ' * INDENT}{escape(line)}"
            for number, line in enumerate(_wrap(f"change: {one.change}", width) if one.change else ()):
                told = escape(line)
                yield " " * INDENT + (
                    told.replace("change:", "[green]change:[/]", 1) if number == 0 else told
                )
    yield f"[bold]{summary(found)}[/]"


def _wrap(text: str, width: int | None) -> list[str]:
    room = None if width is None else max(NARROWEST, width) - INDENT
    lines = text.splitlines() or [""]
    if room is None:
        return lines
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False) or [""]
    ]
