"""What a scheduler hides comes out of no framework either: the same oracle, in another environment."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.timeout(1200)]
SOAK = Path(__file__).parents[3] / "soak_results.py"
NO_PACKAGES = 3
CASES = 150


@pytest.mark.parametrize("door", ["langchain", "pydantic-ai", "openai-agents"])
def test_no_framework_shows_its_llm_or_its_history_what_a_scheduler_hid(door):
    words = [sys.executable, SOAK, "--doors", door, "--cases", str(CASES), "--seed", "1"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    if ended.returncode == NO_PACKAGES:
        pytest.skip(ended.stderr[-500:])
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    hidden, leaks = map(int, re.search(r"(\d+) secrets hidden, (\d+) leaks", ended.stdout).groups())
    assert hidden > CASES / 4
    assert leaks == 0
