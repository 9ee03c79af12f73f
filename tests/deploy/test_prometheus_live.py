"""A real Prometheus watches a real fleet: figures equal the record, panels have data, alerts fire.

One fleet goes through three states, in this order: it `worked` (agents and the exporter were killed), it
is `in_trouble` (each condition of an alert was caused), and its facts were `lost`.
"""

import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from math import isfinite

import pytest
from fleet_for_tests import NAMESPACE, Fleet, running_beside, running_fleet, until
from free_ports import find_free_port
from prometheus_for_tests import Prometheus
from promql_for_tests import panel_expressions, program, rules
from toolgate_bus.telemetry import definitions

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(400)]

RECORDED = [rule["record"] for rule in rules() if "record" in rule]
CHOSEN = {
    "$__rate_interval": "1m",
    "$__range": "10m",
    "$budget": ".*",
    "$namespace": NAMESPACE,
}
BESIDE = "beside"
SPENT_SOON = "ToolgateBudgetSpentSoon"
OURS = f'namespace="{NAMESPACE}"'
DECISIONS = f"sum(toolgate_decisions_total{{{OURS}}})"


class World:
    """A fleet, one beside it, and two who watch them: by the rules as they are, and with an hour a minute."""

    def __init__(self, fleet: Fleet, beside: Fleet, shipped: Prometheus, quick: Prometheus) -> None:
        self.fleet, self.beside, self.shipped, self.quick = fleet, beside, shipped, quick
        self.fired_while_healthy: set[str] = set()
        self.began = time.time()

    def counted(self) -> list[dict]:
        """Wait until Prometheus shows as many decisions as the record has; the record."""
        record = self.fleet.record()
        until(lambda: self.shipped.number(DECISIONS) == len(record), f"{len(record)} decisions are counted")
        return record


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    program("prometheus")
    directory = tmp_path_factory.mktemp("fleet")
    with running_fleet(directory) as fleet, ExitStack() as stack:
        beside = stack.enter_context(running_beside(fleet, BESIDE))
        address = [f"127.0.0.1:{port}" for one in (fleet, beside) for port in one.ports.values()]
        exporters = [f"127.0.0.1:{one.ports['exporter']}" for one in (fleet, beside)]
        notifies = [f"127.0.0.1:{one.ports['notify']}" for one in (fleet, beside)]
        targets = {
            "toolgate-exporter": exporters,
            "toolgate-notify": notifies,
            "toolgate-scheduler": [one for one in address if one not in (*exporters, *notifies)],
        }
        watching = [
            Prometheus(directory / name, find_free_port(), targets, quick=name == "quick")
            for name in ("shipped", "quick")
        ]
        for one in watching:
            stack.callback(one.end)
        for one in watching:
            one.ready()
            until(lambda one=one: one.number('sum(up{job=~"toolgate-.*"})') == len(address), "all are up")
        # Before its first scrape Prometheus knows of no exporter; here that alert waits for a second only.
        until(lambda: not watching[1].query('ALERTS{alertstate="firing"}'), "nothing fires")
        yield World(fleet, beside, *watching)


@pytest.fixture(scope="module")
def worked(world: World) -> list[dict]:
    """Agents came and went, some were killed, the exporter too, and came back; the record of it."""
    fleet = world.fleet
    fleet.agents("steady", "steady", "steady")
    world.beside.agents("steady", "steady", "steady")
    fleet.agents("steady")
    world.counted()
    beside = f'sum(toolgate_decisions_total{{namespace="{BESIDE}"}})'
    until(lambda: world.shipped.number(beside) == 3 * 40, "the fleet beside it is counted")
    world.beside.agents("steady")  # the first one's name again: its counters grow
    world.fired_while_healthy = set(world.quick.fired(since=world.began))
    doomed = fleet.agent("endless")
    until(lambda: "reserved" in fleet.out(doomed), "the doomed agent works")
    before = world.shipped.number(DECISIONS)
    until(lambda: world.shipped.number(DECISIONS) > before, "its decisions are counted")
    fleet.kill("exporter")
    fleet.agents("steady", "steady", "rehearsal")
    fleet.kill(doomed)
    until(lambda: world.quick.has_fired("ToolgateExporterDown"), "the exporter is missed")
    fleet.exporter()
    fleet.agents("steady")
    return world.counted()


