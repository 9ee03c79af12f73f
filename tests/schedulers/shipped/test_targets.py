"""Which target a call goes to: shares that converge, choices that stay."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toolgate_schedulers import ToolSelecting
from toolgate_schedulers.shipped.router.targets import Target, rank_targets
from toolgate_schedulers.shipped.score.sticky import key_of

pytestmark = pytest.mark.pure

CALLS = 2000
WEIGHTS = st.lists(st.integers(1, 20), min_size=2, max_size=6)


def targets(weights):
    return [Target(to=f"t{number}", weight=weight) for number, weight in enumerate(weights)]


def first(chosen_from, key, salt="s"):
    return rank_targets(chosen_from, salt, key)[0].to


@settings(max_examples=20)
@given(WEIGHTS, st.text(max_size=8))
def test_each_target_gets_its_share(weights, salt):
    chosen_from = targets(weights)
    went = [first(chosen_from, f"k{number}", salt) for number in range(CALLS)]
    for target in chosen_from:
        share = target.weight / sum(weights)
        # More than six standard deviations: a fair draw is never out of it.
        off = 0.005 + 6 * math.sqrt(share * (1 - share) / CALLS)
        assert abs(went.count(target.to) / CALLS - share) <= off


@given(WEIGHTS, st.text(), st.text())
def test_the_same_key_goes_to_the_same_target_whatever_the_order_of_the_list(weights, salt, key):
    chosen_from = targets(weights)
    order = [target.to for target in rank_targets(chosen_from, salt, key)]
    assert [target.to for target in rank_targets(chosen_from[::-1], salt, key)] == order
    assert sorted(order) == [target.to for target in chosen_from]


@given(WEIGHTS, st.integers(1, 100), st.integers(0, 5))
def test_a_weight_that_grows_takes_calls_and_moves_none_among_the_others(weights, more, place):
    place %= len(weights)
    grown = [weight + more * (number == place) for number, weight in enumerate(weights)]
    for key in map(str, range(40)):
        before, after = first(targets(weights), key), first(targets(grown), key)
        assert after in (before, f"t{place}")


@given(WEIGHTS, st.integers(0, 5))
def test_a_target_that_is_gone_leaves_the_order_of_the_others(weights, place):
    gone = f"t{place % len(weights)}"
    chosen_from = targets(weights)
    for key in map(str, range(20)):
        left = [target for target in rank_targets(chosen_from, "s", key) if target.to != gone]
        assert rank_targets([target for target in chosen_from if target.to != gone], "s", key) == left


def test_two_canaries_are_independent():
    half = targets([1, 1])
    both = [(first(half, str(n), "one"), first(half, str(n), "two")) for n in range(CALLS)]
    for pair in (("t0", "t0"), ("t0", "t1"), ("t1", "t0"), ("t1", "t1")):
        assert abs(both.count(pair) / CALLS - 0.25) < 0.05


def test_a_weight_of_nothing_gets_nothing_not_even_as_the_last():
    assert [target.to for target in rank_targets(targets([0, 1, 0]), "s", "k")] == ["t1"]


def test_one_tool_with_two_sets_of_arguments_is_two_targets():
    same = [Target(to="t", arguments={"k": {"value": number}}) for number in (10, 20)]
    went = [rank_targets(same, "s", str(number))[0].arguments["k"].value for number in range(CALLS)]
    assert 0.45 < went.count(10) / CALLS < 0.55


CALL = ToolSelecting(
    id="0" * 32, tool_name="t", session="s1", root_session="r1", agent="a1", labels={"team": "ops", "no": ""}
)


@pytest.mark.parametrize(
    ("sticky", "key"),
    [
        ("decision", f"decision={'0' * 32}"),
        ("session", "session=s1"),
        ("tree", "tree=r1"),
        ("agent", "agent=a1"),
        ("label:team", "label:team=ops"),
        ("label:gone", f"decision={'0' * 32}"),
        ("label:no", f"decision={'0' * 32}"),
    ],
)
def test_what_a_choice_sticks_to(sticky, key):
    assert key_of(sticky, CALL) == key


def test_calls_without_a_session_do_not_all_go_to_one_target():
    alone = [ToolSelecting(id=f"{number:032x}", tool_name="t") for number in range(100)]
    went = {first(targets([1, 1]), key_of("session", call)) for call in alone}
    assert went == {"t0", "t1"}
