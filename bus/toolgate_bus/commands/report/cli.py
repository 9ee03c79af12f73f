"""`toolgate report`: what was spent, saved, denied and held in a month, and by whom."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from toolgate_bus.commands.decisions.filters import moment
from toolgate_bus.commands.options import NamespaceOption, RedisOption, err_console, join_bus, run_async
from toolgate_bus.commands.report.accounting import ReportBuilder
from toolgate_bus.commands.report.figures import parse_by
from toolgate_bus.commands.report.period import Period, day_of, month_of
from toolgate_bus.commands.report.sources import ReportNotes, gather
from toolgate_bus.commands.report.view import print_report
from toolgate_bus.errors import ConfigError, NoServer

_WHAT: Final = "What is reported"


def report(
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Print a line for each: team (the label of that name), label:NAME, agent, session, tool, "
            "provider, model, scheduler. Several, separated by commas: a line for each combination.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    month: Annotated[
        str | None, typer.Option(metavar="YYYY-MM", help="Default: this month.", rich_help_panel=_WHAT)
    ] = None,
    day: Annotated[
        str | None, typer.Option(metavar="YYYY-MM-DD", help="Report this day alone.", rich_help_panel=_WHAT)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="From this time on: 10m or 2h (ago), or 2026-11-21T10:30Z.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Up to this time, as above.", rich_help_panel=_WHAT)
    ] = None,
    time_zone: Annotated[
        str,
        typer.Option(
            metavar="ZONE", help="Time zone of months and days, such as Europe/Berlin.", rich_help_panel=_WHAT
        ),
    ] = "UTC",
    budget: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Report only what this budget paid.", rich_help_panel=_WHAT),
    ] = None,
    book: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Ledger to report: budget, budget-shadow, budget-hooks.",
            rich_help_panel=_WHAT,
        ),
    ] = "budget",
    archive: Annotated[
        Path | None,
        typer.Option(
            "--archive",
            metavar="DIR",
            help="Read this archive, and what the server has beyond it.",
            rich_help_panel="Bus",
        ),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV; the last line is the total.")] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print JSON, an object for each line; the last has the total.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if anything is not known.")] = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
) -> None:
    """Report what was spent, saved, denied and held, and by whom.

    \b
      toolgate report                                  this month, in total
      toolgate report --by team --archive /srv/record
      toolgate report --by agent,tool --day 2026-11-21 --time-zone Europe/Berlin
      toolgate report --by label:project --month 2026-11 --csv

    Spent is what the ledger paid, to the unit. The ledger writes a journal in
    the same step as the account, and an archive keeps that. Without an archive
    (toolgate decisions archive) the server has the newest 100,000 entries, and
    facts of one hour, which the other figures are counted from. If the windows
    of a budget fit the period, a call counts in the window in which it was
    reserved, as in the ledger; else at the time when it was paid.

    Outside budgets are costs that calls reported and no budget paid. Saved is
    the average cost, in this report, of the LLM's own choice, less the cost of
    the call that ran in its place; if no such call ran, it is not known and not
    counted. Held calls are shown with their time to the decision. Results are those
    that schedulers ruled on: how many were masked or replaced, and how many withheld.

    By tool, provider or model it also says how many calls and requests did their
    work, and what a success cost, failures included. Ejected are alternatives that
    a scheduler left alone for a while as they failed too often: how often, and why.

    Below the figures are calls that ran, and that a rule which only observes or a
    shadow would have denied, or asked a person about: how often, with an example.

    What budgets counted of another unit (calls, tokens, EUR) has a column of its own.
    In --csv and --json amounts are whole millionths of their unit; calls, requests
    and tokens are whole numbers. The report says what it has read, and what it
    cannot know. Exit code 0: reported; 1: with --strict, not all is known; 2: an
    option is wrong, or nothing can be read.
    """
    if csv and json_:
        raise ConfigError("--csv: cannot be combined with --json")
    now = time.time()
    accounting = ReportBuilder(
        parse_by(by or ()), _period(month, day, since, until, time_zone, now), book, budget
    )
    told = _read(accounting, redis, namespace, archive)
    print_report(accounting, told, "csv" if csv else "json" if json_ else "table")
    if strict and told.unknown:
        raise typer.Exit(1)


def _read(accounting: ReportBuilder, redis: str | None, namespace: str, archive: Path | None) -> ReportNotes:
    """Read the server and the archive, or the archive alone if no server is named and none runs."""
    try:
        with join_bus(redis, namespace, None) as settings:
            return run_async(lambda: gather(accounting, settings, archive, namespace))
    except NoServer:
        if archive is None:
            raise
    err_console.print("No server is named, and none runs here: only the archive is read.")
    return run_async(lambda: gather(accounting, None, archive, namespace))


def _period(
    month: str | None, day: str | None, since: str | None, until: str | None, zone: str, now: float
) -> Period:
    given = [name for name, one in (("--month", month), ("--day", day), ("--since", since or until)) if one]
    if len(given) > 1:
        raise ConfigError(f"{given[1]}: cannot be combined with {given[0]}")
    if day is not None:
        return day_of(day, zone)
    if not (since or until):
        return month_of(month, zone, now)
    begin, end = moment("--since", since, now), moment("--until", until, now)
    if begin is not None and end is not None and begin > end:
        raise ConfigError("--since: must be before --until")
    return replace(month_of(None, zone, now), since=begin, until=end, name="")
