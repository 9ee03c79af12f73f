"""Exploration: a share of the calls, for a sum of money, tries what would not be chosen."""

import pytest
from test_sticky import TOOLS, call, cost_aware, decision, heuristic, lasts, router
from toolgate_bus.errors import ConfigError
from toolgate_schedulers.shipped.score import exploration
from toolgate_schedulers.shipped.score.exploration import Explorer
from toolgate_schedulers.shipped.score.outcomes import IN_A_ROW, Outcomes, Performance
from toolgate_schedulers.shipped.score.score import Option, choose_unknown, rate_options

pytestmark = pytest.mark.pure

CALLS = 1000
SHARE = 0.05


def asked(number, session=""):
    return call(session, id=f"{number:032x}")


async def verdicts(scheduler, session="", numbers=range(CALLS)):
    """One call after another, none of which runs: nothing more is learned, and there is no crowd."""
    told = []
    for number in numbers:
        told.append(await scheduler.decide(asked(number, session)))
        scheduler.follow({"event": "tool:unused", "tool": "a", "decision_id": f"{number:032x}"})
    return told


def explored(told):
    return [number for number, one in enumerate(told) if one.reason and "explored: " in one.reason]


@pytest.mark.parametrize("make", [cost_aware, heuristic, router])
async def test_a_share_of_the_calls_tries_the_one_of_which_least_is_known(make):
    first, second = (make(explore={"share": SHARE}) for _ in range(2))
    for scheduler in (first, second, never := make()):
        lasts(scheduler, a=1.0, b=9.0)
    told = await verdicts(first)
    tried = explored(told)
    assert 0.5 * SHARE < len(tried) / CALLS < 2 * SHARE
    assert {told[number].tool for number in tried} == {"b"}
    assert explored(await verdicts(second)) == tried  # replicas agree, and a replay repeats it
    assert not explored(await verdicts(never))


@pytest.mark.parametrize("make", [cost_aware, heuristic, router])
async def test_a_call_stays_as_it_is_if_it_is_the_one_that_tries(make):
    scheduler = make(explore={"share": SHARE})
    lasts(scheduler, a=9.0, b=1.0)
    told = await verdicts(scheduler)
    assert {told[number].action for number in explored(told)} == {"continue"}


async def test_no_call_that_sticks_and_none_to_one_that_is_ejected():
    sticks, failing = cost_aware(sticky="session", explore={"share": 0.5}), cost_aware(explore={"share": 0.5})
    for scheduler in (sticks, failing):
        lasts(scheduler, a=1.0, b=9.0)
    assert not explored(await verdicts(sticks, "s1"))
    assert explored(await verdicts(sticks))  # calls without a session are chosen for one by one
    for _ in range(IN_A_ROW):
        failing.follow({"event": "tool:error", "tool": "b"})
    assert not explored(await verdicts(failing))


def test_the_least_known_of_those_that_may_get_calls_is_tried():
    known = {"best": 50, "well": 40, "little": 2, "out": 0}
    options = [
        Option(key, 0, 1, False, Performance(calls=calls, is_usable=key != "out"))
        for key, calls in known.items()
    ]
    assert choose_unknown(rate_options(options, 0, 1)).option.key == "little"
    assert choose_unknown(rate_options(options[:1], 0, 1)) is None


async def test_what_it_may_cost_in_a_window_bounds_it():
    now = 0.0
    config = {
        "tools": {"a": {"cost": 1}, "b": {"cost": 2}},
        "explore": {"share": 0.5, "cost": 7, "window": 60},
    }
    scheduler = cost_aware(**config)
    scheduler._ticks = lambda: now
    lasts(scheduler, a=1.0, b=9.0)
    assert len(explored(await verdicts(scheduler))) == 3
    now = 59.0
    assert not explored(await verdicts(scheduler, numbers=range(CALLS, 2 * CALLS)))
    now = 61.0
    assert len(explored(await verdicts(scheduler, numbers=range(2 * CALLS, 3 * CALLS)))) == 3


def of_another_replica(number, reason="explored: b: 2 USD"):
    verdict = {"scheduler": "cost-aware", "action": "modify", "reason": reason}
    return decision("", "b") | {"id": f"{number:032x}", "verdicts": [verdict]}


def test_what_other_replicas_spend_is_read_from_the_facts_and_each_call_counts_once():
    explorer = Explorer(0.5, 10.0, 60.0)
    drawn = [number for number in range(100) if explorer.draws(f"{number:032x}")]
    other = [number for number in range(100) if number not in drawn]
    outcomes = Outcomes([TOOLS], explorer=explorer)
    assert explorer.allows("b", 4.0, 0.0)
    for number in (drawn[0], drawn[0], *other):
        outcomes.hear(of_another_replica(number), 0.0)
    outcomes.hear(of_another_replica(drawn[1], "b is better"), 0.0)
    assert explorer.allows("b", 4.0, 0.0)
    outcomes.hear(of_another_replica(drawn[2]), 0.0)
    outcomes.expect(f"{drawn[2]:032x}", "b", 0.0, explored=True)
    assert not explorer.allows("b", 4.0, 0.0)


@pytest.mark.parametrize("told", [None, 7, "explored: ", ["explored: "], [{"reason": ["explored: "]}]])
def test_facts_of_another_form_spend_nothing(told):
    explorer = Explorer(0.5, 1.0, 60.0)
    drawn = next(number for number in range(100) if explorer.draws(f"{number:032x}"))
    outcomes = Outcomes([TOOLS], explorer=explorer)
    outcomes.hear(of_another_replica(drawn) | {"verdicts": told}, 0.0)
    assert explorer.allows("b", 1.0, 0.0)


def test_beyond_a_number_of_calls_in_a_window_none_is_made(monkeypatch):
    monkeypatch.setattr(exploration, "MAX_CALLS", 2)
    explorer = Explorer(0.5, 10.0, 60.0)
    for number in range(5):
        explorer.record(f"d{number}", "b", 0.0)
    assert not explorer.allows("b", 0.0, 0.0)
    assert len(explorer._counted) == len(explorer._spent) == 2


@pytest.mark.parametrize(
    ("make", "given", "words"),
    [
        (cost_aware, {"latency_weight": 0.0}, "goes with cost_weight or latency_weight"),
        (heuristic, {"strategy": "first"}, "goes with strategy: best"),
        (router, {"choose": "weight"}, "goes with choose: best"),
        (cost_aware, {"explore": {"share": 0.1, "window": "month"}}, ".*must be hour, day, or whole seconds"),
        (cost_aware, {"explore": {"share": 0.6}}, ".*"),
    ],
)
def test_its_bounds_are_checked_and_it_goes_with_what_chooses(make, given, words):
    with pytest.raises(ConfigError, match=f"explore: {words}|{words}"):
        make(**{"explore": {"share": SHARE}} | given)