def shares(record: list[dict], label: str) -> dict[str, float]:
    every = Counter(one[label] for one in record)
    denied = Counter(one[label] for one in record if one["outcome"] == "deny")
    return {name: denied[name] / number for name, number in every.items()}


def test_a_healthy_fleet_wakes_nobody(worked, world):
    # On a machine with much else to do decisions are slow and a scrape is missed: these alerts are right.
    assert world.fired_while_healthy <= {"ToolgateDecisionsNearPatience", "ToolgateExporterDown"}


def test_the_veto_rate_is_that_of_the_record_though_agents_and_the_exporter_were_killed(worked, world):
    denied = sum(one["outcome"] == "deny" for one in worked)
    assert denied >= 6 * 6
    prometheus = world.shipped
    assert prometheus.number(f'sum(toolgate_decisions_total{{{OURS}, outcome="deny"}})') == denied
    assert prometheus.number(DECISIONS) == len(worked)
    for label, field in (("tool", "tool_name"), ("agent", "agent")):
        deny = f'sum by ({label}) (toolgate_decisions_total{{{OURS}, outcome="deny"}})'
        every = f"sum by ({label}) (toolgate_decisions_total{{{OURS}}})"
        assert prometheus.by(label, f"({deny} or 0 * {every}) / {every}") == pytest.approx(
            shares(worked, field)
        )


def test_the_veto_rate_of_a_scheduler_is_that_of_the_record(worked, world):
    denies, asked = Counter(), Counter()
    for decision in worked:
        heard = {(one["scheduler"], one["action"]) for one in decision["verdicts"]}
        denies.update(name for name, action in heard if action == "deny")
        asked.update(decision.get("asked") or {name for name, _ in heard})
    shown = world.shipped.by("scheduler", f"sum by (scheduler) (toolgate_asked_decisions_total{{{OURS}}})")
    assert shown == asked
    shown = world.shipped.by(
        "scheduler", f'sum by (scheduler) (toolgate_verdicts_total{{{OURS}, action="deny"}})'
    )
    assert shown == denies
    assert set(denies) >= {"policy", "alpha"}


def test_the_recorded_rate_agrees_with_the_counters_and_no_counter_ever_fell(worked, world):
    """The counters are held to the record above; rates look at the time between scrapes only."""
    every = f'sum(rate(toolgate_decisions_total{{job="toolgate-exporter", {OURS}}}[5m]))'
    rate = every.replace(OURS, f'{OURS}, outcome="deny"') + f" / {every}"
    recorded = f"fleet:toolgate_veto:ratio_rate5m{{{OURS}}}"

    def both() -> tuple[float, float]:
        return world.shipped.number(recorded) or 0.0, world.shipped.number(rate) or 1.0

    until(lambda: both()[0] == pytest.approx(both()[1], abs=0.05), "they agree", otherwise=both)
    fell = [
        metric.query_name
        for metric in definitions.FLEET
        if metric.kind == "counter"
        and world.shipped.query(f'resets({metric.query_name}{{job="toolgate-exporter"}}[10m]) > 0')
    ]
    assert fell == []


