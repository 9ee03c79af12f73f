"""The objects of the Prometheus operator say what deploy/prometheus says, and choose the pods that are meant.

The schemas of the operator's kinds are no part of this repository: the fields that are used are named here as
its API has them, so that a misspelt one, which a cluster would refuse, goes red.
"""

import json
import subprocess
import sys
from itertools import product

import kubernetes_validate
import pytest
import yaml
from kustomized import build, containers
from promql_for_tests import DASHBOARDS, DEPLOY, RULES, program
from test_kubernetes import BUILDS, ROOT, VERSIONS, labels_of, of, workloads

pytestmark = pytest.mark.pure

MONITORING = ROOT / "monitoring"
PROMETHEUS = DEPLOY / "prometheus"
MAX_APPLIED = 256 * 1024
"""Bytes of an object that `kubectl apply` takes: it keeps a copy in an annotation."""
ROUTE = {"receiver", "groupBy", "groupWait", "groupInterval", "repeatInterval", "matchers"}
FIELDS = {
    "ServiceMonitor": {
        "spec": {"selector", "jobLabel", "endpoints"},
        "spec.endpoints": {"port", "path", "interval", "honorLabels"},
    },
    "PrometheusRule": {
        "spec": {"groups"},
        "spec.groups": {"name", "rules"},
        "spec.groups.rules": {"alert", "record", "expr", "for", "labels", "annotations"},
    },
    "AlertmanagerConfig": {
        "spec": {"route", "receivers", "inhibitRules"},
        "spec.route": ROUTE,
        "spec.receivers": {"name", "webhookConfigs"},
        "spec.receivers.webhookConfigs": {"urlSecret", "sendResolved"},
        "spec.receivers.webhookConfigs.urlSecret": {"name", "key"},
        "spec.inhibitRules": {"sourceMatch", "targetMatch", "equal"},
        "spec.inhibitRules.sourceMatch": {"name", "matchType", "value"},
        "spec.inhibitRules.targetMatch": {"name", "matchType", "value"},
    },
}
GROUPS = {"ServiceMonitor": "v1", "PrometheusRule": "v1", "AlertmanagerConfig": "v1alpha1"}


@pytest.fixture(scope="module")
def built():
    return build(MONITORING)


@pytest.fixture(scope="module")
def everybody():
    """Every pod that serves metrics, by name: of base, and of the component that tells people."""
    pods = (*workloads(build(ROOT / "base")), *workloads(build(ROOT / "notify")))
    return {
        one["metadata"]["name"]: one for one in pods if labels_of(one).get("toolgate/metrics") == "served"
    }


@pytest.fixture(scope="module")
def services(built):
    """The Services that name a job, by job."""
    every = (*of(build(ROOT / "base"), "Service"), *of(built, "Service"))
    return {
        one["metadata"]["labels"]["toolgate/job"]: one
        for one in every
        if "toolgate/job" in one["metadata"].get("labels", {})
    }


def at(value, way):
    """All that stands at a path, through lists."""
    if isinstance(value, list):
        return [found for one in value for found in at(one, way)]
    head, _, rest = way.partition(".")
    if head not in value:
        return []
    found = at(value[head], rest) if rest else value[head]
    return found if isinstance(found, list) else [found]


def test_the_objects_of_kubernetes_fit_its_schemas_and_those_of_the_operator_have_its_fields(built):
    for one in built:
        if one["kind"] in FIELDS:
            assert one["apiVersion"] == f"monitoring.coreos.com/{GROUPS[one['kind']]}"
            for way, fields in FIELDS[one["kind"]].items():
                found = at(one, way)
                assert found, way
                assert set().union(*found) <= fields, way
        else:
            for version in VERSIONS:
                kubernetes_validate.validate(one, version, strict=True)
    assert {one["kind"] for one in built} == {*FIELDS, "ConfigMap", "Service"}


def test_what_is_committed_is_what_the_generator_makes(tmp_path):
    made = tmp_path / "rules.yaml"
    subprocess.run([sys.executable, PROMETHEUS / "generate.py", made], check=True, timeout=50)
    committed = (MONITORING / "rules.yaml").read_text()
    assert made.read_text() == committed, "run: python deploy/prometheus/generate.py"


def test_a_cluster_has_the_rules_that_prometheus_has_elsewhere(built):
    assert {one["metadata"]["name"]: one["spec"]["groups"] for one in of(built, "PrometheusRule")} == {
        file.stem: yaml.safe_load(file.read_text())["groups"] for file in RULES
    }


