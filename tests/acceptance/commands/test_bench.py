"""`toolgate bench` on real processes. Its figures mean nothing on a shared machine; its verdicts do."""

import json
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from marked_processes import World

pytestmark = [pytest.mark.acceptance, pytest.mark.system]  # minutes of processes: not for every change

SHORT = ("toolgate", "bench", "-n", "2", "-c", "4", "--decisions", "128", "--json")


def test_every_side_decides_the_same_calls_rightly_and_is_measured(process: Callable[..., Any]) -> None:
    running = process(*SHORT)
    assert running.wait(50) == 0, running.stderr
    machine, row = map(json.loads, running.stdout.splitlines())
    assert {"python", "cpus", "load_before"} <= set(machine)
    assert (row["schedulers"], row["in_flight"], row["question_bytes"]) == (2, 4, 448)
    assert {"floor", "toolgate"} <= set(row["sides"])
    for side in row["sides"].values():
        assert side["decisions"] == 128
        assert 0 < side["median_us"] <= side["p99_us"]
        assert side["per_second"] > 0
    assert {"median", "rate"} <= row["sides"]["toolgate"]["ratio"].keys()


WRONG: Final = """
from toolgate_orchestrator.commands.bench import mix, toolgate_side
right = '{{**given, "limit": 5'
assert right in mix.SCHEDULER
toolgate_side.SCHEDULER = mix.SCHEDULER.replace(right, '{{**given, "limit": 6')
from toolgate_bus.commands.main import main
main()
"""
"""The bench, with schedulers whose replacements are not those that are expected."""


def test_a_wrong_ruling_ends_it_with_1_and_names_the_call(process: Callable[..., Any]) -> None:
    running = process(sys.executable, "-c", WRONG, *SHORT[1:], "--peers", "none")
    assert running.wait(50) == 1
    assert re.search(
        r"toolgate decided wrongly: call 4 .*modify expected.*arguments: {'limit': 6}", running.stderr
    )


FEW_PAIRS: Final = """
from toolgate_orchestrator.commands.bench import installs
installs.PAIRS = 2
from toolgate_bus.commands.main import main
main()
"""


def test_two_installs_are_measured_in_pairs_of_blocks(process: Callable[..., Any]) -> None:
    running = process(sys.executable, "-c", FEW_PAIRS, *SHORT[1:], "--old", sys.executable)
    assert running.wait(50) == 0, running.stderr
    machine, row = map(json.loads, running.stdout.splitlines())
    assert machine["old"].endswith("toolgate_orchestrator")
    assert row["pairs"] == 2
    for side in ("old", "new"):
        assert row[side]["decisions"] == 2 * 16
    assert {"median", "rate"} <= set(row["ratio"])


@pytest.mark.parametrize("venv", ["nowhere", "/usr"])
def test_an_old_install_that_is_none_is_refused(process: Callable[..., Any], venv: str) -> None:
    running = process("toolgate", "bench", "--old", venv)
    assert running.wait(50) == 2
    assert "--old" in running.stderr


def test_at_a_rate_latencies_are_told_of_every_call(process: Callable[..., Any]) -> None:
    running = process(
        "toolgate", "bench", "-n", "1", "--rate", "200", "--seconds", "0.4", "--peers", "none", "--json"
    )
    assert running.wait(50) == 0, running.stderr
    _, row = map(json.loads, running.stdout.splitlines())
    assert (row["rate"], row["schedulers"]) == (200, 1)
    for side in ("floor", "toolgate"):
        found = row["sides"][side]
        assert found["decisions"] == 80
        assert 0 < found["p50_us"] <= found["p90_us"] <= found["p99_us"] <= found["max_us"]
        assert 0 <= found["late"] <= found["decisions"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
async def test_a_bench_that_is_interrupted_ends_its_processes(
    process: Callable[..., Any], wait_until: Callable[..., Any], short_directory: Path
) -> None:
    world = World(short_directory)
    running = process("toolgate", "bench", "-n", "1", "--decisions", "1000000", env=world.env)
    await wait_until(lambda: world.processes("bench_1:decide") or not running.alive, timeout=30)
    running.signal(signal.SIGINT)
    assert running.wait(30) == 130, running.stderr
    await wait_until(lambda: not world.processes(), timeout=15)
    assert "Traceback" not in running.stderr
    assert not list(short_directory.rglob("*"))


def test_two_things_to_measure_at_a_time_are_refused(process: Callable[..., Any]) -> None:
    running = process("toolgate", "bench", "--together", "--rate", "10")
    assert running.wait(50) == 2
    assert "--rate and --together: each measures something of its own; give one" in running.stderr


@pytest.mark.parametrize("peers", ["kafka", "nats,kafka"])
def test_a_peer_that_is_not_known_is_refused(process: Callable[..., Any], peers: str) -> None:
    running = process("toolgate", "bench", "--peers", peers)
    assert running.wait(50) == 2
    assert "take nats, webhook, or none" in running.stderr


def test_schedulers_in_one_process_are_measured_beside_a_process_each_and_one_alone(
    process: Callable[..., Any],
) -> None:
    running = process(*SHORT, "--together")
    assert running.wait(50) == 0, running.stderr
    _, row = map(json.loads, running.stdout.splitlines())
    assert set(row["sides"]) == {"one alone", "together", "apart"}
    for name in ("together", "apart"):
        assert row["sides"][name]["ratio"]["median"] > 0
