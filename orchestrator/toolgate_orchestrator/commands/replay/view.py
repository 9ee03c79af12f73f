"""Output of `toolgate replay` for people: two tables, the calls that did not run, a summary."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from toolgate_bus.commands.markup import escape, escape_lines
from toolgate_bus.commands.table import Table
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.ruling.counterfactual import CHANGES, Effect, ProposedCall
from toolgate_bus.telemetry.printable import describe_call, shorten

from toolgate_orchestrator.commands.replay.comparison import ComparedCall, Figures, ReplayComparison
from toolgate_orchestrator.commands.replay.report import Report, SchedulerFigures, ToolFigures
from toolgate_orchestrator.commands.replay.tables import count, table_of
from toolgate_orchestrator.commands.replay.waiting_view import waiting_parts

MAX_VIOLATIONS = 20
MAX_WORDS = 1_000
"""Maximum number of characters shown of the end of a scheduler's stderr."""
MAX_CALLS = 20
MAX_ARGUMENTS = 80

_HEADS = {"veto": "vetoed", "reroute": "rerouted", "ask": "asked", "hold": "held", "allow": "allowed"}
_LIMITS = {
    "redacted": "recorded calls have placeholders, which count as equal",
    "cancelled": "cancelled calls are left out",
    "unreadable": "decisions are left out: too long for the record, or malformed",
    "unverified": "would run as other calls about which the other schedulers were never asked",
    "invalid": "times a replacement could not be used and was set aside",
    "unanswered_before": "calls before on which a scheduler gave no verdict in time",
    "unanswered_after": "calls after on which a scheduler gave no verdict in time",
    "results_unknown": (
        "results are not compared: the record holds no text of a result. Recorded runs do (FILE.jsonl)"
    ),
}


def view(report: Report) -> RenderableType:
    """Return the whole output, in the order in which a reader will ask."""
    parts: list[RenderableType] = [_tools(report.by_tool)]
    if report.by_scheduler:
        parts += ["", _schedulers(report.by_scheduler)]
    return Group(*parts, *_different(report.calls), *_given(report.calls), "", *_summary(report))


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


