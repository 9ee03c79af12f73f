"""Findings as a person reads them: by subject, worst first, each with what to change."""

from collections.abc import Iterable, Iterator

from rich.markup import escape

from toolgate_bus.doctor.finding import Finding, grouped, summary

__all__ = ["lines_of"]

MARKS = {
    "error": "[bold red]error[/]",
    "warning": "[yellow]warning[/]",
    "notice": "[cyan]notice[/]",
    "ok": "ok",
}
INDENT = "           "


def lines_of(findings: Iterable[Finding], *, verbose: bool) -> Iterator[str]:
    """Lines of markup; what is fine is shown on demand."""
    found = list(findings)
    for subject, own in grouped(found):
        shown = [one for one in own if verbose or one.level != "ok"]
        if shown:
            yield f"[bold]{escape(subject)}[/]"
        for one in shown:
            yield from _finding(one)
    yield f"[bold]{summary(found)}[/]"


def _finding(one: Finding) -> Iterator[str]:
    mark = MARKS[one.level]
    first, *rest = one.what.splitlines() or [""]
    yield f"  {mark}{' ' * (9 - len(one.level))}{escape(first)}"
    for line in rest:
        yield f"{INDENT}{escape(line)}"
    if one.change:
        yield f"{INDENT}[green]change:[/] {escape(one.change)}"
