"""How `toolgate replay` shows its figures: two tables, a summary, and what went wrong."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from toolgate_bus.commands.terminal import escape, escape_lines

from toolgate_orchestrator.commands.replay.report import Report, SchedulerFigures, ToolFigures

__all__ = ["MAX_WORDS", "count", "table_of", "view", "wrong_lines"]

MAX_VIOLATIONS = 20
MAX_WORDS = 1_000
"""The end of what a scheduler said."""
MAX_NAME = 48


def view(report: Report) -> RenderableType:
    """Everything for a person, in the order in which they will ask."""
    parts: list[RenderableType] = [_tools(report.by_tool)]
    if report.by_scheduler:
        parts += ["", _schedulers(report.by_scheduler)]
    parts += ["", *_summary(report)]
    return Group(*parts)


def table_of(title: str, columns: Iterable[str]) -> Table:
    """The names give way on a narrow terminal; the figures never do."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
    )
    for at, column in enumerate(columns):
        if at:
            table.add_column(column, justify="right", no_wrap=True, min_width=max(len(column), 5))
        else:
            table.add_column(column, no_wrap=True, min_width=10, max_width=MAX_NAME)
    return table


def _tools(figures: Iterable[ToolFigures]) -> Table:
    columns = ("tool", "calls", "run", "vetoed", "rerouted", "unrecorded", "late", "median", "p99")
    table = table_of("By tool (ms to the decision)", columns)
    for one in figures:
        counts = (one.calls, one.run, one.vetoed, one.rerouted, one.unrecorded, one.late)
        table.add_row(escape(one.tool), *map(count, counts), _ms(one.median_ms), _ms(one.p99_ms))
    return table


def _schedulers(figures: Iterable[SchedulerFigures]) -> Table:
    said = ("continue", "deny", "modify")
    columns = ("scheduler", *said, "run", "vetoed", "rerouted", "late", "silent", "median", "p99")
    table = table_of("By scheduler (ms to its verdict)", columns)
    for one in figures:
        verdicts = (one.verdicts.get(action, 0) for action in said)
        counts = (*verdicts, one.run, one.vetoed, one.rerouted, one.late, one.silent)
        table.add_row(escape(one.scheduler), *map(count, counts), _ms(one.median_ms), _ms(one.p99_ms))
    return table


def _summary(report: Report) -> list[str]:
    totals = report.totals
    counts = "{runs} runs, {turns} turns, {calls} calls, {results} results".format(**totals)
    came = "{run} run, {vetoed} vetoed, {rerouted} rerouted ({unrecorded} unrecorded), {late} late".format(
        **totals
    )
    latency = f", decided in {_ms(report.median_ms)} ms (median), {_ms(report.p99_ms)} ms (p99)"
    lines = [
        f"{counts} in {report.seconds:.1f} s through {escape(report.loop)}.",
        f"{came}; {totals['ruled']} calls ruled on{latency if totals['ruled'] else ''}.",
    ]
    notes = {
        "skipped_user_turns": "trailing user turns skipped: nothing in the record answers them",
        "missing_results": "calls have no recorded result; they returned an empty one",
        "stray_results": "recorded results belong to no call",
        "silent": "times a scheduler that was asked gave no verdict",
        "failed": "times a scheduler raised or answered nonsense",
    }
    lines += [f"{totals[key]} {words}." for key, words in notes.items() if totals[key]]
    if totals["silent"]:
        lines += [escape_lines(f"{name} says: {said[-MAX_WORDS:]}") for name, said in report.words.items()]
    return lines + _verdict(report.violations)


def _verdict(violations: list[str]) -> list[str]:
    if not violations:
        return ["[green]Every recorded call got exactly one tool result, in order.[/]"]
    return wrong_lines(violations)


def wrong_lines(violations: Sequence[str]) -> list[str]:
    """What went wrong, of much the beginning."""
    shown = [f"  {escape(violation)}" for violation in violations[:MAX_VIOLATIONS]]
    more = [f"  … and {len(violations) - MAX_VIOLATIONS} more"] if len(violations) > MAX_VIOLATIONS else []
    return [f"[bold red]{len(violations)} things went wrong:[/]", *shown, *more]


def count(number: int) -> str:
    """A figure in a table; nothing is a dot."""
    return str(number) if number else "[dim]·[/]"


def _ms(value: float | None) -> str:
    return "[dim]·[/]" if value is None else f"{value:.1f}"
