"""The benchmark of benefit: worlds are the same for every side, and small ones show what it is for."""

import re
from pathlib import Path

import pytest
from benefit import OPTIONS, Run, average, compare, figures_of, measure
from benefit_market import LLM, MIXES
from benefit_picture import draw
from benefit_sides import DEFAULT, SIDES, side_of
from benefit_world import World, draw_jobs

pytestmark = pytest.mark.pure
DOCS = Path(__file__).parents[3] / "docs"


def run(side, mix="travel", agents=25, weights=(0.6, 0.4)):
    return measure(Run(mix, "building 0", side, weights, agents))


def test_the_same_seed_gives_the_same_world_and_the_same_figures():
    assert run("cost-aware", agents=8) == run("cost-aware", agents=8)
    mix = MIXES["travel"]
    one, other = (World(mix, "seed", side_of(side), 3) for side in ("without", "oracle"))
    assert one.market == other.market
    assert draw_jobs(mix, one.market, "seed", 3) == draw_jobs(mix, other.market, "seed", 3)


def test_where_there_is_nothing_to_choose_all_sides_do_the_same():
    without = run("without", "coding", 10)
    assert all(run(side, "coding", 10) == without for side in SIDES)


def test_cost_aware_finishes_no_less_for_less_money_and_nothing_is_denied():
    without, chosen = run("without"), run("cost-aware")
    assert chosen["finished"] >= without["finished"]
    assert chosen["usd_per_job"] < 0.8 * without["usd_per_job"]
    assert chosen["denied"] == 0


def test_jobs_have_5_to_40_calls_of_tools_that_do_the_kind_of_work():
    world = World(MIXES["airline"], "seed", side_of("random"), 30)
    jobs = world.run()
    assert {5 <= len(job.kinds) <= 40 for job in jobs} == {True}
    assert all(job.calls >= 2 * len(job.kinds) for job in jobs if job.finished)
    assert figures_of(jobs)["jobs"] == 30
    assert {kind for job in jobs for kind in job.kinds} | {LLM} == set(MIXES["airline"].tools)


def test_the_table_and_the_picture_are_made_of_the_same_figures():
    rows = [
        {"mix": "travel", "side": side, "weights": (0.6, 0.4), **average([run(side, agents=5)])}
        for side in SIDES
    ]
    for row in rows:
        compare(row, rows[0], rows[-1])
    assert rows[0]["saved_usd_per_job"] == 0
    assert rows[-1]["of_oracle_usd_per_job"] in (1, None)
    marks = len(SIDES) - 2  # each side but two curves, in the picture and in its legend
    assert draw(rows, 1).count("<rect") == 1 + 2 * marks
    assert OPTIONS.parse_args([]).building is False


def test_the_picture_of_the_page_shows_the_figures_of_its_tables():
    page, picture = ((DOCS / name).read_text() for name in ("benefit.md", "pictures/benefit.svg"))
    shown = re.search(r"<desc[^>]*>(.*)</desc>", picture, re.DOTALL)
    assert shown is not None
    weights = " with weights {} and {} pays ".format(*DEFAULT)
    for mix in ("airline", "travel", "workspace"):
        (told,) = (part for part in shown[1].split(". ") if part.startswith(f"{mix}: "))
        table = page.partition("## All sides")[2].partition(f"**{mix}**")[2].partition("\n\n**")[0]
        for side in ("without", "cost-aware", "oracle"):
            row = next(line for line in table.splitlines() if line.startswith(f"| {side} "))
            _, _, finished, usd, *_ = (cell.strip() for cell in row.split("|"))
            share = float(finished.rstrip("%")) / 100
            words = f"{side}{weights}{float(usd):.2f} USD a job and finishes {share:.0%}"
            assert words in told, (mix, side)
    assert "](pictures/benefit.svg)" in page
