"""What others build on is as the snapshot says: metrics, commands, configuration, JSON, log lines."""

import json
from functools import cache
from typing import Any

import pytest
from surface import SNAPSHOT, surface

pytestmark = pytest.mark.source

KEPT = json.loads(SNAPSHOT.read_text())


@cache
def take_snapshot() -> dict[str, Any]:
    """The surface of the code as it stands: seconds of work, for the one process that compares."""
    return json.loads(json.dumps(surface()))  # type: ignore[no-any-return]


def test_what_others_build_on_has_not_changed_by_accident() -> None:
    for part in sorted(KEPT.keys() | take_snapshot().keys()):
        assert take_snapshot().get(part) == KEPT.get(part), (
            "where this is meant: python tests/surface.py, and CHANGELOG.md"
        )


def test_the_snapshot_names_what_is_known_to_be_there() -> None:
    assert "toolgate_decisions_total" in take_snapshot()["metrics"]
    assert "toolgate scheduler run" in take_snapshot()["commands"]
    assert "rules.*.when.*.glob" in take_snapshot()["config"]["scheduler policy"]
    assert "calls.*.verdicts" not in take_snapshot()["json"]["doctor"]
    assert "error: the scheduler raised decision= exc_info= scheduler=" in take_snapshot()["log"]
