"""Show calls that rules or shadows would have denied, or asked a person about."""

from typing import Final

from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.table import Table
from toolgate_bus.facts.observed_calls import ObservedCalls
from toolgate_bus.telemetry.printable import shorten

MAX_SHOWN: Final = 20
"""Maximum number of lines for people; scripts get all."""
_EXAMPLE: Final = 60
_ID: Final = 8
"""Characters of a decision's id: `toolgate decisions show` takes its beginning."""


def observed_table(calls: ObservedCalls) -> Table:
    """Return a table with a line for each kind of call, the most frequent first."""
    table = Table(
        ("did" if calls.in_force else "would", "calls", "agent", "rule", "for example", "decision"),
        right=("calls",),
        cut={"agent", "rule"},
        wrap={"for example"},
        spare=("agent",),
    )
    lines = calls.sorted_lines()
    for kind, line in lines[:MAX_SHOWN]:
        rule = f"{kind.scheduler}: {kind.rule}" if kind.rule else kind.scheduler
        example, id_ = escape(shorten(line.example, _EXAMPLE)), escape(line.decision[:_ID])
        table.add_row(kind.would, str(line.count), escape(kind.agent), escape(rule), example, id_)
    rest = sum(line.count for _, line in lines[MAX_SHOWN:]) + calls.left_out
    if rest:
        table.add_row("", str(rest), "", "", "(others; --json has them)", "")
    return table
