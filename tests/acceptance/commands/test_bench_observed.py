"""`toolgate bench --observed` measures both ways in one run. Its figures mean nothing on a shared machine."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.system, pytest.mark.acceptance]


def test_it_tells_the_cpu_of_a_decision_with_metrics_and_facts_and_without():
    command = [sys.executable, "-m", "toolgate_bus", "bench", "--observed", "--json"]
    ended = subprocess.run(
        [*command, "--schedulers", "1", "--in-flight", "1", "--decisions", "100"],
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    (row,) = json.loads(ended.stdout)["observed"]
    assert (row["schedulers"], row["in_flight"], row["aim"]) == (1, 1, 0.1)
    for side in ("observed", "unobserved"):
        assert row[side]["decisions"] == 100
        assert sys.platform != "linux" or row[side]["cpu_us"] > 0
    assert sys.platform != "linux" or row["part"] < 1
