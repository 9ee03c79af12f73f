"""The dashboards are what the generator makes, and every panel says what it shows."""

import json
import subprocess
import sys

import pytest
import yaml
from promql_for_tests import DASHBOARDS, DEPLOY, panels

GRAFANA = DEPLOY / "grafana"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"percentunit", "s", "reqps", "ops", "short", "none", "currencyUSD"}
each_dashboard = pytest.mark.parametrize("file", DASHBOARDS, ids=lambda one: one.stem)
each_panel = pytest.mark.parametrize(
    "panel",
    [
        pytest.param(panel, id=f"{file.stem}: {panel['title']}")
        for file in DASHBOARDS
        for panel in panels(file)
    ],
)


def test_the_committed_dashboards_are_what_the_generator_makes(tmp_path):
    command = [sys.executable, GRAFANA / "generate.py", tmp_path]
    subprocess.run(command, check=True, timeout=50, env={"PYTHONDONTWRITEBYTECODE": "1"})
    made = {file.name: file.read_text() for file in tmp_path.iterdir()}
    committed = {file.name: file.read_text() for file in DASHBOARDS}
    assert made == committed, "run: python deploy/grafana/generate.py"


@pytest.mark.pure
@each_dashboard
def test_a_dashboard_takes_its_datasource_from_a_variable(file):
    board = json.loads(file.read_text())
    variables = {one["name"]: one for one in board["templating"]["list"]}
    assert variables.pop("datasource")["type"] == "datasource"
    assert all(one["datasource"] == SOURCE for one in variables.values())
    assert board["uid"] == f"toolgate-{file.stem}"
    assert "id" not in board or board["id"] is None


@pytest.mark.pure
@each_dashboard
def test_a_dashboard_marks_when_rules_of_its_fleet_were_changed(file):
    (mark,) = json.loads(file.read_text())["annotations"]["list"]
    assert mark["enable"] is True
    assert mark["datasource"] == SOURCE
    assert "toolgate_config_change_timestamp_seconds{" in mark["expr"]
    assert 'namespace="$namespace"' in mark["expr"]


@pytest.mark.pure
@each_panel
def test_a_panel_says_what_it_shows_in_which_unit(panel):
    assert panel["title"]
    assert len(panel["description"]) >= len("Alive now.")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"] == SOURCE
    assert panel["targets"]
    for target in panel["targets"]:
        assert target["legendFormat"]
        assert target["datasource"] == SOURCE


@pytest.mark.pure
@each_panel
def test_the_thresholds_of_a_panel_rise_from_green(panel):
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert steps[0] == {"color": "green", "value": None}
    values = [step["value"] for step in steps[1:]]
    assert values == sorted(values)


@pytest.mark.pure
@each_dashboard
def test_panels_fill_the_page_without_lying_on_each_other(file):
    board = json.loads(file.read_text())
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.pure
def test_grafana_is_provisioned_with_the_datasource_and_the_folder_of_dashboards():
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    scraped = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["type"] == "prometheus"
    assert source["jsonData"]["timeInterval"] == scraped
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/toolgate.yaml").read_text())["providers"]
    assert provider["type"] == "file"
    assert not provider["allowUiUpdates"]
