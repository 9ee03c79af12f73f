"""What cost-aware learns of costs, and which of several calls it prefers."""

import pytest
from cost_aware_calls import EQUIVALENT, TOOLS, call, config
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.config.document import parse_document
from toolgate_bus.protocol.money import MAX_AMOUNT
from toolgate_bus.protocol.packing import pack
from toolgate_bus.protocol.tool_sets import LivingTools
from toolgate_schedulers.commands.rule_check import compare
from toolgate_schedulers.shipped.cost_aware.estimates import (
    ENOUGH,
    WINDOW,
    CostHistory,
    Estimate,
    estimate,
    quantile,
)
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware, candidates_of

pytestmark = pytest.mark.pure

# ---------------------------------------------------------------------- learning

some_costs = st.lists(st.integers(0, 10_000_000), min_size=1, max_size=80)


def told(values, tool="t", **fields):
    learned = CostHistory()
    for value in values:
        learned.hear({"event": "tool:post", "tool": tool, "cost": value, "success": True, **fields})
    return learned


LEARNS = config(default={"cost": 0.5, "latency_s": 9}, learn=True)


@given(st.integers(0, MAX_AMOUNT), st.integers(ENOUGH, 2 * WINDOW))
def test_of_a_tool_that_always_costs_the_same_that_is_learned(cost, times):
    expected = estimate(LEARNS, told([cost] * times), "t")
    assert (expected.cost, expected.reserve) == (cost, cost)


@given(some_costs, st.integers(0, 10_000_000))
def test_a_price_that_changed_is_known_after_so_many_calls_whatever_came_before(before, now):
    assert estimate(LEARNS, told([*before, *[now] * WINDOW]), "t")[:2] == (now, now)


@given(st.integers(0, 1000), st.lists(st.integers(0, MAX_AMOUNT), max_size=3), st.randoms())
def test_up_to_three_outliers_in_the_window_move_nothing(usual, outliers, random):
    values = [usual] * (WINDOW - len(outliers)) + outliers
    random.shuffle(values)
    expected = estimate(LEARNS, told(values), "t")
    assert expected.cost == usual
    assert expected.reserve <= max(usual, 0)


@given(some_costs)
def test_what_is_reserved_covers_nine_in_ten_of_what_was_told(values):
    kept = tuple(values[-WINDOW:])
    covered = sum(value <= quantile(kept, 0.9) for value in kept)
    assert covered >= 0.9 * len(kept)
    assert quantile(kept, 0.5) <= quantile(kept, 0.9)
    assert quantile(kept, 0.9) in kept


def test_until_enough_was_told_the_configuration_holds():
    assert estimate(LEARNS, told([1] * (ENOUGH - 1)), "t") == Estimate(500_000, 500_000, 9)


def test_a_declared_cost_is_the_least_that_is_reserved():
    declared = config(tools={"t": {"cost": 0.4}})
    assert estimate(declared, told([100_000] * 9), "t")[:2] == (100_000, 400_000)
    assert estimate(declared, told([900_000] * 9), "t")[:2] == (900_000, 900_000)


def test_a_tool_in_letters_that_mean_the_same_costs_the_same():
    declared = config(tools={"pay": {"cost": 0.4}})
    assert estimate(declared, CostHistory(), "ｐａｙ") == estimate(declared, CostHistory(), "pay")


def test_what_a_tool_does_not_declare_is_the_defaults():
    partly = config(tools={"t": {"latency_s": 2}}, default={"cost": 0.1, "latency_s": 7})
    assert estimate(partly, CostHistory(), "t") == Estimate(100_000, 100_000, 2)
    assert estimate(partly, CostHistory(), "u") == Estimate(100_000, 100_000, 7)


def test_without_learning_only_the_configuration_counts():
    still = config(tools={"t": {"cost": 0.4}}, learn=False)
    assert estimate(still, told([1] * 40), "t") == Estimate(400_000, 400_000, 0)


@pytest.mark.parametrize(
    "fact",
    [
        {},
        {"event": "tool:error", "tool": "t", "cost": 1, "seconds": 1.0},
        {"event": "tool:post", "tool": 7, "cost": 1},
        {"event": "tool:post", "tool": "t", "cost": -1},
        {"event": "tool:post", "tool": "t", "cost": True, "success": True},
        {"event": "tool:post", "tool": "t", "cost": MAX_AMOUNT + 1},
        {"event": "tool:post", "tool": "t", "seconds": 1.0, "success": True},
        {"event": "tool:post", "tool": "t" * 257, "cost": 1},
    ],
)
def test_what_is_no_cost_teaches_nothing(fact):
    learned = CostHistory()
    assert not learned.hear(fact)
    assert learned == CostHistory()