@pytest.fixture(scope="module")
def in_trouble(worked: list[dict], world: World) -> Iterator[World]:
    """Whatever can go wrong does, and goes on."""
    fleet = world.fleet
    goes_on = [fleet.agent("lavish"), *map(fleet.agent, ("troubled", "payer", "clerk", "idler"))]
    until(lambda: "notes" in fleet.out(goes_on[-1]), "the idler works", otherwise=fleet.said)
    fleet.pause("team=idle")
    desk = fleet.agent("hoarder")
    until(lambda: "has" in fleet.out(desk), "the desk is taken", otherwise=fleet.said)
    for _ in range(3):
        fleet.agent("hoarder")
    shown = f"max(toolgate_slots_waiting{{{OURS}}})"
    until(lambda: world.shipped.number(shown) == 3, "three wait for the desk")
    fleet.kill(desk)
    fleet.roll_out_a_mistake()
    fleet.agents("spender", "squanderer", "tester")
    fleet.kill("guard")
    fleet.kill("alpha-2")
    fleet.stop_for_now("second")
    until(lambda: world.quick.has_fired("ToolgateInboxBehind", scheduler="second"), "its inbox is behind")
    fleet.go_on("second")
    fleet.scheduler("second-too", "obedient:beta", "--name", "second", "--revision", "new")
    fleet.reconnect()
    until(lambda: world.quick.has_fired(SPENT_SOON), "a pace is told", otherwise=world.quick.fired)
    yield world
    for name in goes_on:
        fleet.processes[name].send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("alert", "labels"),
    [
        ("ToolgateVetoRateJumped", {}),
        ("ToolgateSchedulerVetoRateJumped", {"scheduler": "policy"}),
        ("ToolgateRequiredSchedulerSilent", {"scheduler": "guard", "severity": "critical"}),
        ("ToolgateSchedulerGone", {"scheduler": "guard"}),
        ("ToolgateInboxBehind", {"scheduler": "second"}),
        ("ToolgateSchedulerRevisionsDiffer", {"scheduler": "second"}),
        ("ToolgateFailingOpen", {"scheduler": "alpha"}),
        ("ToolgateDecisionsNearPatience", {}),
        ("ToolgateBudgetNearlySpent", {"budget": "each", "level": "own-session"}),
        ("ToolgateBudgetSpent", {"budget": "task", "level": "tree", "severity": "critical"}),
        ("ToolgateRolloutUndone", {"scheduler": "policy"}),
        ("ToolgateNotifyFails", {"receiver": "nobody"}),
        ("ToolgateExporterDown", {"severity": "critical"}),
        ("ToolgateLlmSpendJumped", {}),
        (SPENT_SOON, {"budget": "kitty", "level": "agent"}),
        ("ToolgateSlotWaitsLong", {"pool": "desk"}),
        ("ToolgateSlotsFull", {"pool": "desk"}),
        ("ToolgateSlotsLapsed", {"pool": "desk"}),
        ("ToolgateAgentsPausedLong", {}),
    ],
)
def test_an_alert_fires_where_its_condition_was_caused(alert, labels, in_trouble):
    quick = in_trouble.quick
    labels |= {"namespace": NAMESPACE}
    until(lambda: quick.has_fired(alert, **labels), f"{alert} {labels} fires", otherwise=quick.fired)


def test_a_budget_is_told_as_it_stands(in_trouble):
    used = f"max by (budget) (toolgate_budget_used_ratio{{{OURS}}})"
    until(lambda: in_trouble.shipped.by("budget", used).get("each") == pytest.approx(0.95), "0.95 are used")
    assert in_trouble.shipped.by("budget", used)["task"] == pytest.approx(1)


def test_every_rule_was_evaluated_and_every_recorded_series_has_data(in_trouble):
    sick = {
        rule["name"]: rule.get("lastError") for rule in in_trouble.shipped.rules() if rule["health"] != "ok"
    }
    assert sick == {}
    empty = [name for name in RECORDED if not numbers(in_trouble.shipped, name)]
    assert empty == []


LATER = "toolgate_short_writes_total"
"""What only the test after the next one causes."""


def test_every_expression_of_every_panel_gives_numbers(in_trouble):
    # This exporter was told of no label, and no alternative of these tools fails.
    left_out = ("toolgate_label_decisions", "toolgate_eject", LATER)
    until_all_give_numbers(in_trouble, lambda expr: not any(one in expr for one in left_out))


def ruler_of(expr: str) -> str:
    """The scheduler that is chosen on the dashboard: one with a local table, where that is shown."""
    return "policy" if "toolgate_local_verdicts" in expr else "alpha"


