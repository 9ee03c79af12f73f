"""How `toolgate replay --against` shows what is different: two tables, the calls, a summary."""

import json
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from toolgate_bus.commands.terminal import escape, escape_lines
from toolgate_bus.protocol.money import shown
from toolgate_bus.ruling.counterfactual import CHANGES, Effect, Proposed

from toolgate_orchestrator.commands.replay.comparison import ComparedCall, Comparison, Figures, Set
from toolgate_orchestrator.commands.replay.view import MAX_WORDS, count, table_of, wrong_lines

__all__ = ["comparison_view"]

MAX_CALLS = 20
MAX_ARGUMENTS = 80

_HEADS = {"veto": "vetoed", "reroute": "rerouted", "ask": "asked", "hold": "held", "allow": "allowed"}
_LIMITS = {
    "redacted": "calls stand in the record with placeholders, which are taken for equal",
    "cancelled": "cancelled calls are left out",
    "unreadable": "decisions are left out: too long for the record, or not written by its rules",
    "unverified": "would run as other calls about which the other schedulers were never asked",
    "invalid": "times a replacement could not be used and was set aside",
    "unanswered_before": "calls before on which somebody gave no verdict in time",
    "unanswered_after": "calls after on which somebody gave no verdict in time",
}


def comparison_view(comparison: Comparison) -> RenderableType:
    """Everything for a person, in the order in which they will ask."""
    parts: list[RenderableType] = [
        f"before: {_set(comparison.before)}",
        f"after:  {_set(comparison.after)}",
        "",
        _table("By tool", "tool", comparison.by_tool, costs=comparison.cost is not None),
    ]
    if comparison.by_scheduler:
        title = "By the scheduler that makes the difference"
        parts += ["", _table(title, "scheduler", comparison.by_scheduler, costs=comparison.cost is not None)]
    if different := [one for one in comparison.calls if one.change]:
        parts += ["", "[bold]What is different[/]", *map(_line, different[:MAX_CALLS])]
        more = len(different) - MAX_CALLS
        parts += [f"  … and {more} more: --json has all"] if more > 0 else []
    return Group(*parts, "", *_summary(comparison))


def _set(one: Set) -> str:
    who = ", ".join(one.schedulers)
    return escape(f"{one.name}: {who}" if who else one.name)


def _table(title: str, what: str, figures: Iterable[Figures], *, costs: bool) -> Table:
    table = table_of(title, (what, "calls", "same", *_HEADS.values(), *(["saved"] if costs else [])))
    for one in figures:
        counts = (one.calls, one.same, *(getattr(one, kind) for kind in CHANGES))
        saved = [shown(one.saved) if one.saved is not None else "[dim]·[/]"] if costs else []
        table.add_row(escape(one.name), *map(count, counts), *saved)
    return table


def _line(one: ComparedCall) -> str:
    where = f"run {one.where['run']} call {one.where['position']}" if "run" in one.where else ""
    where = where or str(one.where.get("decision", ""))[:8]
    reason = f" ({one.after.reason})" if one.after.reason and one.change != "allow" else ""
    came = f"{_came(one.before, one.call)} → {_came(one.after, one.call)}{reason}"
    return f"  [dim]{escape(where)}[/] {escape(_call(one.call))}: {escape(came)}"


def _came(effect: Effect, call: Proposed) -> str:
    by = f" by {effect.scheduler}" if effect.scheduler else ""
    match effect.kind:
        case "run":
            return "runs" if effect.call.same(call) else f"runs as {_call(effect.call)}{by}"
        case "deny":
            return f"vetoed{by}"
        case "ask":
            return f"a person is asked{by}"
    return f"held{by}"


def _call(call: Proposed) -> str:
    text = json.dumps(call.arguments, ensure_ascii=False, default=repr)
    text = text if len(text) <= MAX_ARGUMENTS else text[: MAX_ARGUMENTS - 1] + "…"
    return f"{call.tool} {text}"


def _summary(comparison: Comparison) -> list[str]:
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
    if cost := comparison.cost:
        unknown = f"; of {cost.unknown} calls it is not known" if cost.unknown else ""
        sums = f"{shown(cost.before)} before, {shown(cost.after)} after, {shown(cost.saved)} saved"
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
