"""Decisions as `toolgate decisions` prints them, and the totals of shadows."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.table import Table

from toolgate_bus.commands.terminal import Terminal, escape
from toolgate_bus.facts.shadow_report import Disagreement, ShadowTotals
from toolgate_bus.ruling.counterfactual import CHANGES

__all__ = ["print_decision", "print_disagreements", "print_totals"]

Fact = dict[str, Any]

_COLOURS: Final = {"continue": "green", "modify": "yellow", "deny": "red", "cancelled": "magenta"}
_WOULD: Final = {
    "veto": "would veto",
    "reroute": "would reroute to {call}",
    "ask": "would have a person asked about {call}",
    "hold": "would hold it, and gave no final answer",
    "allow": "would have {call} run",
}
_ALWAYS: Final = ("heard", "same", "veto", "reroute", "ask")
_FIGURES: Final = {"heard": "heard on"} | {
    name: name for name in ("same", *CHANGES, "unverified", "redacted", "unreadable")
}
_MAX_LENGTH: Final = 100
_MARGIN: Final = " " * 9


def print_decision(console: Terminal, decision: Fact) -> None:
    """The decision on one line; below it what replaced the call, who decided, and every verdict."""
    outcome = str(decision["outcome"])
    colour = _COLOURS.get(outcome, "white")
    at = datetime.fromtimestamp(decision["at"], UTC).astimezone().strftime("%H:%M:%S")
    call = _call(decision["tool_name"], decision["tool_input"])
    about = f"{decision['seconds'] * 1000:.1f} ms  {decision['id'][:8]}"
    lines = [f"{at} [{colour}]{escape(f'{outcome:<9}')}[/] {call} [dim]{escape(about)}[/]"]
    if outcome == "modify":
        lines.append(f"{_MARGIN}→ {_call(decision['final_tool'], decision['final_input'])}")
    if decision["reason"] or decision["why"] not in ("agreed", "modified", "denied"):
        who = f"{decision['scheduler']}: " if decision["scheduler"] else ""
        lines.append(_MARGIN + escape(who + (decision["reason"] or decision["why"])))
    lines += [
        f"{_MARGIN}[dim]{escape(_verdict(verdict))}[/]"
        for verdict in decision["verdicts"]
        if isinstance(verdict, dict)
    ]
    lines += [f"{_MARGIN}[dim]{escape(str(name))}  silent[/]" for name in decision["silent"]]
    for line in lines:
        console.print(line, soft_wrap=True)


def print_disagreements(console: Terminal, found: Sequence[Disagreement]) -> None:
    """What each shadow would have changed about the decision above."""
    for one in found:
        would = _WOULD[one.change].format(call=_call(one.tool, one.arguments))
        reason = f": {escape(one.reason)}" if one.reason else ""
        doubt = " [dim](the others were not asked about it)[/]" if not one.verified else ""
        console.print(f"{_MARGIN}[bold]{escape(one.scheduler)}[/] {would}{reason}{doubt}", soft_wrap=True)


def print_totals(console: Terminal, totals: Mapping[str, ShadowTotals]) -> None:
    """A line for each shadow: what it would have changed, of how many decisions."""
    shown = [
        name for name in _FIGURES if name in _ALWAYS or any(getattr(one, name) for one in totals.values())
    ]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("shadow", no_wrap=True)
    for name in shown:
        head = _FIGURES[name]
        table.add_column(head, justify="right", no_wrap=True, min_width=len(head))
    for shadow, one in totals.items():
        figures = (getattr(one, name) for name in shown)
        table.add_row(escape(shadow), *(str(figure) if figure else "[dim]·[/]" for figure in figures))
    console.print(table)


def _call(tool: object, arguments: object) -> str:
    text = json.dumps(arguments, ensure_ascii=False, default=repr)
    return escape(f"{tool} {text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + '…'}")


def _verdict(verdict: Fact) -> str:
    marks = [mark for mark in ("late", "shadow", "capped") if verdict.get(mark)]
    if verdict.get("problem"):
        marks.append(f"invalid: {verdict['problem']}")
    if verdict.get("phase") == "verify":
        marks.append("verify")
    more = f"  ({', '.join(marks)})" if marks else ""
    reason = f"  {verdict['reason']}" if verdict.get("reason") else ""
    seconds = verdict.get("seconds")
    timing = f"{seconds * 1000:.1f} ms" if isinstance(seconds, int | float) else "?"
    if verdict.get("action") == "hold":  # its `seconds` are its own
        timing = f"for {seconds} s"
    return f"{verdict.get('scheduler')}  {verdict.get('action')}  {timing}{more}{reason}"
