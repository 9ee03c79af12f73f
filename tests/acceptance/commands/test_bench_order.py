"""`toolgate bench order`: what its figures say, and a short run of all of it."""

import json
from typing import Any

import pytest
from toolgate_orchestrator.commands.bench.order import PAIRS, OrderLoad, OrderRun

LOAD = OrderLoad("loop-streaming", 2, 10, 1, 1)


@pytest.mark.pure
def test_who_began_before_the_other_ended_ran_early_and_who_never_began_was_denied() -> None:
    run = OrderRun(LOAD, ended={"a": 1.0, "b": 2.0, "d": 4.0}, began={"a": 1.5, "b": 1.9, "c": 3.0})
    figures = run.figures()
    assert (figures["ran_early"], figures["denied"], figures["not_produced"]) == (2, 2 * PAIRS - 3, 1)
    assert figures["gap_ms"]["max"] == 500.0


@pytest.mark.acceptance
@pytest.mark.system
@pytest.mark.timeout(180)
def test_none_runs_early_and_none_is_denied_under_either_loop(process: Any) -> None:
    load = ("--responses", "100", "--sessions", "4", "--replicas", "2")
    bench = process("toolgate", "bench", "order", *load, "--json")
    assert bench.wait(150) == 0, bench.stderr
    runs = json.loads(bench.stdout)["runs"]
    assert [(run["loop"], run["rules"]) for run in runs] == [
        ("loop-streaming", 10),
        ("loop-reactive", 10),
        ("loop-streaming", 1000),
    ]
    for run in runs:
        assert (run["ran_early"], run["denied"], run["not_produced"]) == (0, 0, 0)
        assert 0 < run["bare_ms"]["median"] <= run["bare_ms"]["p99"]
