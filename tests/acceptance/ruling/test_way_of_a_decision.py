"""How far one decision goes through the code, counted while real processes make it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

TRACE = Path(__file__).resolve().parents[2] / "trace_decision.py"


@pytest.mark.parametrize(
    ("option", "files", "hand_overs"),
    [
        pytest.param((), 28, 75, id="by a gate"),
        pytest.param(("--guard",), 40, 115, id="by a guard"),
        pytest.param(("--modify",), 40, 120, id="a replacement by a gate"),
    ],
)
def test_a_decision_passes_few_files_and_few_hands(
    option: tuple[str, ...], files: int, hand_overs: int
) -> None:
    told = _trace(option)
    passed, handed = _files(told), _hand_overs(told)
    if len(passed) > files or handed > hand_overs:  # what looks after connections may fall into a trace
        again = _trace(option)
        passed, handed = passed & _files(again), min(handed, _hand_overs(again))
    assert len(passed) <= files, "\n".join(sorted(passed))
    assert handed <= hand_overs


Figures = dict[str, dict[str, list[str] | int]]


def _trace(option: tuple[str, ...]) -> Figures:
    command = [sys.executable, TRACE, "--json", *option]
    told = subprocess.run(command, capture_output=True, check=True, timeout=60)
    figures: Figures = json.loads(told.stdout)
    return figures


def _files(figures: Figures) -> set[str]:
    return {file for one in figures.values() for file in one["files"]}  # type: ignore[union-attr]


def _hand_overs(figures: Figures) -> int:
    """Of the gate's process and one scheduler's."""
    return int(figures["gate"]["changes"]) + int(figures["first"]["changes"])  # type: ignore[arg-type]