@given(some_costs)
def test_what_was_learned_is_kept(values):
    learned = told(values)
    assert CostHistory.from_bytes(learned.to_bytes()) == learned


@pytest.mark.parametrize(
    "raw",
    [None, b"", b"\xc1", pack([1]), pack({"answers": [1], "costs": {"t": "1 x", "u": "", "v": "9" * 17}})],
)
def test_out_of_something_else_nothing_is_learned(raw):
    assert CostHistory.from_bytes(raw) == CostHistory()


def test_only_so_many_tools_are_remembered_the_latest_of_them():
    learned = CostHistory()
    for number in range(300):
        learned.hear({"event": "tool:post", "tool": f"t{number}", "cost": MAX_AMOUNT})
    assert len(learned.costs) == 256
    assert "t299" in learned.costs
    assert CostHistory.from_bytes(learned.to_bytes()) == learned


# ---------------------------------------------------------------------- candidates


@pytest.mark.parametrize(
    ("cost_weight", "latency_weight", "first"),
    [(0, 0, "dear"), (1, 0, "cheap"), (0, 1, "dear"), (0.6, 0.4, "cheap"), (0.4, 0.6, "dear")],
)
def test_the_weights_choose_between_cheap_and_fast(cost_weight, latency_weight, first):
    read = config(
        tools=TOOLS, alternatives=EQUIVALENT, cost_weight=cost_weight, latency_weight=latency_weight
    )
    assert candidates_of(read, CostHistory(), call())[0].tool == first


def test_of_equals_the_llms_own_choice_is_preferred():
    same = config(alternatives=[{"tools": ["cheap", "dear"]}], cost_weight=1)
    assert candidates_of(same, CostHistory(), call())[0].tool == "dear"


def test_only_available_equivalents_are_candidates_and_none_in_verify():
    read = config(tools=TOOLS, alternatives=EQUIVALENT)
    assert [one.tool for one in candidates_of(read, CostHistory(), call(available=("dear",)))] == ["dear"]
    assert [one.tool for one in candidates_of(read, CostHistory(), call(phase="verify"))] == ["dear"]


def test_arguments_are_mapped_and_the_first_source_that_is_there_counts():
    read = config(
        alternatives=[
            {
                "tools": {
                    "dear": {},
                    "cheap": {"arguments": {"q": ["$.query", "$.text"], "n": {"value": 3}, "x": "$.x"}},
                }
            }
        ],
        cost_weight=1,
    )
    asked = [call(tool_input=given) for given in ({"query": "a", "text": "b"}, {"text": "b"}, {})]
    found = [candidates_of(read, CostHistory(), one)[1].arguments for one in asked]
    assert found == [{"q": "a", "n": 3}, {"q": "b", "n": 3}, {"n": 3}]


@pytest.mark.parametrize(("half_life_s", "first"), [(600, "dear"), (10, "cheap")])
def test_a_failure_is_forgotten_by_the_half_life(half_life_s, first):
    read, now = config(tools=TOOLS, alternatives=EQUIVALENT, cost_weight=1, half_life_s=half_life_s), [0.0]
    scheduler = CostAware(read, ticks=lambda: now[0])
    for number in range(60):
        event = "tool:post" if number % 3 == 0 else "tool:error"
        scheduler.follow({"event": event, "tool": "cheap"})
        scheduler.follow({"event": "tool:post", "tool": "dear"})
    now[0] = 500.0
    found = candidates_of(read, CostHistory(), call(), scheduler.outcomes, now[0])
    assert found[0].tool == first


def test_weights_that_choose_among_nothing_say_so():
    seed = config(cost_weight=0.6, latency_weight=0.4)
    assert seed.idle_weights.startswith("cost_weight and latency_weight: choose among nothing: name tools")
    assert config(alternatives=EQUIVALENT, cost_weight=0.6).idle_weights == ""
    assert config(alternatives=EQUIVALENT).idle_weights == ""
    document = parse_document(b"budgets: []\nlatency_weight: 0.4\n", "cost.yaml")
    said = compare("cost-aware", document, LivingTools()).lines
    assert [line.partition(" choose among nothing")[0] for line in said] == ["cost.yaml:2: latency_weight:"]
