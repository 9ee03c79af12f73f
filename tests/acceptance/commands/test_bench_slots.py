"""`toolgate bench slots`: what its figures say of journals, and a short run of all of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from marked_processes import World
from toolgate_orchestrator.commands.bench.slots_figures import (
    Journal,
    SlotRun,
    count_excess,
    find_runs,
)
from toolgate_orchestrator.commands.bench.slots_load import Moment, SlotLoad, read_moments, write_moment

LOAD = SlotLoad("shares", agents=4, limit=1, hold_s=1.0, seconds=10.0)


def journal(*runs: tuple[int, float, float], key: int = 0, over: float = 100.0) -> Journal:
    """Of agents that each asked a second before their run began; an end of 0 is none."""
    moments = []
    for agent, start, end in runs:
        moments += [
            Moment("ask", "gold", False, agent, key, start - 1.0, 0),
            Moment("start", "gold", False, agent, key, start, 7),
            *([Moment("end", "gold", False, agent, key, end, 0)] if end else []),
        ]
    return Journal(moments, over)


@pytest.mark.pure
def test_a_journal_is_read_as_it_was_written_and_its_torn_end_is_nothing() -> None:
    moments = list(journal((1, 5.0, 6.0)).moments)
    raw = b"".join(map(write_moment, moments))
    assert list(read_moments(raw)) == moments
    assert list(read_moments(raw[:-1])) == moments[:-1]


@pytest.mark.pure
def test_who_begins_before_another_has_ended_is_one_too_many_and_with_another_key_it_is_not() -> None:
    one_by_one = find_runs([journal((1, 1.0, 2.0), (2, 2.0, 3.0))])
    assert count_excess(one_by_one, 1) == 0
    overlapping = find_runs([journal((1, 1.0, 2.0)), journal((2, 1.9, 3.0))])
    assert (count_excess(overlapping, 1), count_excess(overlapping, 2)) == (1, 0)
    elsewhere = find_runs([journal((1, 1.0, 2.0)), journal((2, 1.9, 3.0), key=1)])
    assert count_excess(elsewhere, 1) == 0


@pytest.mark.pure
def test_a_run_that_was_killed_ended_with_its_process() -> None:
    (run,) = find_runs([journal((1, 5.0, 0), over=9.0)])
    assert (run.start, run.end, run.waited) == (5.0, 9.0, 1.0)


@pytest.mark.pure
def test_the_time_after_a_fault_is_not_counted_as_idle() -> None:
    def busy(*faults: tuple[str, float]) -> float:
        journals = [journal((1, 2.0, 20.0), over=40.0)]
        return SlotRun(LOAD, 0.0, 40.0, journals, {}, faults, {}).figures()["busy_percent"]

    assert busy() == pytest.approx(100 * 17 / 37, abs=0.01)
    assert busy(("agents", 20.0)) == pytest.approx(100 * 17 / 22, abs=0.01)


@pytest.mark.system
@pytest.mark.acceptance
@pytest.mark.timeout(180)
def test_nobody_runs_too_many_whoever_is_killed_and_tenants_have_their_shares(
    process: Callable[..., Any], short_directory: Path
) -> None:
    env = World(short_directory).env
    for part, seconds in (("exact", "20"), ("shares", "14")):
        command = ("toolgate", "bench", "slots", "--run", part, "--agents", "200", "--seconds", seconds)
        running = process(*command, "--json", env=env)
        assert running.wait(120) == 0, running.stdout + running.stderr
        (row,) = json.loads(running.stdout)["runs"]
        assert (row["over_given"], row["denied"], row["starved"]) == (0, {}, 0)
        assert row["grants"] > 300
        if part == "exact":
            assert sum(row["faults"].values()) >= 1
        elif row["windows"]:
            assert row["worst_share_points"] < 2.0
