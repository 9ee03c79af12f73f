"""What others build on is as the snapshot says: metrics, commands, configuration, JSON, log lines."""

import json

import pytest
from surface import SNAPSHOT, surface

pytestmark = pytest.mark.pure

KEPT = json.loads(SNAPSHOT.read_text())
NOW = json.loads(json.dumps(surface()))


@pytest.mark.parametrize("part", sorted(KEPT.keys() | NOW.keys()))
def test_what_others_build_on_has_not_changed_by_accident(part: str) -> None:
    assert NOW.get(part) == KEPT.get(part), "where this is meant: python tests/surface.py, and CHANGELOG.md"


def test_the_snapshot_names_what_is_known_to_be_there() -> None:
    assert "toolgate_decisions_total" in NOW["metrics"]
    assert "toolgate scheduler run" in NOW["commands"]
    assert "rules.*.when.*.glob" in NOW["config"]["scheduler policy"]
    assert "calls.*.verdicts" not in NOW["json"]["doctor"]
    assert "error: the scheduler raised decision= exc_info= scheduler=" in NOW["log"]
