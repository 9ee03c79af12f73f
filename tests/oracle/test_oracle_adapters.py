"""What a rule is against does not run in a framework either, beside `Gate` on the same calls."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from known import is_known

pytestmark = [pytest.mark.system, pytest.mark.timeout(1200)]
RUN = Path(__file__).with_name("run.py")
NO_PACKAGES = 3
WORDS = ("let_through", "disagreement", "fault", "false_alarm", "unread")


@pytest.mark.parametrize("door", ["langchain", "pydantic-ai"])
def test_a_framework_runs_nothing_that_a_rule_is_against_and_agrees_with_the_gate(door):
    words = [sys.executable, RUN, "--door", door, "--door", "gate", "--cases", "500", "--json"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    if ended.returncode == NO_PACKAGES:
        pytest.skip(ended.stderr[-500:])
    found = json.loads(ended.stdout)
    won = {f"{what.replace('_', ' ')}: {kind}": one for what in WORDS for kind, one in found[what].items()}
    assert {kind: one for kind, one in won.items() if not is_known(*kind.split(": ", 1))} == {}
    assert found["doors"][door] >= 150
