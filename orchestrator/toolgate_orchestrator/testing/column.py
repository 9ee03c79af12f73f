"""Define the columns of the kit: the promises that an adapter must keep, each with its checks."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from toolgate_orchestrator.testing import bypasses, ends, given, rulings, trees, ways
from toolgate_orchestrator.testing.stage import Stage

Check = Callable[[Stage], Awaitable[str | None]]
"""Function that raises PromiseBreak (or an error of the framework); it may return how the promise was
kept."""


class Column(NamedTuple):
    """Promise of an adapter."""

    name: str
    title: str
    """Title in the table."""
    checks: tuple[Check, ...]


COLUMNS: Final = (
    Column("deny", "deny, with the reason", (rulings.denies_with_a_reason,)),
    Column("arguments", "other arguments", (rulings.runs_with_other_arguments,)),
    Column("tool", "another tool", (rulings.runs_another_tool,)),
    Column("ask", "ask a person, resume", (rulings.asks_and_resumes,)),
    Column("parallel", "parallel calls", (rulings.answers_each_of_parallel_calls,)),
    Column("sub-agent", "sub-agents", (trees.binds_agents_below,)),
    Column("handoff", "handoffs", (trees.binds_who_takes_over,)),
    Column("stream", "streams", (ways.streams,)),
    Column("unchanged", "nothing else changes", (ways.changes_nothing_else,)),
    Column("results", "results, budgets", (ends.settles_what_was_reserved, ends.tells_of_failures)),
    Column("withheld", "results: withheld", (given.withholds_a_result,)),
    Column("masked", "results: masked", (given.masks_a_result,)),
    Column("replaced", "results: replaced", (given.replaces_a_result,)),
    Column("errors", "errors are results", (given.hides_errors,)),
    Column("usage", "usage of LLMs", (ways.tells_usage,)),
    Column("cancel", "cancellation", (ways.ends_when_cancelled,)),
    Column("sync", "blocking runs", (ways.runs_without_a_loop,)),
    Column("fault", "fault of the gate", (ends.denies_where_the_gate_fails,)),
    Column("order", "bypass: changed behind it", (bypasses.lets_nobody_change_a_call_behind_it,)),
    Column("bare-agent", "bypass: bare sub-agent", (bypasses.lets_no_agent_below_go_ungated,)),
    Column("late-tool", "bypass: tool added later", (bypasses.lets_no_late_tool_go_ungated,)),
)
