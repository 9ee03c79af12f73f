"""Scripts that `make` starts and no test runs still find what they import."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.source

HERE = Path(__file__).parent
SCRIPTS = (
    "distribution/build.py",
    "mutants.py",
    "oracle/run.py",
    "soak_attacks.py",
    "soak_ha.py",
    "soak_slots.py",
)
# As a script its own folder would come first in the path.
LOAD = """
import os, runpy, sys
sys.path[0] = os.path.dirname(sys.argv[1])
runpy.run_path(sys.argv[1], run_name="loaded")
"""


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_loads(script: str) -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, HERE / script], capture_output=True, text=True, timeout=60, check=False
    )
    assert loaded.returncode == 0, loaded.stderr
