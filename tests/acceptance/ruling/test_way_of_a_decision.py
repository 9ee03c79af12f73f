"""How many files one decision passes, counted while real processes make it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.acceptance

TRACE = Path(__file__).resolve().parents[2] / "trace_decision.py"


@pytest.mark.parametrize(("option", "most"), [((), 20), (("--modify",), 22)])
def test_a_decision_passes_few_files_besides_those_that_call_no_other(
    option: tuple[str, ...], most: int
) -> None:
    passed = _trace(option) & _trace(option)  # what looks after connections may fall into one of them
    assert len(passed) <= most, sorted(passed)


def _trace(option: tuple[str, ...]) -> set[str]:
    told = subprocess.run(
        [sys.executable, TRACE, "--json", *option], capture_output=True, check=True, timeout=60
    )
    figures = json.loads(told.stdout)
    return set().union(*({*one["files"]} - {*one["leaves"]} for one in figures.values()))
