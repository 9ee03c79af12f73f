"""The dashboard "Toolgate fleet": veto rates at a glance, and where to look next."""

from grafana_foundation_sdk.builders import dashboard
from parts import (
    FLEET,
    HALF,
    NOTIFY,
    PATIENCE_S,
    PROCESS,
    Panels,
    Query,
    empty_dashboard,
    line,
    number,
    quantile,
    rate,
    ruled_share,
    share,
    veto_rate,
)

__all__ = ["fleet"]

VETOES = ((0.1, "yellow"), (0.3, "red"))
RARE = ((0.01, "yellow"), (0.05, "red"))
LATENCY = ((0.8 * PATIENCE_S, "yellow"), (PATIENCE_S, "red"))
DECISIONS = rate("toolgate_decisions_total")
DENY = 'action="deny"'
_SILENT = f'rate(toolgate_silent_total{{{FLEET}, scheduler!="in-process"}}[$__rate_interval])'
_LET_PASS = f'rate(toolgate_failed_open_total{{{FLEET}, reason=~"silent|failed|refused"}}[$__rate_interval])'
DENIED_SILENT = (
    f"sum by (scheduler) ({_SILENT})"
    f" - (sum by (scheduler) ({_LET_PASS}) or 0 * sum by (scheduler) ({_SILENT}))"
)
"""Decisions a second that were denied because a required scheduler was silent."""


def per_hour(metric: str, by: str = "") -> str:
    """How much an hour, at the pace of the last five minutes."""
    return f"3600 * {rate(metric, by)}"


def fleet() -> dashboard.Dashboard:
    """The overview."""
    board = empty_dashboard("toolgate-fleet", "Toolgate fleet", "Every tool call of the fleet, ruled on.")
    for panel in _glance():
        board.with_panel(panel)
    for title, panels in (
        ("Rulings", _rulings()),
        ("Latency and faults", _faults()),
        ("Agents", _agents()),
        ("Processes", _processes()),
    ):
        board.with_row(dashboard.Row(title))
        for panel in panels:
            board.with_panel(panel)
    return board


def _glance() -> Panels:
    return (
        number(
            "Veto rate",
            "Denied decisions / decisions, last 5 minutes.",
            Query(veto_rate(), "veto rate"),
            "percentunit",
            limits=VETOES,
        ),
        number(
            "Override rate",
            "Decisions by which another call ran than the LLM chose / decisions, last 5 minutes.",
            Query(
                share(rate("toolgate_decisions_total", only='outcome="modify"'), DECISIONS), "override rate"
            ),
            "percentunit",
        ),
        number(
            "Failing open",
            "Optional schedulers without a verdict, for each decision: what they would deny runs.",
            Query(share(rate("toolgate_failed_open_total"), DECISIONS), "failed open"),
            "percentunit",
            limits=RARE,
        ),
        number(
            "Decisions",
            "Decisions a second, last 5 minutes.",
            Query(DECISIONS, "decisions"),
            "reqps",
        ),
        number(
            "Decision p99",
            "99 of 100 decisions took less. Orchestrators have 500 ms patience unless told otherwise.",
            Query(quantile(0.99, "toolgate_decision_seconds"), "p99"),
            "s",
            limits=LATENCY,
        ),
        number(
            "Cost saved",
            "In the time shown: what cheaper replacements saved, by the mean costs that tools told. "
            "In the currency of cost-aware.",
            Query(f"sum(increase(toolgate_saved_cost_total{{{FLEET}}}[$__range])) / 1e6", "saved"),
            "none",
        ),
    )