def test_promtool_takes_the_rules_of_a_cluster(built, tmp_path):
    for one in of(built, "PrometheusRule"):
        file = tmp_path / "rules.yml"
        file.write_text(yaml.safe_dump(one["spec"]))
        subprocess.run([program("promtool"), "check", "rules", file], check=True, timeout=50)


def test_every_pod_that_serves_metrics_is_scraped_once_as_the_job_that_rules_read(services, everybody):
    jobs = {
        one["job_name"]
        for one in yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    }
    assert set(services) == jobs - {"toolgate-agent"}  # agents are yours
    chosen = [
        (job, name)
        for (job, service), (name, pod) in product(services.items(), everybody.items())
        if service["spec"]["selector"].items() <= labels_of(pod).items()
    ]
    assert sorted(chosen) == [
        ("toolgate-exporter", "toolgate-exporter"),
        ("toolgate-notify", "toolgate-notify"),
        ("toolgate-scheduler", "toolgate-cost-aware"),
        ("toolgate-scheduler", "toolgate-policy"),
    ]
    assert len(chosen) == len(everybody)


def test_a_scrape_keeps_the_labels_that_tell_fleets_apart_and_comes_as_often_as_rules_expect(
    built, services, everybody
):
    (monitor,) = of(built, "ServiceMonitor")
    (end,) = monitor["spec"]["endpoints"]
    label = monitor["spec"]["jobLabel"]
    assert monitor["spec"]["selector"] == {"matchExpressions": [{"key": label, "operator": "Exists"}]}
    assert all(label in one["metadata"]["labels"] for one in services.values())
    every = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert end == {"port": "metrics", "path": "/metrics", "interval": every, "honorLabels": True}
    for service, pod in product(services.values(), everybody.values()):
        assert [one["name"] for one in service["spec"]["ports"]] == [end["port"]]
        assert end["port"] in {port["name"] for one in containers(pod) for port in one["ports"]}


def test_the_clusters_alertmanager_tells_the_same_as_ours(built):
    (told,) = of(built, "AlertmanagerConfig")
    ours = yaml.safe_load((PROMETHEUS / "alertmanager.yml").read_text())
    route = dict(told["spec"]["route"])
    assert route.pop("matchers") == [{"name": "alertname", "matchType": "=~", "value": "Toolgate.*"}]
    spelled = {"groupBy": "group_by", "groupWait": "group_wait", "groupInterval": "group_interval"}
    spelled |= {"repeatInterval": "repeat_interval", "receiver": "receiver"}
    assert {spelled[name]: value for name, value in route.items()} == ours["route"]

    def as_text(matchers):
        assert all(one["matchType"] == "=~" and one["value"].isalnum() for one in matchers)
        return [f"{one['name']} = {one['value']}" for one in matchers]

    assert [
        (as_text(one["sourceMatch"]), as_text(one["targetMatch"]), one["equal"])
        for one in told["spec"]["inhibitRules"]
    ] == [(one["source_matchers"], one["target_matchers"], one["equal"]) for one in ours["inhibit_rules"]]
    assert route["receiver"] in [one["name"] for one in told["spec"]["receivers"]]
    names = [rule["alert"] for file in RULES for rule in rules_of(file) if "alert" in rule]
    assert names
    assert all(name.startswith("Toolgate") for name in names)


def rules_of(file):
    return [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def test_the_address_of_who_is_told_comes_from_a_secret_that_the_head_says_how_to_make(built):
    (told,) = of(built, "AlertmanagerConfig")
    said = (MONITORING / "kustomization.yaml").read_text()
    for secret in at(told, "spec.receivers.webhookConfigs.urlSecret"):
        assert f"create secret generic {secret['name']} --from-literal={secret['key']}=" in said


def test_every_dashboard_is_a_config_map_that_grafanas_sidecar_finds_and_kubectl_can_apply(built):
    maps = of(built, "ConfigMap")
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "1" for one in maps)
    assert {name: text for one in maps for name, text in one["data"].items()} == {
        file.name: file.read_text() for file in DASHBOARDS
    }
    assert all(len(json.dumps(one)) < MAX_APPLIED for one in built)
    words = yaml.safe_load((DEPLOY / "grafana" / "kustomization.yaml").read_text())
    assert words["generatorOptions"]["disableNameSuffixHash"] is True  # else the old one stays beside the new


def test_it_adds_to_what_an_overlay_has_and_replaces_nothing(built):
    for name in (*BUILDS, "notify"):
        there = {(one["kind"], one["metadata"]["name"]) for one in build(ROOT / name)}
        assert not there & {(one["kind"], one["metadata"]["name"]) for one in built}
