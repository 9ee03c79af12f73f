"""Print a report for people and scripts: a table, CSV, or one JSON object a line. It counts nothing."""

import csv
import io
from typing import Any, Final

from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import console, err_console
from toolgate_bus.commands.report.accounting import ReportBuilder
from toolgate_bus.commands.report.figures import LABEL, ReportFigures, total_of
from toolgate_bus.commands.report.observed import observed_table
from toolgate_bus.commands.report.period import iso
from toolgate_bus.commands.report.sources import ReportNotes
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json, print_text
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.telemetry.printable import visible

_MONEY: Final = ("spent", "outside", "saved", "per_success")
_HEADS: Final = {
    "outside": "outside budgets",
    "held_s": "held for",
    "masked": "results masked",
    "withheld": "results withheld",
    "per_success": "per success",
}
_OF_KINDS: Final = frozenset({"succeeded", "per_success"})
"""Figures that are shown by tool, provider or model: a mean over all kinds says nothing."""
_KINDS: Final = frozenset({"tool", "provider", "model"})
_MAX_EJECTED: Final = 20
_ALWAYS: Final = frozenset({"spent", "saved", "requests", "calls", "denied", "held"})
_MAIN: Final = frozenset({"spent", "calls", "denied"})
"""Figures that are shown however narrow the terminal is."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def print_report(accounting: ReportBuilder, told: ReportNotes, style: str) -> None:
    """Print the report, as a `table`, `csv` or `json`."""
    rows = sorted(accounting.rows.items(), key=lambda one: (-one[1].spent - one[1].outside, one[0]))
    total = total_of(figures for _, figures in rows)
    {"table": _table, "csv": _csv, "json": _json}[style](accounting, rows, total, told)


Rows = list[tuple[tuple[str, ...], ReportFigures]]


def _json(accounting: ReportBuilder, rows: Rows, total: ReportFigures, told: ReportNotes) -> None:
    for row, figures in rows if accounting.by else []:
        print_json({"by": dict(zip(accounting.by, row, strict=True)), **figures.as_json()})
    period = accounting.period
    asked = {"since": period.since, "until": period.until, "time_zone": period.zone, "name": period.name}
    print_json(
        {
            "total": total.as_json(),
            "period": asked,
            "book": accounting.book,
            "budget": accounting.budget,
            "observed": accounting.observed.as_json(),
            "ejections": _ejections_json(accounting),
            "sources": told.sources,
            "unknown": told.unknown,
        }
    )


def _csv(accounting: ReportBuilder, rows: Rows, total: ReportFigures, told: ReportNotes) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    units = sorted(total.units)

    def cells(figures: ReportFigures) -> list[Any]:
        told = [value for name, value in figures.as_json().items() if name != "units"]
        return [*told, *(figures.units.get(unit, 0) for unit in units)]

    names = [name for name in total.as_json() if name != "units"]
    writer.writerow(["line", *accounting.by, *names, *map(_cell, units)])
    for row, figures in rows if accounting.by else []:
        writer.writerow(["row", *map(_cell, row), *cells(figures)])
    writer.writerow(["total", *("" for _ in accounting.by), *cells(total)])
    print_text(out.getvalue().rstrip("\n"))
    _tell_observed(accounting, err_console)
    _tell(accounting, told, err_console)


def _cell(text: str) -> str:
    """Return a text of others for a spreadsheet, so that it is never a formula."""
    return f"'{visible(text)}" if text.startswith(_FORMULA) and text != "-" else visible(text)


def _table(accounting: ReportBuilder, rows: Rows, total: ReportFigures, told: ReportNotes) -> None:
    names = [name for name in total.as_json() if name != "units"]
    by_kind = not _KINDS.isdisjoint(accounting.by)
    names = [name for name in names if by_kind or name not in _OF_KINDS]
    figures = [name for name in names if name in _ALWAYS or getattr(total, name)]
    units = sorted(total.units)
    # Tools' calls and requests that ran are counted anyway: a budget's own count says so.
    heads = [*(_HEADS.get(name, name) for name in figures), *(f"{escape(unit)} in budgets" for unit in units)]
    by = [one.removeprefix(LABEL) for one in accounting.by]
    spare = [head for name, head in zip(figures, heads, strict=True) if name not in _MAIN]
    table = Table([*(by or [""]), *heads], right=heads, cut=by, spare=spare[::-1])
    for row, each in rows if by else []:
        table.add_row(*map(escape, row), *_cells(each, figures, units))
    table.add_row("total", *("" for _ in by[1:]), *_cells(total, figures, units), style="bold")
    console.print(f"Report of {escape(accounting.period.words())}", soft_wrap=True)
    console.print(table)
    if total.outside:
        amount = format_amount(total.outside)
        outside = f"Outside budgets: {amount}, reported by calls that no budget paid for."
        console.print(outside, soft_wrap=True)
    if total.results:
        words = f"Results ruled on: {total.results:,}; masked or replaced {total.masked:,}"
        console.print(f"{words}, withheld {total.withheld:,}.", soft_wrap=True)
    _tell_observed(accounting, console)
    if accounting.observed.lines:
        console.print(observed_table(accounting.observed))
    for words in _ejections(accounting):
        console.print(escape(words), soft_wrap=True)
    _tell(accounting, told, console)


def _cells(figures: ReportFigures, names: list[str], units: list[str]) -> list[str]:
    counted = [escape(format_amount(figures.units.get(unit, 0), unit)) for unit in units]
    return [*(_figure(name, getattr(figures, name)) for name in names), *counted]


def _figure(name: str, value: Any) -> str:
    if name in _MONEY:
        return "-" if value is None else format_amount(value)
    return f"{value:.1f} s" if name == "held_s" else str(value)


def _ejections(accounting: ReportBuilder) -> list[str]:
    """Return lines on what schedulers left alone for a while, and why."""
    found = accounting.ejections or []
    lines = [
        f"Ejected: {visible(one.of)} by {visible(one.scheduler)}, {_times(one.times)}, "
        f"{one.seconds:.0f} s without calls; last {iso(one.last.at, accounting.period.zone)}: "
        f"{visible(one.last.words)}"
        for one in found[:_MAX_EJECTED]
    ]
    more = len(found) - _MAX_EJECTED
    return [*lines, f"Ejected: {more} others"] if more > 0 else lines


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _ejections_json(accounting: ReportBuilder) -> list[dict[str, Any]] | None:
    if accounting.ejections is None:
        return None
    return [
        {
            **one._asdict(),
            "seconds": round(one.seconds, 3),
            "last": {"at": one.last.at, "why": one.last.why, "words": one.last.words},
        }
        for one in accounting.ejections
    ]


def _tell(accounting: ReportBuilder, told: ReportNotes, where: Any) -> None:
    for words in told.sources:
        where.print(f"From: {escape(words)}", soft_wrap=True)
    for words in told.unknown:
        where.print(f"Not known: {escape(words)}", soft_wrap=True)


def _tell_observed(accounting: ReportBuilder, where: Any) -> None:
    """Print the sum of calls that ran, and that rules or shadows would have stopped."""
    calls = accounting.observed
    if calls.denied or calls.asked:
        words = f"Would have denied {calls.denied}, asked about {calls.asked}: calls that ran, because a rule"
        where.print(f"{words} only observes or a scheduler is a shadow.", soft_wrap=True)
