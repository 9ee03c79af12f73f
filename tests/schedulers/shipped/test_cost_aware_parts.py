"""The pure parts of cost-aware: what is read, learned, preferred, paid by whom, and said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.budgets.ledger import Reservation
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.money import MAX_AMOUNT
from toolgate_bus.protocol.packing import pack
from toolgate_schedulers import ToolSelecting
from toolgate_schedulers.shipped.cost_aware.accounts import Payer, accounts_of, payer_of
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.delegations import MAX_COUNT, Delegations, FinishedDelegation
from toolgate_schedulers.shipped.cost_aware.estimates import (
    ENOUGH,
    WINDOW,
    Candidate,
    CostHistory,
    Estimate,
    estimate,
    quantile,
    rank_candidates,
    scores,
)
from toolgate_schedulers.shipped.cost_aware.messages import refusal, replacement
from toolgate_schedulers.shipped.cost_aware.scheduler import candidates_of

pytestmark = pytest.mark.pure


def config(**fields):
    return check(CostAwareConfig, fields, "cost.yaml")


def call(tool="dear", available=("dear", "cheap", "calc"), **fields):
    return ToolSelecting(id="0" * 32, tool_name=tool, available_tools=available, **fields)


TOOLS = {
    "dear": {"cost": 0.40, "latency_s": 1},
    "cheap": {"cost": "0.02", "latency_s": 5},
    "calc": {"cost": 0},
}
EQUIVALENT = [{"tools": ["dear", "cheap"]}]

# ---------------------------------------------------------------------- configuration


def test_money_is_read_in_the_currency_and_kept_in_millionths():
    read = config(tools=TOOLS, budgets=[{"name": "d", "limit": 5, "window": "day"}])
    assert (read.tools["dear"].cost, read.tools["cheap"].cost, read.budgets[0].limit) == (
        400_000,
        20_000,
        5_000_000,
    )
    assert (read.budgets[0].window, read.budgets[0].level) == (86_400, "fleet")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "the whole: says nothing"),
        ({"tools": {"a": {"cost": -1}}}, "tools.a.cost: must be an amount of money from 0 to"),
        ({"tools": {"a": {"price": 1}}}, "tools.a.price: unknown key; allowed: cost, latency_s"),
        ({"default": {"latency_s": -1}}, "default.latency_s: Input should be greater"),
        ({"budgets": [{"name": "d"}]}, "budgets.0.limit: Field required"),
        ({"budgets": [{"name": "a b", "limit": 1}]}, "budgets.0.name: String should match"),
        (
            {"budgets": [{"name": "d", "limit": 1, "level": "team"}]},
            "budgets.0.level: must be session, tree, agent, fleet or label:NAME",
        ),
        (
            {"budgets": [{"name": "d", "limit": 1, "window": "week"}]},
            "budgets.0.window: must be hour, day, total, or whole seconds",
        ),
        ({"budgets": [{"name": "d", "limit": 1, "window": 0}]}, "budgets.0.window: must be hour"),
        ({"budgets": [{"name": "d", "limit": 1}] * 2}, "budgets: d is the name of two budgets"),
        ({"budgets": [{"name": "slice", "limit": 1}]}, "budgets: slice is what agents get"),
        ({"agents": {"a": {"price": 1}}}, "agents.a.price: unknown key; allowed: cost, latency_s"),
        ({"cost_weight": 1.1}, "cost_weight: Input should be less than or equal to 1"),
        ({"latency_weight": -0.1}, "latency_weight: Input should be greater than or equal to 0"),
        ({"cost_wieght": 1}, "did you mean cost_weight?"),
        ({"learn": "yes"}, "learn: Input should be a valid boolean"),
        ({"charge_llm": 1}, "charge_llm: Input should be a valid boolean"),
        ({"currency": "x" * 17}, "currency: String should have at most 16"),
        ({"alternatives": [{"tools": ["a"]}]}, "alternatives.0.tools: "),
        ({"alternatives": [{"tools": ["a", "a"]}]}, "must be a list of different tool names"),
        ({"alternatives": [{"tools": ["a", "b"]}, {"tools": ["b", "c"]}]}, "b stands in two groups"),
        (
            {"alternatives": [{"tools": {"a": {"arguments": {"q": "query"}}, "b": {}}}]},
            "arguments: q: must be $ (all arguments), $.path",
        ),
    ],
)
def test_a_wrong_configuration_is_refused_by_field_name(fields, complaint):
    with pytest.raises(ConfigError) as refused:
        config(**fields)
    assert complaint in str(refused.value)


# ---------------------------------------------------------------------- learning

some_costs = st.lists(st.integers(0, 10_000_000), min_size=1, max_size=80)


def told(values, tool="t", **fields):
    learned = CostHistory()
    for value in values:
        learned.hear({"event": "tool:post", "tool": tool, "cost": value, "success": True, **fields})
    return learned


LEARNS = config(default={"cost": 0.5, "latency_s": 9}, learn=True)


@given(st.integers(0, MAX_AMOUNT), st.integers(ENOUGH, 2 * WINDOW), st.floats(0, 3600))
def test_of_a_tool_that_always_costs_the_same_that_is_learned(cost, times, seconds):
    learned = told([cost] * times, seconds=seconds)
    expected = estimate(LEARNS, learned, "t")
    assert (expected.cost, expected.reserve) == (cost, cost)
    assert expected.latency_s == pytest.approx(seconds, abs=1e-6)


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


def test_what_a_tool_does_not_declare_is_the_defaults():
    partly = config(tools={"t": {"latency_s": 2}}, default={"cost": 0.1, "latency_s": 7})
    assert estimate(partly, CostHistory(), "t") == Estimate(100_000, 100_000, 2)
    assert estimate(partly, CostHistory(), "u") == Estimate(100_000, 100_000, 7)


def test_without_learning_only_the_configuration_counts():
    still = config(tools={"t": {"cost": 0.4}}, learn=False)
    assert estimate(still, told([1] * 40, seconds=3), "t") == Estimate(400_000, 400_000, 0)


@pytest.mark.parametrize(
    "fact",
    [
        {},
        {"event": "tool:error", "tool": "t", "cost": 1, "seconds": 1.0},
        {"event": "tool:post", "tool": 7, "cost": 1},
        {"event": "tool:post", "tool": "t", "cost": -1},
        {"event": "tool:post", "tool": "t", "cost": True, "seconds": True, "success": True},
        {"event": "tool:post", "tool": "t", "cost": MAX_AMOUNT + 1},
        {"event": "tool:post", "tool": "t", "seconds": float("nan"), "success": True},
        {"event": "tool:post", "tool": "t", "seconds": 1.0, "success": False},
        {"event": "tool:post", "tool": "t" * 257, "cost": 1},
    ],
)
def test_what_is_no_cost_and_no_latency_teaches_nothing(fact):
    learned = CostHistory()
    assert not learned.hear(fact)
    assert learned == CostHistory()


@given(some_costs)
def test_what_was_learned_is_kept(values):
    learned = told(values, seconds=0.5)
    assert CostHistory.from_bytes(learned.to_bytes()) == learned


@pytest.mark.parametrize(
    "raw",
    [None, b"", b"\xc1", pack([1]), pack({"costs": [1], "latencies": {"t": "1 x", "u": "", "v": "9" * 17}})],
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


# ---------------------------------------------------------------------- scoring

weights = st.floats(0, 1)
candidates = st.lists(
    st.builds(
        lambda cost, latency: (cost, latency),
        st.integers(0, 10**9),
        st.floats(0, 1000, allow_subnormal=False),
    ),
    min_size=1,
    max_size=6,
).map(
    lambda pairs: [
        Candidate(f"t{number}", None, Estimate(cost, cost, latency), own=number == 0)
        for number, (cost, latency) in enumerate(pairs)
    ]
)


@given(candidates, weights, weights)
def test_a_score_lies_between_nothing_and_the_sum_of_the_weights(found, cost_weight, latency_weight):
    for score in scores(found, cost_weight, latency_weight):
        assert 0 <= score <= cost_weight + latency_weight + 1e-9


@given(candidates, weights, weights, st.integers(2, 1000))
def test_neither_the_currency_nor_the_unit_of_time_matters(found, cost_weight, latency_weight, factor):
    other = [
        one._replace(estimate=Estimate(one.estimate.cost * factor, 0, one.estimate.latency_s * factor))
        for one in found
    ]
    assert scores(other, cost_weight, latency_weight) == pytest.approx(
        scores(found, cost_weight, latency_weight)
    )


@given(candidates, weights, weights)
def test_what_is_neither_dearer_nor_slower_scores_no_worse(found, cost_weight, latency_weight):
    rated = list(zip(scores(found, cost_weight, latency_weight), found, strict=True))
    for score, one in rated:
        for other_score, other in rated:
            if (
                one.estimate.cost <= other.estimate.cost
                and one.estimate.latency_s <= other.estimate.latency_s
            ):
                assert score <= other_score


@given(candidates, weights, weights)
def test_all_candidates_are_kept_and_the_best_comes_first(found, cost_weight, latency_weight):
    order = rank_candidates(found, cost_weight, latency_weight)
    assert sorted(one.tool for one in order) == sorted(one.tool for one in found)
    if cost_weight or latency_weight:
        assert scores(order, cost_weight, latency_weight) == sorted(
            scores(order, cost_weight, latency_weight)
        )
    else:
        assert order[0].own
        assert [one.estimate.reserve for one in order[1:]] == sorted(
            one.estimate.reserve for one in order[1:]
        )


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


# ---------------------------------------------------------------------- accounts


def budgets(*pairs, **fields):
    return config(budgets=[{"name": name, "level": level, "limit": 1, **fields} for name, level in pairs])


def test_each_level_has_an_account_of_its_own():
    levels = ("fleet", "session", "tree", "agent", "label:team")
    read = budgets(*((f"b{number}", level) for number, level in enumerate(levels)))
    asked = call(session="s-1", root_session="s-0", agent="anna", labels={"team": "red", "env": "x"})
    assert [one.key for one in accounts_of(read, Payer.of(asked), {})] == [
        "b0/fleet",
        "b1/session/s-1",
        "b2/tree/s-0",
        "b3/agent/anna",
        "b4/label:team/red",
    ]


def test_who_does_not_say_who_they_are_share_one_account():
    read = budgets(("a", "session"), ("b", "label:team"))
    assert [one.key for one in accounts_of(read, Payer.of(call()), {})] == ["a/session/-", "b/label:team/-"]


@given(st.text(max_size=400), st.text(max_size=400))
def test_different_people_never_share_an_account_and_its_name_is_bounded(one, other):
    read = budgets(("a", "agent"))
    keys = [accounts_of(read, Payer(agent=agent), {})[0].key for agent in (one, other)]
    assert all(len(key) < 200 for key in keys)
    assert (keys[0] == keys[1]) == (one == other or {one, other} <= {"", "-"})


@pytest.mark.parametrize(("window", "seconds"), [("hour", 3600), ("day", 86_400), ("total", 0), (90, 90)])
def test_an_account_outlives_its_window_and_whatever_is_settled_in_it(window, seconds):
    (account,) = accounts_of(budgets(("a", "session"), window=window), Payer(session="s"), {})
    assert account.window_s == seconds
    assert account.keep_s > seconds + 3 * 3600


def test_a_fleets_account_for_all_time_is_kept():
    assert accounts_of(budgets(("a", "fleet")), Payer(), {})[0].keep_s == 0


def test_a_limit_that_was_set_wins():
    read = budgets(("a", "session"))
    assert accounts_of(read, Payer(session="s"), {"a/session/s": 7})[0].limit == 7
    assert accounts_of(read, Payer(session="s"), {"a": None})[0].limit is None


@given(st.dictionaries(st.sampled_from(["session", "root_session", "agent", "labels"]), st.from_type(object)))
def test_whatever_a_fact_tells_somebody_pays(fact):
    read = budgets(("a", "session"), ("b", "tree"), ("c", "agent"), ("d", "label:team"))
    assert len(accounts_of(read, payer_of(fact), {})) == 4


SLICES = {"slice:ab": "2000000", "slice:cd": "0500000", "team": "red"}


def test_each_slice_that_an_agent_lives_of_is_one_more_account():
    read = budgets(("a", "fleet"))
    found = accounts_of(read, Payer(labels=SLICES), {})
    assert [(one.key, one.limit, one.window_s) for one in found] == [
        ("a/fleet", 1_000_000, 0),
        ("slice/ab", 2_000_000, 0),
        ("slice/cd", 500_000, 0),
    ]
    assert found[1].keep_s == accounts_of(budgets(("s", "session")), Payer(session="s"), {})[0].keep_s
    assert [one.limit for one in accounts_of(config(learn=False), Payer(labels=SLICES), {"slice/ab": 7})] == [
        7,
        500_000,
    ]


@pytest.mark.parametrize("amount", ["", "-1", "1.5", "many", "9" * 17, "\u0663"])
def test_a_label_that_is_no_amount_is_no_slice(amount):
    assert accounts_of(config(learn=False), Payer(labels={"slice:ab": amount}), {}) == []


@given(st.dictionaries(st.text(max_size=300), st.text(max_size=20), max_size=80))
def test_whatever_labels_there_are_slices_are_bounded(labels):
    found = accounts_of(config(learn=False), Payer(labels={f"slice:{k}": v for k, v in labels.items()}), {})
    assert len(found) <= 64
    assert all(len(one.key) < 200 and 0 <= one.limit <= MAX_AMOUNT for one in found)


# ---------------------------------------------------------------------- agents

TEAM = {
    "tools": {"delegate": {"cost": 0.01, "latency_s": 3}},
    "agents": {"senior": {"cost": 2, "latency_s": 60}, "junior": {"cost": 0.5, "latency_s": 20}},
    "alternatives": [{"agents": ["senior", "junior", "intern"]}],
}


def delegation(agent="senior", agents=("senior", "junior", "intern", "clerk"), **fields):
    given = {"agent": agent, "instruction": "Do it", **fields.pop("arguments", {})}
    return call(
        "delegate",
        ("delegate",),
        **{"tool_input": given, "agent_target": agent, "available_agents": agents, **fields},
    )


def test_of_a_delegation_the_available_agents_of_its_group_are_candidates():
    read = config(**TEAM)
    found = candidates_of(read, CostHistory(), delegation())
    assert [(one.name, one.own) for one in found] == [
        ("delegate to senior", True),
        ("delegate to intern", False),
        ("delegate to junior", False),
    ]
    assert found[0].estimate == Estimate(2_010_000, 10_000, 60, 2_000_000)
    assert found[1].estimate == Estimate(10_000, 10_000, 3, 0)
    assert len(candidates_of(read, CostHistory(), delegation(agents=("senior", "clerk")))) == 1
    assert len(candidates_of(read, CostHistory(), delegation("clerk"))) == 1
    assert len(candidates_of(read, CostHistory(), delegation(phase="verify"))) == 1


@pytest.mark.parametrize(
    ("cost_weight", "latency_weight", "first"),
    [(0, 0, "senior"), (1, 0, "junior"), (0, 1, "junior"), (0.5, 0.5, "junior")],
)
def test_the_weights_choose_among_agents(cost_weight, latency_weight, first):
    team = TEAM | {"alternatives": [{"agents": ["senior", "junior"]}]}
    read = config(**team, cost_weight=cost_weight, latency_weight=latency_weight)
    assert candidates_of(read, CostHistory(), delegation())[0].agent == first


def test_a_delegation_with_a_budget_costs_no_more_than_that():
    found = candidates_of(config(**TEAM), CostHistory(), delegation(arguments={"budget": 0.75}))
    assert found[0].estimate == Estimate(760_000, 10_000, 60, 750_000)
    for nonsense in ("much", None, -1, [2]):
        asked = delegation(arguments={"budget": nonsense})
        assert candidates_of(config(**TEAM), CostHistory(), asked)[0].estimate.beyond == 2_000_000


def test_what_an_agents_work_cost_is_learned_and_kept():
    learned = CostHistory()
    for cost in (300_000, 100_000, 200_000, 900_000, 100_000):
        learned.record_delegation("intern", cost, 4.0)
    found = candidates_of(config(**TEAM), learned, delegation("intern"))[0].estimate
    assert found == Estimate(210_000, 10_000, 4.0, 900_000)
    assert CostHistory.from_bytes(learned.to_bytes()) == learned
    unlearned = config(**TEAM, learn=False)
    assert candidates_of(unlearned, learned, delegation("intern"))[0].estimate.beyond == 0
    for agent, cost, seconds in (("", 1, 1.0), ("a", -1, 1.0), ("a", 1, -1.0), ("a" * 257, 1, 1.0)):
        learned.record_delegation(agent, cost, seconds)
    assert set(learned.agent_costs) == set(learned.agent_latencies) == {"intern"}


def began(child, session="root", agent="senior", call="c1", event="delegate:agent_spawned"):
    named = {"sub_session_id": child, "agent_target": agent, "tool_call_id": call}
    return {"event": event, "session": session, **named}


def ended(session="root", call="c1", seconds=7.0, **fields):
    told = {"event": "tool:post", "tool": "delegate", "success": True, "seconds": seconds}
    return {**told, "session": session, "tool_call_id": call, **fields}


def spent(session, cost=None, **fields):
    told = {"event": "tool:post", "tool": "search", "session": session, "tool_call_id": "x", "success": True}
    return told | ({} if cost is None else {"cost": cost}) | fields


def heard(*facts):
    """The delegations that are over after these facts; a tool that tells no cost costs 5."""
    followed = Delegations()
    return [worked for fact in facts if (worked := followed.hear(fact, lambda _tool: 5)) is not None]


def test_a_delegation_costs_what_its_session_and_all_below_it_spent():
    assert heard(
        began("a"),
        spent("root", 1000),  # of its parent
        spent("a", 100),
        spent("a"),
        spent("a", event="tool:error"),
        {"event": "usage", "session": "a", "cost_usd": "0.00002"},
        began("b", "a", "junior", "c2"),
        spent("b", 7),
        ended("a", "c2", 2.0, cost=1),
        spent("b", 1000),  # after its end
        spent("other", 1000),
        ended(),
    ) == [FinishedDelegation("junior", 7, 2.0), FinishedDelegation("senior", 100 + 5 + 5 + 20 + 7 + 1, 7.0)]


def test_delegations_side_by_side_are_told_apart_and_one_that_is_resumed_begins_anew():
    again = began("a", call="c3", event="delegate:agent_resumed")
    assert heard(
        *(began("a"), began("b", agent="junior", call="c2"), spent("b", 2), spent("a", 1)),
        *(ended(call="c2"), ended(), again, spent("a", 9), ended(call="c3")),
    ) == [
        FinishedDelegation("junior", 2, 7.0),
        FinishedDelegation("senior", 1, 7.0),
        FinishedDelegation("senior", 9, 7.0),
    ]


@pytest.mark.parametrize(
    "end",
    [
        ended(success=False),
        ended(event="tool:error"),
        ended(seconds=None),
        ended(call="c9"),
        ended("another"),
        ended(call=None),
    ],
)
def test_of_a_delegation_that_failed_or_began_unheard_nothing_is_learned(end):
    assert heard(began("a"), spent("a", 1), end) == []


def test_of_a_delegation_whose_work_is_not_done_nothing_is_learned():
    told = {**began("a"), "event": "delegate:agent_completed"}
    assert heard(began("a"), spent("a", 1), {**told, "status": "incomplete"}, ended()) == []
    assert heard(began("a"), spent("a", 1), {**told, "status": "success"}, ended()) == [
        FinishedDelegation("senior", 1, 7.0)
    ]


def test_only_so_many_delegations_are_followed_and_a_session_that_is_its_own_parent_is_no_trap():
    followed = Delegations()
    for number in range(MAX_COUNT + 10):
        followed.hear(began(f"s{number}", call=f"c{number}"), int)
    assert followed.hear(ended(call="c9"), lambda _tool: 0) is None
    assert followed.hear(ended(call="c10"), lambda _tool: 0) == FinishedDelegation("senior", 0, 7.0)
    assert len(followed._sessions) == len(followed._calls) == MAX_COUNT - 1
    assert heard(began("a", "a"), spent("a", 1), ended("a")) == [
        FinishedDelegation("senior", 64 + 64 * 5, 7.0)
    ]


@given(st.dictionaries(st.sampled_from([*began("a"), *ended(), "cost", "cost_usd"]), st.from_type(object)))
def test_whatever_a_fact_holds_it_is_followed_or_passed_over(fact):
    for event in ("delegate:agent_spawned", "tool:post", "usage"):
        heard(began("a"), {**ended(), **fact, "event": event}, ended())


# ---------------------------------------------------------------------- words


def test_a_refusal_says_what_it_would_cost_and_what_is_left_and_offers_no_tool_of_another_kind():
    read = config(
        tools=TOOLS | {"mid": {"cost": 0.1}},
        alternatives=[{"tools": ["dear", "mid"]}],
        budgets=[{"name": "daily", "limit": 1, "window": "day"}],
    )
    asked = call(available=("dear", "mid", "cheap", "calc"))
    found = candidates_of(read, CostHistory(), asked)
    answer = Reservation("denied", short="daily/fleet", left=50_000)
    assert refusal(read, CostHistory(), asked, found, answer) == (
        "Over budget: dear would cost up to 0.40 USD, and 0.05 USD is left of the budget daily. "
        "Its equivalents cost too much as well: mid (0.10 USD). "
        "No equivalent is affordable: answer with what you have. "
        "Do not repeat this call for now: the budget is renewed every day."
    )


def test_a_refusal_with_nothing_affordable_says_so():
    read = config(tools=TOOLS, budgets=[{"name": "b", "limit": 1}], currency="EUR")
    asked = call(available=("dear", "cheap"))
    said = refusal(
        read,
        CostHistory(),
        asked,
        candidates_of(read, CostHistory(), asked),
        Reservation("denied", short="b/fleet"),
    )
    assert "0.00 EUR is left of the budget b." in said
    assert "No equivalent is affordable: answer with what you have. Do not repeat this call." in said


def test_a_replacement_that_is_too_dear_is_refused_with_what_could_run_in_its_place():
    read = config(tools=TOOLS, alternatives=EQUIVALENT, budgets=[{"name": "b", "limit": 1}])
    asked = call(available=("a_delete", "cheap", "dear")).model_copy(update={"phase": "verify"})
    found = candidates_of(read, CostHistory(), asked)
    answer = Reservation("denied", short="b/fleet", left=20_000)
    assert "Affordable in its place: cheap (0.02 USD)." in refusal(read, CostHistory(), asked, found, answer)


def test_what_is_said_of_a_delegation_names_the_agent_and_of_a_slice_what_it_is():
    read = config(**TEAM, budgets=[{"name": "b", "limit": 1}])
    found = candidates_of(read, CostHistory(), delegation())
    said = refusal(
        read, CostHistory(), delegation(), found, Reservation("denied", short="slice/ab", left=4_000)
    )
    assert said.startswith(
        "Over budget: delegate to senior would cost up to 2.01 USD, and 0.004 USD is left of what this work "
        "may cost. Its equivalents cost too much as well: delegate to intern (0.01 USD), delegate to junior "
        "(0.51 USD)."
    )
    assert "delegate to junior runs instead, for up to 0.51 USD." in replacement(read, found, found[2])


def test_a_replacement_says_whether_money_or_the_weights_chose():
    poor = config(tools=TOOLS, alternatives=EQUIVALENT)
    found = candidates_of(poor, CostHistory(), call())
    assert replacement(poor, found, found[1]) == (
        "Over budget: dear would cost up to 0.40 USD; cheap runs instead, for up to 0.02 USD."
    )
    thrifty = config(tools=TOOLS, alternatives=EQUIVALENT, cost_weight=1)
    found = candidates_of(thrifty, CostHistory(), call())
    assert replacement(thrifty, found, found[0]) == (
        "cheap (0.02 USD, 5 s) is preferred to its equivalent dear (0.40 USD, 1 s)."
    )
