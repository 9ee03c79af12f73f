"""Some worlds of the score, and that each of its troubles would be seen: `make simulate` runs many more."""

import pytest
from score_worlds import World, look_at, main, make_plan
from toolgate_schedulers.shipped.score import score

pytestmark = pytest.mark.pure

SEEDS = range(12)
STICKY = (6, 12)
"""Calm worlds that stick by session, with near equals."""


def broken(seeds=SEEDS):
    return [wrong for seed in seeds for wrong in look_at(World(make_plan(seed)).run())]


def test_no_world_of_the_first_ones_is_broken():
    assert broken() == []


def test_worlds_are_of_every_kind_and_the_same_seed_gives_the_same_calls():
    assert {make_plan(seed).kind for seed in SEEDS} == {"crowd", "calm", "fault"}
    assert World(make_plan(3)).run().calls == World(make_plan(3)).run().calls


@pytest.mark.parametrize(
    ("name", "value", "seeds", "told"),
    [
        pytest.param("CROWD", 10**9, SEEDS, "a herd", marks=pytest.mark.system),
        ("ejected", lambda _options: frozenset(), (14,), "is chosen"),
        ("STICK", 0.0, STICKY, "leaving"),
    ],
)
def test_a_rule_that_is_broken_is_seen(monkeypatch, name, value, seeds, told):
    assert broken(seeds) == []
    monkeypatch.setattr(score, name, value)
    assert any(told in wrong for wrong in broken(seeds))


def test_one_world_is_told_in_words(capsys):
    assert main(["--seed", "1"]) == 0
    assert capsys.readouterr().out.startswith("seed 1, ")