def _rulings() -> Panels:
    return (
        line(
            "Veto rate by scheduler",
            "Denies of a scheduler / decisions about which it was asked.",
            [Query(ruled_share("toolgate_verdicts_total", 'action="deny"'), "{{scheduler}}")],
            "percentunit",
        ),
        line(
            "Veto rate by tool",
            "Denied decisions / decisions; the ten tools that are denied most.",
            [Query(f"topk(10, {veto_rate('tool')})", "{{tool}}")],
            "percentunit",
        ),
        line(
            "Veto rate by agent",
            "Denied decisions / decisions; the ten agents that are denied most.",
            [Query(f"topk(10, {veto_rate('agent')})", "{{agent}}")],
            "percentunit",
        ),
        line(
            "Veto rate by rule",
            "Denials a second by the rule that a verdict names; the ten rules that deny most.",
            [
                Query(
                    f"topk(10, {rate('toolgate_rule_verdicts_total', 'scheduler, rule', DENY)})",
                    "{{scheduler}}: {{rule}}",
                )
            ],
            "reqps",
        ),
        line(
            "Veto rate by label",
            "Denied decisions / decisions, by the labels of agents that the exporter is told (`--by-label`).",
            [
                Query(
                    share(
                        rate("toolgate_label_decisions_total", "label, value", 'outcome="deny"'),
                        rate("toolgate_label_decisions_total", "label, value"),
                    ),
                    "{{label}}: {{value}}",
                )
            ],
            "percentunit",
        ),
        line(
            "Decisions by outcome",
            "Decisions a second: continue (the LLM's choice), modify (another call), deny, cancelled.",
            [
                Query(
                    f"sum by (outcome) (rate(toolgate_decisions_total{{{FLEET}}}[$__rate_interval]))",
                    "{{outcome}}",
                )
            ],
            "reqps",
            stacked=True,
        ),
        line(
            "Override rate by scheduler",
            "Decisions that came out as a scheduler's modify said / decisions about which it was asked.",
            [Query(ruled_share("toolgate_decided_total", 'outcome="modify"'), "{{scheduler}}")],
            "percentunit",
        ),
        line(
            "Results that were ruled on",
            "Results of calls a second, by what became of them: released, masked, replaced, withheld.",
            [Query(rate("toolgate_results_total", "outcome"), "{{outcome}}")],
            "reqps",
            stacked=True,
        ),
        line(
            "Results masked and withheld by scheduler",
            "Verdicts a second that masked, replaced or withheld a result.",
            [
                Query(
                    rate(
                        "toolgate_result_verdicts_total", "scheduler, action", 'action=~"mask|replace|deny"'
                    ),
                    "{{scheduler}} {{action}}",
                )
            ],
            "reqps",
        ),
        line(
            "Shadows that disagree",
            "Decisions and results a second that a shadow would have changed, had it counted. "
            "`toolgate decisions --shadow` shows them.",
            [
                Query(
                    "sum by (scheduler) "
                    f"(rate(toolgate_shadow_disagreements_total{{{FLEET}}}[$__rate_interval]))",
                    "{{scheduler}}",
                )
            ],
            "reqps",
        ),
    )


def _faults() -> Panels:
    def each(metric: str, by: str = "scheduler") -> str:
        return f"sum by ({by}) (rate({metric}{{{FLEET}}}[$__rate_interval]))"

    return (
        line(
            "Decisions: how long they took",
            "From the question to the decision; what people held counts too. Points are traces. "
            "Dashed: near the default patience.",
            [
                Query(quantile(0.5, "toolgate_decision_seconds", window="$__rate_interval"), "p50"),
                Query(
                    quantile(0.99, "toolgate_decision_seconds", window="$__rate_interval"),
                    "p99",
                    exemplars=True,
                ),
            ],
            "s",
            limits=LATENCY,
        ),
        line(
            "Verdicts, p99",
            "99 of 100 verdicts of a scheduler came sooner; holds left out. Dashed: near patience.",
            [Query(quantile(0.99, "toolgate_verdict_seconds", "scheduler"), "{{scheduler}}")],
            "s",
            limits=LATENCY,
        ),
        line(
            "Failed open",
            "Decisions a second without an optional scheduler: it was silent, failed, was passed over "
            "after three silences, refused by the bus, or the bus was down.",
            [Query(each("toolgate_failed_open_total", "scheduler, reason"), "{{scheduler}}: {{reason}}")],
            "reqps",
        ),
        line(
            "Silent, late, invalid",
            "Each a second. Silent: waited for in vain. Late: a verdict after its decision. "
            "Invalid: a modify set aside.",
            [
                Query(each("toolgate_silent_total"), "{{scheduler}} silent"),
                Query(each("toolgate_late_verdicts_total"), "{{scheduler}} late"),
                Query(each("toolgate_invalid_modifies_total"), "{{scheduler}} invalid"),
            ],
            "reqps",
        ),
        line(
            "Denied for silence",
            "Decisions a second denied because a required scheduler gave no verdict.",
            [Query(DENIED_SILENT, "{{scheduler}}")],
            "reqps",
        ),
        line(
            "Inbox lag",
            "How long the oldest question has waited that no replica took. Inboxes keep ten seconds.",
            [Query(f"max by (scheduler) (toolgate_inbox_lag_seconds{{{FLEET}}})", "{{scheduler}}")],
            "s",
            limits=((1, "red"),),
        ),
    )


