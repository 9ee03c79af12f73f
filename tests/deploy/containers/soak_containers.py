"""`make soak-containers`: each kind of fleet, its primary killed ten times, ended and started ten times.

Then new passwords, and more replicas. After each of them calls are ruled on again, within six seconds after a
kill, and the books are exact. A line tells of each round. `TOOLGATE_SOAK_ROUNDS` for others than ten.
"""

import os
import time
from pathlib import Path

import pytest
from container_engine import Engine
from container_fleet import ContainerFleet, container_fleet, until

ROUNDS = int(os.environ.get("TOOLGATE_SOAK_ROUNDS", "10"))
RULED_S = 6.0
LIMIT_S = 3600
pytestmark = pytest.mark.timeout(LIMIT_S)


def tell(fleet: ContainerFleet, what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {fleet.topology}: {what}", flush=True)


def is_exact(fleet: ContainerFleet, cost: int) -> bool:
    return fleet.spent() == (cost, 0)


@pytest.mark.parametrize("topology", ["sentinel", "cluster", "plain"])
def test_a_fleet_is_ruled_on_with_exact_books_after_all_that_is_done_to_it(
    docker: Engine, tmp_path: Path, topology: str
) -> None:
    with container_fleet(docker, tmp_path, topology) as fleet:
        began = time.monotonic()
        fleet.make_up()
        until(lambda: fleet.command("operator", "decisions").strip(), "the first decision")
        tell(fleet, f"up, and the first decision after {time.monotonic() - began:.0f} s")
        cost, longest = kill(fleet)
        cost = restart(fleet, cost)
        cost = rotate(fleet, cost)
        scale(fleet, cost)
        assert longest < RULED_S


def kill(fleet: ContainerFleet) -> tuple[int, float]:
    """Kill the container of the primary, or of the only server, again and again.

    What was spent meanwhile, and for how many seconds at most nothing was ruled on.
    """
    gaps = []
    with fleet.asked(LIMIT_S) as asked:
        until(asked.moments, "ruled on")
        for number in range(ROUNDS):
            until(fleet.is_whole, "whole", 120)
            asked.wait_for_more(time.monotonic())
            killed, since = fleet.primary(), time.monotonic()
            fleet.docker("kill", name=f"{killed}-1")
            if fleet.topology == "plain":  # there is no other
                fleet.docker("start", name=f"{killed}-1")
            asked.wait_for_more(since + RULED_S)
            gaps.append(asked.longest_gap(since))
            if fleet.topology != "plain":
                assert fleet.primary() != killed
                fleet.docker("start", name=f"{killed}-1")
            tell(fleet, f"kill {number + 1} of {ROUNDS}, of {killed}: nothing ruled for {gaps[-1]:.1f} s")
        cost = asked.end()
    until(lambda: is_exact(fleet, cost), f"spent {cost}")
    tell(
        fleet,
        f"{len(gaps)} kills, nothing ruled for {min(gaps):.1f} to {max(gaps):.1f} s; books exact: {cost}",
    )
    return cost, max(gaps)


def restart(fleet: ContainerFleet, cost: int) -> int:
    """End and start all, again and again; what was spent in all."""
    for number in range(ROUNDS):
        began = time.monotonic()
        fleet.make_down()
        ended = time.monotonic()
        fleet.make_up()
        up = time.monotonic()
        assert is_exact(fleet, cost), (fleet.spent(), cost)
        with fleet.asked(60) as asked:
            until(asked.moments, "ruled on")
            cost += asked.end()
        until(lambda now=cost: is_exact(fleet, now), f"spent {cost}")  # type: ignore[misc]
        took = f"down {ended - began:.0f} s, up {up - ended:.0f} s"
        tell(fleet, f"restart {number + 1} of {ROUNDS}: {took}; {cost} spent")
    return cost


def rotate(fleet: ContainerFleet, cost: int) -> int:
    """Give each user a new password; what was spent in all."""
    made = fleet.directory / "deploy" / "made"
    for folder in ("urls", "nodes"):
        for one in (made / folder).glob("*"):
            one.unlink()
    fleet.make_up()
    with fleet.asked(60) as asked:
        until(asked.moments, "ruled on")
        cost += asked.end()
    until(lambda: is_exact(fleet, cost), f"spent {cost}")
    tell(fleet, "new passwords for all")
    return cost


def scale(fleet: ContainerFleet, cost: int) -> None:
    """More replicas, and fewer."""
    with fleet.asked(120) as asked:
        until(asked.moments, "ruled on")
        for replicas in ("6", "1"):
            fleet.fleet("up", "--detach", "--wait", "--scale", f"policy={replicas}", "policy")
            asked.wait_for_more(time.monotonic())
        assert not [line for line in asked.lines() if line[0] == "not ruled"]
        cost += asked.end()
    until(lambda: is_exact(fleet, cost), f"spent {cost}")
    tell(fleet, "six replicas and one, and each call ruled on")
