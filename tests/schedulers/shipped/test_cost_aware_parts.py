"""The pure parts of cost-aware: what is read, paid by whom, and said."""

from functools import partial

import pytest
from cost_aware_calls import EQUIVALENT, TEAM, TOOLS, call, config, delegation
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.money.ledger import Reservation
from toolgate_bus.protocol.money import MAX_AMOUNT
from toolgate_schedulers.shipped.cost_aware import accounts as accounts_module
from toolgate_schedulers.shipped.cost_aware.accounts import Payer, payer_of
from toolgate_schedulers.shipped.cost_aware.estimates import CostHistory
from toolgate_schedulers.shipped.cost_aware.scheduler import candidates_of, refusal, replacement

pytestmark = pytest.mark.pure
accounts_of = partial(accounts_module.accounts_of, now=0.0)

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
        ({}, "top level: is empty"),
        ({"tools": {"a": {"cost": -1}}}, "tools.a.cost: must be an amount of money from 0 to"),
        ({"tools": {"a": {"price": 1}}}, "tools.a.price: unknown key; allowed: cost, latency_s"),
        ({"default": {"latency_s": -1}}, "default.latency_s: Input should be greater"),
        ({"budgets": [{"name": "d"}]}, "budgets.0.limit: Field required"),
        ({"budgets": [{"name": "a b", "limit": 1}]}, "budgets.0.name: String should match"),
        (
            {"budgets": [{"name": "d", "limit": 1, "level": "team"}]},
            "budgets.0.level: must be session, own-session, tree, agent, fleet or label:NAME",
        ),
        (
            {"budgets": [{"name": "d", "limit": 1, "window": "fortnight"}]},
            "budgets.0.window: must be hour, day, week, month, total, or whole seconds",
        ),
        ({"budgets": [{"name": "d", "limit": 1, "window": 0}]}, "budgets.0.window: must be hour"),
        ({"budgets": [{"name": "d", "limit": 1}] * 2}, "budgets: d is the name of two budgets"),
        ({"budgets": [{"name": "slice", "limit": 1}]}, "budgets: slice is reserved"),
        ({"agents": {"a": {"price": 1}}}, "agents.a.price: unknown key; allowed: cost, latency_s"),
        ({"cost_weight": 1.1}, "cost_weight: Input should be less than or equal to 1"),
        ({"latency_weight": -0.1}, "latency_weight: Input should be greater than or equal to 0"),
        ({"cost_wieght": 1}, "did you mean cost_weight?"),
        ({"learn": "yes"}, "learn: Input should be a valid boolean"),
        ({"charge_llm": 1}, "charge_llm: Input should be a valid boolean"),
        ({"currency": "x" * 17}, "currency: String should have at most 16"),
        ({"alternatives": [{"tools": ["a"]}]}, "alternatives.0.tools: "),
        ({"alternatives": [{"tools": ["a", "a"]}]}, "must be a list of different tool names"),
        ({"alternatives": [{"tools": ["a", "b"]}, {"tools": ["b", "c"]}]}, "b is in two groups"),
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


# ---------------------------------------------------------------------- accounts


def budgets(*pairs, **fields):
    return config(budgets=[{"name": name, "level": level, "limit": 1, **fields} for name, level in pairs])


def test_each_level_has_an_account_of_its_own():
    levels = ("fleet", "session", "tree", "agent", "label:team", "own-session")
    read = budgets(*((f"b{number}", level) for number, level in enumerate(levels)))
    asked = call(session="s-1", root_session="s-0", agent="anna", labels={"team": "red", "env": "x"})
    assert [one.key for one in accounts_of(read, Payer.of(asked), {})] == [
        "b0/fleet",
        "b1/session/s-0",
        "b2/tree/s-0",
        "b3/agent/anna",
        "b4/label:team/red",
        "b5/own-session/s-1",
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


def test_what_works_for_an_agent_spends_of_its_budget_too():
    read = budgets(("a", "agent"), ("b", "fleet"))
    keys = ["a/agent/scout", "a/agent/boss", "a/agent/clerk", "b/fleet"]
    below = {"agent": "scout", "lineage": ["boss", "clerk", "scout"]}
    assert [one.key for one in accounts_of(read, payer_of(below), {})] == keys
    asked = call(agent="scout", lineage=("boss", "clerk", "scout"))
    assert [one.key for one in accounts_of(read, Payer.of(asked), {})] == keys


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
        "cheap: 0.02 USD, 5 s; it runs instead of dear: 0.40 USD, 1 s."
    )


# ---------------------------------------------------------------------- windows of the calendar


@pytest.mark.parametrize(
    ("window", "zone", "words"),
    [
        ("month", "UTC", "month"),
        ("week", "Europe/Berlin", "week (Europe/Berlin)"),
        ("day", "Asia/Tokyo", "day (Asia/Tokyo)"),
    ],
)
def test_a_budget_of_the_calendar_has_a_window_for_each(window, zone, words):
    read = config(budgets=[{"name": "a", "limit": 5, "window": window, "time_zone": zone}])
    calendar = read.budgets[0].calendar
    assert calendar.words == words
    number = calendar.number_at(1.8e9)
    (account,) = accounts_module.accounts_of(read, Payer(), {}, 1.8e9)
    assert account.window_s == -number
    assert account.keep_s > calendar.max_seconds
    later = calendar.starts_at(number + 1)
    assert accounts_module.accounts_of(read, Payer(), {}, later)[0].window_s == -number - 1


def test_a_day_without_a_zone_is_counted_by_the_servers_clock():
    assert config(budgets=[{"name": "a", "limit": 5, "window": "day"}]).budgets[0].calendar is None


@pytest.mark.parametrize("window", ["hour", "total", 90])
def test_a_zone_goes_with_the_calendar_alone(window):
    with pytest.raises(ConfigError, match="goes with window: day, week or month"):
        config(budgets=[{"name": "a", "limit": 5, "window": window, "time_zone": "Europe/Berlin"}])


def test_the_llm_is_told_that_a_month_is_waited_for():
    read = config(tools={"a": {"cost": 9}}, budgets=[{"name": "m", "limit": 5, "window": "month"}])
    asked = call("a")
    candidates = candidates_of(read, CostHistory(), asked)
    said = refusal(read, CostHistory(), asked, candidates, Reservation("denied", short="m/fleet", left=5))
    assert "the budget is renewed every month" in said