def _agents() -> Panels:
    def each(share_of: float, metric: str, by: str = "") -> str:
        return quantile(share_of, metric, by, window="$__rate_interval")

    return (
        line(
            "Turns per hour",
            "By how they ended, at the pace of the last 5 minutes.",
            [Query(per_hour("toolgate_turns_total", "status"), "{{status}}")],
            "short",
            stacked=True,
        ),
        line(
            "Turns: how long they took",
            "From the prompt to the end of the turn.",
            [
                Query(each(0.5, "toolgate_turn_seconds"), "p50"),
                Query(each(0.99, "toolgate_turn_seconds"), "p99", exemplars=True),
            ],
            "s",
        ),
        line(
            "Tool calls by outcome",
            "Calls a second: ok, error, denied, cancelled, unused (let through, and not run after all).",
            [
                Query(
                    f"sum by (outcome) (rate(toolgate_tool_calls_total{{{FLEET}}}[$__rate_interval]))",
                    "{{outcome}}",
                )
            ],
            "reqps",
            stacked=True,
        ),
        line(
            "Tokens per hour",
            "Of all LLMs, at the pace of the last 5 minutes.",
            [Query(per_hour("toolgate_tokens_total", "kind"), "{{kind}}")],
            "short",
        ),
        line(
            "LLM cost per hour",
            "US dollars, as providers tell it, at the pace of the last 5 minutes; the ten dearest agents.",
            [Query(f"topk(10, {per_hour('toolgate_cost_usd_total', 'agent')})", "{{agent}}")],
            "currencyUSD",
        ),
        line(
            "LLM cost per hour by model",
            "US dollars, as providers tell it, at the pace of the last 5 minutes; the ten dearest models.",
            [Query(f"topk(10, {per_hour('toolgate_model_cost_usd_total', 'model')})", "{{model}}")],
            "currencyUSD",
        ),
        line(
            "LLM requests, p99, and errors",
            "Seconds of the slowest request in a hundred, by provider; and errors a second.",
            [
                Query(each(0.99, "toolgate_provider_seconds", "provider"), "{{provider}} p99"),
                Query(
                    "sum by (provider) (rate(toolgate_provider_requests_total"
                    f'{{{FLEET}, outcome="error"}}[$__rate_interval]))',
                    "{{provider}} errors/s",
                ),
            ],
            "none",
        ),
        line(
            "Cost saved per hour",
            "By cheaper replacements, at the pace of the last 5 minutes, in the currency of cost-aware.",
            [Query(f"{per_hour('toolgate_saved_cost_total')} / 1e6", "saved")],
            "none",
        ),
        line(
            "Alternatives ejected per hour",
            "Tools, agents and models that schedulers left alone for a while, and why: failures running, far "
            "below the best one's success, a try that failed. The most of any replica that serves a port.",
            [
                Query(
                    "max by (scheduler, alternative, reason) (3600 * rate(toolgate_ejections_total"
                    f"{{{PROCESS}}}[5m]))",
                    "{{alternative}}, {{scheduler}}: {{reason}}",
                )
            ],
            "none",
        ),
        line(
            "Tools, p99",
            "99 of 100 runs of a tool were faster; the ten slowest.",
            [Query(f"topk(10, {each(0.99, 'toolgate_tool_seconds', 'tool')})", "{{tool}}")],
            "s",
        ),
        line(
            "Paused by operators",
            "How long the oldest pause that stands has stood: `toolgate agents pauses`.",
            [Query(f"max by (namespace) (toolgate_oldest_pause_seconds{{{FLEET}}})", "{{namespace}}")],
            "s",
        ),
    )