def _different(calls: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the calls that did not run as recorded, each with the scheduler and the reason."""
    different = [one for one in calls if one["outcome"] in ("vetoed", "rerouted")]
    if not different:
        return []
    more = len(different) - MAX_CALLS
    lines = ["", "[bold]What did not run as recorded[/]", *map(_call_line, different[:MAX_CALLS])]
    return [*lines, *([f"  … and {more} more: --json has all"] if more > 0 else [])]


def _given(calls: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the calls whose results the LLM did not get as they were, with scheduler and reason."""
    changed = [one for one in calls if one["given"] not in (None, "released")]
    if not changed:
        return []
    more = len(changed) - MAX_CALLS
    lines = ["", "[bold]Results that were not given as recorded[/]"]
    for one in changed[:MAX_CALLS]:
        call = f"{one['tool']} {_arguments(one['arguments'])}"
        by = f" by {one['given_by']}" if one["given_by"] else ""
        where = f"run {one['run']} call {one['position']}"
        became = f"{one['given']}{by}: {one['given_why']}"
        lines.append(f"  [dim]{where}[/] {escape(call)}: {escape(became)}")
    return [*lines, *([f"  … and {more} more: --json has all"] if more > 0 else [])]


def _call_line(one: Mapping[str, Any]) -> str:
    call = f"{one['tool']} {_arguments(one['arguments'])}"
    came = one["outcome"]
    if came == "rerouted":
        same = one["ran_tool"] == one["tool"]
        came = f"rerouted to {_arguments(one['ran_arguments']) if same else one['ran_tool']}"
    by = f" by {one['scheduler']}" if one["scheduler"] else ""
    why = one["reason"] or one["why"]
    where = f"run {one['run']} call {one['position']}"
    return f"  [dim]{where}[/] {escape(call)}: {escape(f'{came}{by}: {why}')}"


def _arguments(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shorten(text, MAX_ARGUMENTS)


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
    if totals["results_ruled"]:
        told = "{results_ruled} results ruled on, {results_masked} masked or replaced, {results_withheld}"
        lines.append(f"{told.format(**totals)} withheld.")
    notes = {
        "skipped_user_turns": "trailing user turns skipped: nothing in the record answers them",
        "missing_results": "calls have no recorded result; they returned an empty one",
        "stray_results": "recorded results belong to no call",
        "silent": "times a scheduler that was asked gave no verdict",
        "failed": "times a scheduler raised an error or gave an invalid answer",
    }
    lines += [f"{totals[key]} {words}." for key, words in notes.items() if totals[key]]
    if totals["silent"]:
        lines += [escape_lines(f"{name} says: {said[-MAX_WORDS:]}") for name, said in report.words.items()]
    if report.violations:
        return lines + wrong_lines(report.violations)
    return [*lines, "[green]Every recorded call got exactly one tool result, in order.[/]"]


def wrong_lines(violations: Sequence[str]) -> list[str]:
    """Return lines about what went wrong, at most MAX_VIOLATIONS of them."""
    shown = [f"  {escape(violation)}" for violation in violations[:MAX_VIOLATIONS]]
    more = [f"  … and {len(violations) - MAX_VIOLATIONS} more"] if len(violations) > MAX_VIOLATIONS else []
    return [f"[bold red]{len(violations)} things went wrong:[/]", *shown, *more]


def _ms(value: float | None) -> str:
    return "[dim]·[/]" if value is None else f"{value:.1f}"


def comparison_view(comparison: ReplayComparison) -> RenderableType:
    """Return the whole output, in the order in which a reader will ask."""
    parts: list[RenderableType] = []
    for label, side in (("before: ", comparison.before), ("after:  ", comparison.after)):
        who = ", ".join(side.schedulers)
        parts.append(label + escape(f"{side.name}: {who}" if who else side.name))
    costs = comparison.cost is not None
    parts += ["", _table("By tool", "tool", comparison.by_tool, costs=costs)]
    if comparison.by_scheduler:
        title = "By the scheduler that makes the difference"
        parts += ["", _table(title, "scheduler", comparison.by_scheduler, costs=costs)]
    if different := [one for one in comparison.calls if one.change]:
        parts += ["", "[bold]What is different[/]"]
        for one in different[:MAX_CALLS]:
            where = f"run {one.where['run']} call {one.where['position']}" if "run" in one.where else ""
            where = where or str(one.where.get("decision", ""))[:8]
            reason = f" ({one.after.reason})" if one.after.reason and one.change != "allow" else ""
            before, after = _describe_effect(one.before, one.call), _describe_effect(one.after, one.call)
            came = escape(f"{before} → {after}{reason}")
            parts.append(f"  [dim]{escape(where)}[/] {escape(_call(one.call))}: {came}")
        more = len(different) - MAX_CALLS
        parts += [f"  … and {more} more: --json has all"] if more > 0 else []
    parts += _different_results(comparison.calls)
    if comparison.waiting is not None:
        parts += waiting_parts(comparison)
    return Group(*parts, "", *_comparison_lines(comparison))


def _different_results(calls: Iterable[ComparedCall]) -> list[str]:
    """Return the results that the LLM would get otherwise, with scheduler and reason."""
    different = [(one, one.result) for one in calls if one.result is not None and one.result.change]
    if not different:
        return []
    lines = ["", "[bold]Results that would be given otherwise[/]"]
    for one, result in different[:MAX_CALLS]:
        where = f"run {one.where['run']} call {one.where['position']}"
        by = f" by {result.scheduler}" if result.scheduler else ""
        reason = f" ({result.reason})" if result.reason else ""
        came = f"{result.before} → {result.after}{by}{reason}"
        lines.append(f"  [dim]{where}[/] {escape(_call(one.call))}: {escape(came)}")
    more = len(different) - MAX_CALLS
    return [*lines, *([f"  … and {more} more: --json has all"] if more > 0 else [])]


def _table(title: str, what: str, figures: Iterable[Figures], *, costs: bool) -> Table:
    table = table_of(title, (what, "calls", "same", *_HEADS.values(), *(["saved"] if costs else [])))
    for one in figures:
        counts = (one.calls, one.same, *(getattr(one, kind) for kind in CHANGES))
        saved = [format_amount(one.saved) if one.saved is not None else "[dim]·[/]"] if costs else []
        table.add_row(escape(one.name), *map(count, counts), *saved)
    return table


def _describe_effect(effect: Effect, call: ProposedCall) -> str:
    by = f" by {effect.scheduler}" if effect.scheduler else ""
    match effect.kind:
        case "run":
            return "runs" if effect.call.same(call) else f"runs as {_call(effect.call)}{by}"
        case "deny":
            return f"vetoed{by}"
        case "ask":
            return f"a person is asked{by}"
    return f"held{by}"


def _call(call: ProposedCall) -> str:
    return describe_call(call.tool, call.arguments, MAX_ARGUMENTS)


def _comparison_lines(comparison: ReplayComparison) -> list[str]:
    totals = comparison.totals
    subject = escape(comparison.subject)
    lines = [
        f"{totals['calls']} calls of {subject}: "
        + "{same} the same, {differences} different.".format(**totals),
        (
            "{broken} ran and would not any more ({veto} vetoed, {ask} asked about, {hold} held); "
            "{freed} did not run and would; {reroute} would run as another call."
        ).format(**totals),
    ]
    results = comparison.results
    if results["compared"] > results["same"]:
        lines.append(
            (
                "{compared} results of calls that run in both: {same} the same, {withhold} withheld, "
                "{mask} masked, {replace} replaced, {release} released."
            ).format(**results)
        )
    if cost := comparison.cost:
        unknown = f"; of {cost.unknown} calls it is not known" if cost.unknown else ""
        before, after, saved = map(format_amount, (cost.before, cost.after, cost.saved))
        sums = f"{before} before, {after} after, {saved} saved"
        lines.append(f"Cost: {sums}{unknown}.")
    figures = {**comparison.limits, "unverified": totals["unverified"]}
    lines += [f"{figures[key]} {words}." for key, words in _LIMITS.items() if figures.get(key)]
    lines += [escape(note) for note in comparison.notes]
    if comparison.limits.get("unanswered_before") or comparison.limits.get("unanswered_after"):
        lines += [
            escape_lines(f"{name} says: {said[-MAX_WORDS:]}") for name, said in comparison.words.items()
        ]
    if comparison.violations:
        lines += wrong_lines(comparison.violations)
    return lines
