"""`toolgate bench` as a process. Its figures mean nothing on a shared machine; its verdicts do."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(200)]

SHORT = ("toolgate", "bench", "-n", "1", "-c", "4", "--decisions", "128", "--json")


def test_every_side_decides_the_same_calls_rightly_and_is_measured(process: Callable[..., Any]) -> None:
    running = process(*SHORT)
    assert running.wait(180) == 0, running.stderr
    machine, *rows = map(json.loads, running.stdout.splitlines())
    assert {"python", "optimized", "cpus", "load_before"} == set(machine)
    assert [row["calls"] for row in rows] == ["rules", "mix"]
    assert all((row["schedulers"], row["in_flight"], row["question_bytes"]) == (1, 4, 448) for row in rows)
    left = [row["sides"][own]["left_bytes"] for row, own in zip(rows, ("local", "toolgate"), strict=True)]
    assert min(left) > 0
    for name, side in (one for row in rows for one in row["sides"].items()):
        assert side["decisions"] == 128
        assert 0 < side["median_us"] <= side["p99_us"]
        assert name == "floor" or {"median", "rate"} <= side["ratio"].keys()