def _processes() -> Panels:
    return (
        line(
            "Who is alive",
            "Replicas of each scheduler, orchestrators, and readers of facts.",
            [
                Query(f"max by (scheduler) (toolgate_scheduler_replicas{{{FLEET}}})", "{{scheduler}}"),
                Query(f"max(toolgate_orchestrators{{{FLEET}}})", "orchestrators"),
                Query(f"max by (role) (toolgate_facts_readers{{{FLEET}}})", "{{role}} (reader)"),
            ],
            "short",
            span=HALF,
        ),
        line(
            "Revisions",
            "Different configurations by which the replicas of a scheduler rule: 1, but for the moments of a "
            "rollout. `toolgate scheduler list` names them.",
            [Query(f"max by (scheduler) (toolgate_scheduler_revisions{{{FLEET}}})", "{{scheduler}}")],
            "short",
            span=HALF,
            limits=((2, "red"),),
        ),
        line(
            "The exporter",
            "Exporters that lead (should be 1); how far it is behind the facts, in seconds; facts that it "
            "missed, and that processes with a port could not write, in 5 minutes (should be 0).",
            [
                Query(f"sum(toolgate_exporter_leads{{{FLEET}}})", "leading"),
                Query(f"max(toolgate_exporter_lag_seconds{{{FLEET}}})", "seconds behind"),
                Query(f"sum(increase(toolgate_exporter_gaps_total{{{FLEET}}}[5m]))", "facts missed"),
                Query(f"sum(increase(toolgate_facts_dropped_total{{{PROCESS}}}[5m]))", "facts not written"),
            ],
            "none",
            span=HALF,
        ),
        line(
            "Rules that were changed",
            "Time since the rules of a scheduler changed so; shown for a day. `toolgate scheduler history` "
            "says who did it, and why.",
            [
                Query(
                    "time() - max by (scheduler, event) "
                    f"(toolgate_config_change_timestamp_seconds{{{FLEET}}})",
                    "{{scheduler}} {{event}}",
                )
            ],
            "s",
            span=HALF,
        ),
        line(
            "People who are told",
            "Notifications that wait to be posted, by receiver, and processes of `toolgate notify` at work "
            "(should be 1, where it is used).",
            [
                Query(
                    f"max by (receiver) (toolgate_notifications_queued{{{NOTIFY}}})", "{{receiver}} (waiting)"
                ),
                Query(f"sum(toolgate_notify_leads{{{NOTIFY}}})", "at work"),
            ],
            "none",
            span=HALF,
        ),
        line(
            "Notifications",
            "Tries to post one, each second. Failed: tried again; refused and expired: dropped.",
            [
                Query(
                    "sum by (receiver, outcome) "
                    f"(rate(toolgate_notifications_total{{{NOTIFY}}}[$__rate_interval]))",
                    "{{receiver}} {{outcome}}",
                )
            ],
            "ops",
            span=HALF,
        ),
        line(
            "Event loops, p99, and reconnections",
            "Of processes that serve a port: how much later than asked their event loop wakes, in seconds; "
            "connections to the server made again, each second.",
            [
                Query(
                    "histogram_quantile(0.99, sum by (side, le) "
                    f"(rate(toolgate_event_loop_lag_seconds_bucket{{{PROCESS}}}[$__rate_interval]))) >= 0",
                    "{{side}} lag",
                ),
                Query(
                    f"sum by (job) (rate(toolgate_redis_reconnects_total{{{PROCESS}}}[$__rate_interval]))",
                    "{{job}} reconnections/s",
                ),
            ],
            "none",
            span=HALF,
        ),
    )
