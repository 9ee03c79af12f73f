"""Rules and alerts are well-formed, name what is there, and do what they say (promtool)."""

import re
import subprocess
from functools import cache

import pytest
import yaml
from promql_for_tests import DEPLOY, RULES, panel_expressions, program, quickened, rule_expressions, rules
from toolgate_bus.telemetry import definitions

PROMETHEUS = DEPLOY / "prometheus"
METRICS = {
    metric.query_name: metric
    for metric in (*definitions.FLEET, *definitions.PROCESS, *definitions.EXPORTER, *definitions.NOTIFY)
}
RECORDED = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}
TIMES = r"\[\w+\]|\boffset \d\w+|\bfor: \d\w+|\b\d+ \* (?:3600|60)\b"
EXPRESSIONS = [*rule_expressions(), *panel_expressions()]
each_expression = pytest.mark.parametrize("expression", EXPRESSIONS, ids=[one.where for one in EXPRESSIONS])


def promtool(*words: object) -> str:
    done = subprocess.run(
        [program("promtool"), *map(str, words)], capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_finds_no_fault_in_the_configuration_and_its_rules():
    assert f"{len(RULES)} rule files found" in promtool("check", "config", PROMETHEUS / "prometheus.yml")
    promtool("check", "rules", *RULES)


def test_amtool_finds_no_fault_in_who_is_told():
    config = PROMETHEUS / "alertmanager.yml"
    done = subprocess.run(
        [program("amtool"), "check-config", config], capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_receivers_that_stand_there_as_comments_are_right_once_they_are_none(tmp_path):
    text = (PROMETHEUS / "alertmanager.yml").read_text()
    file = tmp_path / "alertmanager.yml"
    file.write_text(re.sub(r"^#(?=    |  - )", "", text, flags=re.MULTILINE))
    config = yaml.safe_load(file.read_text())
    assert [one["name"] for one in config["receivers"]] == ["webhook", "slack", "mail"]
    for one in config["receivers"]:
        file.write_text(yaml.safe_dump(config | {"route": config["route"] | {"receiver": one["name"]}}))
        done = subprocess.run(
            [program("amtool"), "check-config", file],
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    secrets = re.findall(r"/etc/alertmanager/secrets/\w+", text)
    mounts = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["alertmanager"]["volumes"]
    assert secrets
    assert any(mount.endswith(":/etc/alertmanager/secrets:ro") for mount in mounts)


@pytest.mark.pure
def test_what_keeps_an_alert_quiet_names_alerts_that_there_are():
    config = yaml.safe_load((PROMETHEUS / "alertmanager.yml").read_text())
    named = {
        matcher.removeprefix("alertname = ")
        for rule in config["inhibit_rules"]
        for matcher in (*rule["source_matchers"], *rule["target_matchers"])
    }
    assert named
    assert named <= set(ALERTS)


@pytest.mark.pure
def test_an_alert_is_silenced_only_for_the_very_thing_that_the_other_tells_of():
    config = yaml.safe_load((PROMETHEUS / "alertmanager.yml").read_text())
    for rule in config["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            expression = ALERTS[matcher.partition("=")[2].strip()]["expr"]
            recorded = re.search(r"\w+:\w+:\w+", expression)
            if recorded:
                expression = RECORDED[recorded[0]]
            told = re.search(r"\bby \(([^)]*)\)", expression)[1].split(", ")
            assert sorted(told) == sorted(rule["equal"]), matcher


@pytest.mark.timeout(200)  # seconds of computing, on machines that compute other things as well
@pytest.mark.parametrize("file", sorted((PROMETHEUS / "tests").glob("*.yml")), ids=lambda file: file.stem)
def test_every_alert_fires_and_every_rate_is_right_in_promtools_tests(file):
    promtool("test", "rules", file)


def test_every_rule_has_a_test_of_promtool():
    tests = "".join(file.read_text() for file in (PROMETHEUS / "tests").glob("*.yml"))
    assert {name for name in {*RECORDED, *ALERTS} if name not in tests} == set()


@pytest.mark.pure
@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_what_happened_and_what_to_do(name):
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in ("warning", "critical")
    assert set(alert["annotations"]) == {"summary", "description", "runbook"}
    assert "`toolgate " in alert["annotations"]["runbook"]
    waits = re.fullmatch(r"(\d+)m", alert.get("for", "0m"))
    assert waits
    assert int(waits[1]) <= 5


@cache
def sources_of(names):
    """Metrics that these names are made of, through what is recorded."""
    recorded = {one.where: frozenset(one.names) for one in rule_expressions()}
    return {
        metric for name in names for metric in (sources_of(recorded[name]) if name in RECORDED else {name})
    }


@pytest.mark.pure
@pytest.mark.parametrize("name", ALERTS)
def test_whoever_is_woken_finds_what_the_alert_watches_on_a_dashboard(name):
    (watched,) = (sources_of(frozenset(one.names)) for one in rule_expressions() if one.where == name)
    shown = sources_of(frozenset().union(*(one.names for one in panel_expressions())))
    assert watched <= shown


@pytest.mark.pure
@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_recorded_series_is_named_level_metric_operation(name):
    assert re.fullmatch(r"(fleet|scheduler|tool|agent):toolgate_\w+:[a-z0-9_]+", name)


@pytest.mark.pure
@each_expression
def test_what_an_expression_reads_is_counted_or_recorded(expression):
    assert expression.names
    assert {name for name in expression.names if name not in METRICS and name not in RECORDED} == set()


@pytest.mark.pure
@each_expression
def test_an_expression_selects_by_labels_that_its_metrics_have_and_names_its_job(expression):
    for name, labels in expression.selected:
        assert "job" in labels, name
        assert set(labels) - {"job", "namespace"} <= set(METRICS[name].labels), name
    assert expression.names - RECORDED.keys() <= {name for name, _ in expression.selected}


@pytest.mark.pure
@each_expression
def test_an_expression_names_the_exporter_for_what_the_exporter_counts(expression):
    """A process's own port tells only of that process; the exporter tells nothing of processes."""
    jobs = dict.fromkeys((metric.query_name for metric in definitions.PROCESS), ("=~", "toolgate-.*"))
    jobs |= dict.fromkeys((metric.query_name for metric in definitions.NOTIFY), ("=", "toolgate-notify"))
    for name, _ in expression.selected:
        told = re.findall(rf'{name}(?:_bucket|_count)?\{{[^}}]*job(=~?)"([^"]*)"', expression.expr)
        assert set(told) == {jobs.get(name, ("=", "toolgate-exporter"))}


@pytest.mark.pure
@each_expression
def test_an_expression_keeps_fleets_apart(expression):
    """A panel shows the chosen one; a rule sums, compares and joins by `namespace`."""
    shown = expression in panel_expressions()
    for name, labels in expression.selected:
        assert ("namespace" in labels) == shown, name
    if shown:
        assert not expression.names & RECORDED.keys()  # dashboards work without these rules
    else:
        grouped = re.findall(r"(?<![:\w])(?:sum|max|min|avg|count)\b *(?:by *\(([^)]*)\))?", expression.expr)
        joined = re.findall(r"\b(?<!or )on *\(([^)]*)\)", expression.expr)
        assert all("namespace" in by.split(", ") for by in (*grouped, *joined)), expression.expr


@pytest.mark.pure
def test_quickened_rules_differ_only_in_their_times():
    text = "".join(file.read_text() for file in RULES)
    quick = quickened(text)
    times = re.findall(TIMES, text)
    assert len(times) > 30
    assert all(quickened(one) != one for one in times)
    assert yaml.safe_load(quick).keys() == yaml.safe_load(text).keys()
    assert re.sub(TIMES, "", quick) == re.sub(TIMES, "", text)
