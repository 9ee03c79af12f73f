"""What `toolgate bench` makes of its blocks: ratios of those that ran beside each other, and goals."""

import pytest
from toolgate_orchestrator.commands.bench.comparison import LoadFigures
from toolgate_orchestrator.commands.bench.installs import InstallRow
from toolgate_orchestrator.commands.bench.measure import Sample
from toolgate_orchestrator.commands.bench.report import goals_of

pytestmark = pytest.mark.pure


def block(median_us: float, rate: float, cpu_us: float = 10.0) -> Sample:
    """A block of four decisions."""
    cpu = {"gate": 3 * cpu_us / 1e6, "server": cpu_us / 1e6, "schedulers": 0.0}
    return Sample([median_us / 1e6] * 4, 4 / rate, cpu, 1)


def test_a_ratio_is_the_median_of_the_blocks_so_that_a_slow_moment_counts_for_both_sides() -> None:
    floor = [block(100, 10_000), block(1000, 1000), block(100, 10_000)]  # the machine was slow once
    ours = [block(200, 4000), block(2000, 400), block(250, 5000)]
    sides = LoadFigures("small", 1, 64, {"floor": floor, "toolgate": ours}).figures()["sides"]
    assert sides["toolgate"]["ratio"] == {"median": 2.0, "rate": 0.4, "cpu": 1.0}
    assert sides["toolgate"]["cpu_by_kind_us"] == {"gate": 7.5, "server": 2.5, "schedulers": 0.0}
    assert "ratio" not in sides["floor"]


def test_two_installs_are_compared_pair_by_pair() -> None:
    old, new = [block(100, 1000, 20), block(100, 1000, 20)], [block(50, 2000, 10), block(70, 1500, 15)]
    told = InstallRow("small", 1, 1, {"old": old, "new": new}).figures()
    assert told["ratio"] == {"median": 0.6, "rate": 1.75, "cpu": 0.625}
    assert told["ratio_range"]["cpu"] == [0.5, 0.75]


@pytest.mark.parametrize(
    ("schedulers", "in_flight", "size", "ratio", "words"),
    [
        (1, 1, "small", 2.5, "goal ≤ 2.5: met, behind nats"),
        (3, 1, "small", 2.6, "goal ≤ 2.5: not met, behind nats"),
        (1, 1, "small", 2.0, "goal ≤ 2.5: met, ahead of nats"),
        (1, 64, "small", 2.0, "goal ≥ 0.42: met, ahead of nats"),
        (3, 64, "small", 4.0, "goal ≥ 0.27: not met, behind nats"),
        (8, 1, "small", 2.0, None),
        (1, 1, "large", 2.0, None),
    ],
)
def test_a_goal_is_met_or_not(
    schedulers: int, in_flight: int, size: str, ratio: float, words: str | None
) -> None:
    sides = {
        "floor": [block(100, 1000)],
        "toolgate": [block(100 * ratio, 1000 / ratio)],
        "nats": [block(230, 1000 / 2.3)],
    }
    lines = goals_of([LoadFigures(size, schedulers, in_flight, sides).figures()])
    assert [line.partition("; ")[2] for line in lines] == ([words] if words else [])
