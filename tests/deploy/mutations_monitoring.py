"""Changes for the worse of what people are told of money and of changed rules."""

from mutation import BUS, Mutant

ALERTS = "deploy/prometheus/rules/toolgate-alerts.yml"
FIRES = (
    "../deploy/test_prometheus_rules.py::test_every_alert_fires_and_every_rate_is_right_in_promtools_tests"
)
MUTANTS = (
    Mutant(
        "monitoring",
        "a change is shown at the time that its writer claims",
        f"{BUS}/commands/exporter/latest_changes.py",
        "entry_order(place)[0] / 1000",
        "change.at",
        "../bus/commands/test_latest_changes.py",
    ),
    Mutant(
        "monitoring",
        "a window is said to end when it began",
        f"{BUS}/ledger/money/limits.py",
        "self.number_at(now) + 1",
        "self.number_at(now)",
        "../bus/commands/test_exporter_counts.py",
    ),
    Mutant(
        "monitoring",
        "agents that were paused are forgotten, and nobody is woken",
        ALERTS,
        "toolgate_oldest_pause_seconds{",
        "0 * toolgate_oldest_pause_seconds{",
        FIRES,
    ),
    Mutant(
        "monitoring",
        "the end of a window is not looked at",
        ALERTS,
        "(toolgate_budget_window_end_timestamp_seconds{",
        "(1e9 * toolgate_budget_window_end_timestamp_seconds{",
        FIRES,
    ),
    Mutant(
        "monitoring",
        "a budget that would last for a day is soon spent",
        ALERTS,
        "4 * 3600",
        "24 * 3600",
        FIRES,
    ),
    Mutant(
        "monitoring",
        "a rollout that was undone is told of whatever came after",
        ALERTS,
        ">= max by (namespace, scheduler) (",
        ">= 0 * max by (namespace, scheduler) (",
        FIRES,
    ),
    Mutant(
        "monitoring",
        "missing replicas are told of only when they are counted again",
        ALERTS,
        'sum by (namespace, what) (toolgate_short_writes_total{job=~"toolgate-.*"}) > 0',
        'sum by (namespace, what) (toolgate_short_writes_total{job=~"toolgate-.*"}) < 0',
        FIRES,
    ),
    Mutant(
        "monitoring",
        "fleets blend in a cluster's Prometheus",
        "deploy/kubernetes/monitoring/scrapes.yaml",
        "honorLabels: true\n",
        "honorLabels: false\n",
        "../deploy/test_monitoring.py",
    ),
    Mutant(
        "monitoring",
        "a call that waits for long wakes nobody",
        ALERTS,
        'toolgate_slots_oldest_wait_seconds{job="toolgate-exporter"}) > 0.1 * 3600',
        'toolgate_slots_oldest_wait_seconds{job="toolgate-exporter"}) > 3600',
        FIRES,
    ),
    Mutant(
        "monitoring",
        "a slot that the dead had is given back unseen",
        f"{BUS}/ledger/slots/lua/queue.lua",
        "finish(id, touched, seen, true, 'lapsed')",
        "finish(id, touched, seen, true)",
        "../bus/commands/test_slot_gauges.py",
    ),
)
