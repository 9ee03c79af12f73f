"""The dashboard "Toolgate scheduler": all about one of them."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models
from parts import (
    FLEET,
    PATIENCE_S,
    PROCESS,
    SOURCE,
    Panels,
    Query,
    empty_dashboard,
    line,
    number,
    quantile,
    rate,
    ruled_share,
    share,
)

__all__ = ["scheduler"]

ONE = 'scheduler="$scheduler"'
LATENCY = ((0.8 * PATIENCE_S, "yellow"), (PATIENCE_S, "red"))


def scheduler() -> dashboard.Dashboard:
    """One scheduler, which the variable `scheduler` names."""
    board = empty_dashboard(
        "toolgate-scheduler", "Toolgate scheduler", "What one scheduler rules, and how well it keeps up."
    ).with_variable(
        dashboard.QueryVariable("scheduler")
        .label("Scheduler")
        .datasource(SOURCE)
        .query(f"label_values(toolgate_asked_decisions_total{{{FLEET}}}, scheduler)")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
    for panel in _glance():
        board.with_panel(panel)
    for title, panels in (("Rulings", _rulings()), ("Keeping up", _keeping_up())):
        board.with_row(dashboard.Row(title))
        for panel in panels:
            board.with_panel(panel)
    return board


def _each(metric: str, by: str = "", job: str = FLEET) -> str:
    rate = f"rate({metric}{{{job}, {ONE}}}[$__rate_interval])"
    return f"sum by ({by}) ({rate})" if by else f"sum({rate})"


def _glance() -> Panels:
    return (
        number(
            "Veto rate",
            "Its denies / decisions about which it was asked, last 5 minutes.",
            Query(ruled_share("toolgate_verdicts_total", 'action="deny"', ONE), "veto rate"),
            "percentunit",
        ),
        number(
            "Override rate",
            "Decisions that came out as its modify said / decisions about which it was asked.",
            Query(ruled_share("toolgate_decided_total", 'outcome="modify"', ONE), "override rate"),
            "percentunit",
        ),
        number(
            "Failed open",
            "Decisions made without it though it is asked where it is alive / all decisions.",
            Query(
                share(rate("toolgate_failed_open_total", only=ONE), rate("toolgate_decisions_total")),
                "failed open",
            ),
            "percentunit",
            limits=((0.01, "yellow"), (0.05, "red")),
        ),
        number(
            "Asked",
            "Decisions a second about which it was asked.",
            Query(rate("toolgate_asked_decisions_total", only=ONE), "asked"),
            "reqps",
        ),
        number(
            "Verdict p99",
            "99 of 100 of its verdicts came sooner; holds left out.",
            Query(quantile(0.99, "toolgate_verdict_seconds", only=ONE), "p99"),
            "s",
            limits=LATENCY,
        ),
        number(
            "Replicas",
            "Alive now.",
            Query(f"max(toolgate_scheduler_replicas{{{FLEET}, {ONE}}})", "replicas"),
            "short",
        ),
    )


def _rulings() -> Panels:
    return (
        line(
            "Verdicts by action",
            "Verdicts a second: continue, modify, deny, ask_user, hold; failed where it raised or gave none.",
            [Query(_each("toolgate_verdicts_total", "action"), "{{action}}")],
            "reqps",
            stacked=True,
        ),
        line(
            "Veto rate",
            "Now, and over an hour: the alert compares the two.",
            [
                Query(ruled_share("toolgate_verdicts_total", 'action="deny"', ONE), "5 minutes"),
                Query(ruled_share("toolgate_verdicts_total", 'action="deny"', ONE, "1h"), "1 hour"),
            ],
            "percentunit",
        ),
        line(
            "Veto rate by tool",
            "Its denies / decisions about which it was asked; the ten tools that it denies most.",
            [
                Query(
                    "topk(10, sum by (tool) (rate(toolgate_verdicts_total"
                    f'{{{FLEET}, {ONE}, action="deny"}}[$__rate_interval])) / ('
                    + _each("toolgate_asked_decisions_total", "tool")
                    + " > 0))",
                    "{{tool}}",
                )
            ],
            "percentunit",
        ),
        line(
            "Decided by its verdict",
            "Decisions a second that came out as it said, whatever the others said.",
            [Query(_each("toolgate_decided_total", "outcome"), "{{outcome}}")],
            "reqps",
        ),
        line(
            "By its local table",
            "Verdicts a second that gates gave by its table, without asking it; they are among all verdicts.",
            [Query(_each("toolgate_local_verdicts_total", "action"), "{{action}}")],
            "reqps",
        ),
        line(
            "Alternatives left alone",
            "1 while a tool, agent or model gets no calls as it fails too often, or waits for the call that "
            "tries it. Of replicas that serve a port.",
            [Query(f"max by (alternative) (toolgate_ejected{{{PROCESS}, {ONE}}})", "{{alternative}}")],
            "short",
        ),
        line(
            "Set aside",
            "Each a second: modifies that were invalid, by what was wrong; priorities that were capped.",
            [
                Query(_each("toolgate_invalid_modifies_total", "reason"), "invalid: {{reason}}"),
                Query(_each("toolgate_priority_capped_total"), "priority capped"),
            ],
            "reqps",
        ),
        line(
            "As a shadow",
            "Decisions a second that it would have changed, had it counted.",
            [Query(_each("toolgate_shadow_disagreements_total"), "disagreements")],
            "reqps",
        ),
    )


def _keeping_up() -> Panels:
    def took(share_of: float) -> str:
        return quantile(share_of, "toolgate_verdict_seconds", only=ONE, window="$__rate_interval")

    return (
        line(
            "Verdicts: how long they took",
            "From the question to its verdict; holds left out. Points are traces. "
            "Dashed: near the default patience.",
            [
                Query(took(0.5), "p50"),
                Query(took(0.99), "p99", exemplars=True),
            ],
            "s",
            limits=LATENCY,
        ),
        line(
            "Silent, late, failed open",
            "Each a second. Silent: waited for in vain. Late: a verdict after its decision. "
            "Failed open: a decision without it.",
            [
                Query(_each("toolgate_silent_total"), "silent"),
                Query(_each("toolgate_late_verdicts_total"), "late"),
                Query(_each("toolgate_failed_open_total", "reason"), "failed open: {{reason}}"),
            ],
            "reqps",
        ),
        line(
            "Inbox",
            "Questions: not yet taken by a replica, and taken but not answered.",
            [
                Query(f"max(toolgate_inbox_backlog{{{FLEET}, {ONE}}})", "backlog"),
                Query(f"max(toolgate_inbox_pending{{{FLEET}, {ONE}}})", "pending"),
            ],
            "short",
        ),
        line(
            "Inbox lag",
            "How long the oldest question has waited that no replica took.",
            [Query(f"max(toolgate_inbox_lag_seconds{{{FLEET}, {ONE}}})", "lag")],
            "s",
            limits=((1, "red"),),
        ),
        line(
            "Answers of its processes",
            "Verdicts a second by replica, of those that serve a port: whether they share the work.",
            [Query(_each("toolgate_worker_answers_total", "instance", PROCESS), "{{instance}}")],
            "reqps",
        ),
        line(
            "Mishaps in its processes",
            "Each a second, of replicas that serve a port: errors by reason, questions too old to answer, "
            "questions taken over from dead replicas.",
            [
                Query(_each("toolgate_scheduler_errors_total", "reason", PROCESS), "error: {{reason}}"),
                Query(_each("toolgate_expired_questions_total", "", PROCESS), "expired"),
                Query(_each("toolgate_claimed_entries_total", "", PROCESS), "claimed"),
            ],
            "reqps",
        ),
    )
