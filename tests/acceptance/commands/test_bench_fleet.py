"""`toolgate bench fleet`: real agents in several processes, every call ruled on, recorded and answered."""

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from marked_processes import World
from toolgate_orchestrator.commands.bench.fleet_figures import Row, jain

pytestmark = pytest.mark.timeout(180)

TWO = ("--processes", "2")
SMALL = (*TWO, "--replicas", "1")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
ROW = Row(
    agents=2,
    processes=1,
    planned=4,
    called=4,
    decided=4,
    recorded=4,
    answered=4,
    whys={"agreed": 3, "denied": 1},
    wall_s=2.0,
    latencies_s=[0.001, 0.002, 0.002, 0.5],
    alike_s=[1.0, 3.0],
    grown_bytes=[300_000],
    cpu_s={"agents": 0.004, "schedulers": 0.002, "server": None},
)


@pytest.fixture(name="world")
def _world(short_directory: Path) -> World:
    return World(short_directory)


@pytest.mark.system
@pytest.mark.acceptance
def test_every_call_of_every_agent_is_ruled_on_recorded_and_answered(
    process: Callable[..., Any], world: World
) -> None:
    running = process("toolgate", "bench", "fleet", "--agents", "5,10", *TWO, "--json", env=world.env)
    assert running.wait(150) == 0, running.stderr
    told = json.loads(running.stdout)
    assert [row["agents"] for row in told["rows"]] == [5, 10]
    for row, calls in zip(told["rows"], (43, 86), strict=True):
        # Eight calls an agent; each fifth delegates, to an agent with two.
        counts = dict.fromkeys(("planned", "called", "decided", "recorded", "answered"), calls)
        assert row["calls"] == {**counts, "lost": 0, "unheard": 0}
        delegating = row["agents"] // 5
        denied, modified = row["agents"], delegating
        assert row["outcomes"] == {
            "agreed": calls - denied - modified,
            "denied": denied,
            "modified": modified,
        }
        assert row["ok"] is True
        assert row["processes"] == 2
        assert row["per_second"] > 0
        assert 0 < row["median_ms"] <= row["p99_ms"] < told["patience_ms"]
        assert 0 < row["jain"] <= 1 <= row["slowest_to_median"]
    assert not world.processes()
    assert not list(world.directory.rglob("*"))


@pytest.mark.acceptance
@pytest.mark.system
def test_a_person_reads_the_rows_side_by_side(process: Callable[..., Any], world: World) -> None:
    running = process(
        *("toolgate", "bench", "fleet", "--agents", "2", "--processes", "1", "--replicas", "1"), env=world.env
    )
    assert running.wait(150) == 0, running.stderr
    for words in ("2 agents", "ruled on", "in the record", "decisions per second", "latency, p99", "Jain"):
        assert words in running.stdout
    assert "Every call was ruled on by all who had to" in running.stdout


@linux_only
@pytest.mark.acceptance
@pytest.mark.system
@pytest.mark.parametrize(("end", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_bench_that_is_interrupted_ends_its_processes(
    process: Callable[..., Any], wait_until: Callable[..., Any], world: World, end: signal.Signals, code: int
) -> None:
    running = process("toolgate", "bench", "fleet", "--agents", "4", "--think", "20", *SMALL, env=world.env)
    await wait_until(lambda: len(world.processes("fleet_worker")) == 2 or not running.alive, timeout=60)
    running.signal(end)
    assert running.wait(60) == code, running.stderr
    await wait_until(lambda: not world.processes(), timeout=15)
    assert "Traceback" not in running.stderr


@linux_only
@pytest.mark.acceptance
@pytest.mark.system
async def test_a_bench_one_of_whose_processes_dies_says_so_and_ends(
    process: Callable[..., Any], wait_until: Callable[..., Any], world: World
) -> None:
    running = process("toolgate", "bench", "fleet", "--agents", "4", "--think", "20", *SMALL, env=world.env)
    await wait_until(lambda: len(world.processes("fleet_worker")) == 2 or not running.alive, timeout=60)
    os.kill(world.processes("fleet_worker")[0], signal.SIGKILL)
    assert running.wait(60) == 1
    assert "a process of the agents ended before it was" in running.stderr
    await wait_until(lambda: not world.processes(), timeout=15)


@pytest.mark.acceptance
@pytest.mark.parametrize("agents", ["0", "ten", "", "10,", "10001"])
def test_what_is_no_number_of_agents_is_refused(process: Callable[..., Any], agents: str) -> None:
    running = process("toolgate", "bench", "fleet", "--agents", agents)
    assert running.wait(60) == 2
    assert "--agents" in running.stderr
    assert "must be numbers from 1 to 10000" in running.stderr


@pytest.mark.acceptance
def test_the_options_of_the_bench_itself_stay(process: Callable[..., Any]) -> None:
    running = process("toolgate", "bench", "--help", env={"COLUMNS": "120", "NO_COLOR": "1"})
    assert running.wait(60) == 0
    for option in ("--schedulers", "--in-flight", "--decisions", "--loops", "--observed", "--json", "fleet"):
        assert option in running.stdout


@pytest.mark.pure
def test_a_row_whose_counts_agree_is_good() -> None:
    assert (ROW.good, ROW.loss, ROW.unheard) == (True, 0, 0)


@pytest.mark.pure
@pytest.mark.parametrize("count", ["called", "decided", "recorded", "answered"])
@pytest.mark.parametrize("short", [3, 5])
def test_a_row_with_a_call_too_few_or_too_many_is_not_good(count: str, short: int) -> None:
    row = dataclasses.replace(ROW, **{count: short})
    assert not row.good
    assert row.loss == (1 if short < ROW.planned else 0)


@pytest.mark.pure
@pytest.mark.parametrize("why", ["silent", "failed_open", "unasked", "bus_down"])
def test_a_decision_that_came_out_without_somebody_is_not_good(why: str) -> None:
    row = dataclasses.replace(ROW, whys={"agreed": 3, why: 1})
    assert (row.good, row.unheard) == (False, 1)


@pytest.mark.pure
def test_the_figures_of_a_row_are_those_of_all_its_processes() -> None:
    figures = ROW.figures()
    assert (figures["per_second"], figures["median_ms"], figures["p99_ms"]) == (2, 2.0, 500.0)
    assert (figures["slowest_to_median"], figures["jain"]) == (1.5, 0.8)
    assert figures["bytes_per_agent"] == 150_000
    assert figures["cpu_us"] == {"agents": 1000, "schedulers": 500, "server": None, "all": None}


@pytest.mark.pure
def test_jains_index_is_one_where_all_are_alike_and_falls_to_one_over_n() -> None:
    assert jain([2.0, 2.0, 2.0]) == 1.0
    assert jain([6.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert jain([]) == 1.0