def until_all_give_numbers(world: World, chosen: Callable[[str], bool]) -> None:
    asked = {
        where: re.sub(r"\$\w+", lambda found: CHOSEN[found[0]], expr.replace("$scheduler", ruler_of(expr)))
        for where, expr in panel_expressions()
        if chosen(expr)
    }
    assert asked

    def missing():
        given = {where: numbers(world.shipped, expr) for where, expr in asked.items()}
        return {where: found for where, found in given.items() if not found or not all(map(isfinite, found))}

    # What happened for the first time just now has no rate before the next scrape.
    until(lambda: not missing(), "every expression gives numbers", otherwise=missing)


def numbers(prometheus: Prometheus, expr: str) -> list[float]:
    return [value for _, value in prometheus.query(expr)]


def test_an_alert_fires_where_replicas_are_missing(in_trouble):
    in_trouble.fleet.ask_for_replicas()  # from here on whatever costs is denied
    quick, labels = in_trouble.quick, {"what": "ledger", "severity": "critical", "namespace": NAMESPACE}
    missed = "ToolgateReplicasMissing"
    until(lambda: quick.has_fired(missed, **labels), "they are missed", otherwise=quick.fired)
    until_all_give_numbers(in_trouble, lambda expr: LATER in expr)


def test_an_alert_fires_where_nobody_posts_any_longer(in_trouble):
    in_trouble.fleet.kill("notify")
    quick = in_trouble.quick
    until(lambda: quick.has_fired("ToolgateNotifyGone"), "it is missed", otherwise=quick.fired)


def lost_facts(fleet: Fleet) -> str:
    """What the exporter said of itself, and what stands on the server for it to read."""
    kept = {key: fleet.server.xinfo_stream(key) for key in fleet.kept_facts()}
    ended = {name: child.poll() for name, child in fleet.processes.items()}
    said = (fleet.directory / "exporter.err").read_text()[-2000:]
    return f"\n{kept}\n{ended}\n{said}"


def test_an_alert_fires_where_facts_were_lost(in_trouble):
    fleet, quick = in_trouble.fleet, in_trouble.quick
    assert not quick.has_fired("ToolgateFactsMissing"), lost_facts(fleet)
    fleet.kill("exporter")
    fleet.lose_facts()
    until(fleet.kept_facts, "facts are written while no exporter is there")
    fleet.lose_facts()
    fleet.exporter()
    shown = '{__name__=~"toolgate_exporter_(gaps|facts)_total"}'
    until(
        lambda: quick.has_fired("ToolgateFactsMissing"),
        "the gap is told",
        otherwise=lambda: (quick.query(shown), lost_facts(fleet)),
    )


def test_a_fleet_beside_it_neither_wakes_anybody_nor_shows_in_its_figures(in_trouble):
    quick, shipped = in_trouble.quick, in_trouble.shipped
    woken = {(name, one.get("namespace")) for name, found in quick.fired().items() for one in found}
    # As above.
    slow = {"ToolgateDecisionsNearPatience", "ToolgateExporterDown"}
    assert {name for name, fleet in woken if fleet == BESIDE} <= slow
    record = in_trouble.beside.record()
    assert len(record) == 4 * 40
    counted = shipped.by("namespace", "sum by (namespace) (toolgate_decisions_total)")
    assert set(counted) == {NAMESPACE, BESIDE}
    assert counted[BESIDE] == len(record)
    denied = sum(one["outcome"] == "deny" for one in record)
    told = 'sum by (namespace) (toolgate_decisions_total{outcome="deny"})'
    assert shipped.by("namespace", told)[BESIDE] == denied
    rate = shipped.by("namespace", "last_over_time(fleet:toolgate_veto:ratio_rate5m[10m])")
    assert set(rate) == {NAMESPACE, BESIDE}
    unnamed = 'count by (__name__) ({__name__=~"toolgate_.*", namespace=""})'
    assert shipped.query(unnamed) == []


def test_an_alert_fires_where_the_server_was_emptied(in_trouble):
    fleet, quick = in_trouble.fleet, in_trouble.quick
    assert not quick.has_fired("ToolgateLedgerLost")
    fleet.server.flushall()
    labels = {"namespace": NAMESPACE, "book": "budget", "severity": "critical"}
    until(lambda: quick.has_fired("ToolgateLedgerLost", **labels), "it is missed", otherwise=quick.fired)
