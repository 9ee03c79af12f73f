"""Delegations, as cost-aware sees them: candidates, their costs, and what their sessions spent."""

import pytest
from cost_aware_calls import TEAM, config, delegation
from hypothesis import given
from hypothesis import strategies as st
from toolgate_schedulers.shipped.cost_aware.delegations import MAX_COUNT, Delegations, FinishedDelegation
from toolgate_schedulers.shipped.cost_aware.estimates import CostHistory, Estimate
from toolgate_schedulers.shipped.cost_aware.scheduler import candidates_of

pytestmark = pytest.mark.pure


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
        learned.record_delegation("intern", cost)
    found = candidates_of(config(**TEAM), learned, delegation("intern"))[0].estimate
    assert found == Estimate(210_000, 10_000, 3, 900_000)
    assert CostHistory.from_bytes(learned.to_bytes()) == learned
    unlearned = config(**TEAM, learn=False)
    assert candidates_of(unlearned, learned, delegation("intern"))[0].estimate.beyond == 0
    for agent, cost in (("", 1), ("a", -1), ("a" * 257, 1)):
        learned.record_delegation(agent, cost)
    assert set(learned.agent_costs) == {"intern"}


def began(child, session="root", agent="senior", call="c1", event="delegate:agent_spawned"):
    named = {"sub_session_id": child, "agent_target": agent, "tool_call_id": call}
    return {"event": event, "session": session, **named}


def ended(session="root", call="c1", **fields):
    told = {"event": "tool:post", "tool": "delegate", "success": True}
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
        ended("a", "c2", cost=1),
        spent("b", 1000),  # after its end
        spent("other", 1000),
        ended(),
    ) == [FinishedDelegation("junior", 7), FinishedDelegation("senior", 100 + 5 + 5 + 20 + 7 + 1)]


def test_delegations_side_by_side_are_told_apart_and_one_that_is_resumed_begins_anew():
    again = began("a", call="c3", event="delegate:agent_resumed")
    assert heard(
        *(began("a"), began("b", agent="junior", call="c2"), spent("b", 2), spent("a", 1)),
        *(ended(call="c2"), ended(), again, spent("a", 9), ended(call="c3")),
    ) == [
        FinishedDelegation("junior", 2),
        FinishedDelegation("senior", 1),
        FinishedDelegation("senior", 9),
    ]


@pytest.mark.parametrize(
    "end",
    [
        ended(success=False),
        ended(event="tool:error"),
        ended(call="c9"),
        ended("another"),
        ended(call=None),
    ],
)
def test_of_a_delegation_that_failed_or_began_unheard_nothing_is_learned(end):
    assert heard(began("a"), spent("a", 1), end) == []


@pytest.mark.parametrize("status", ["incomplete", "budget_exhausted"])
def test_of_a_delegation_whose_work_is_not_done_nothing_is_learned(status):
    told = {**began("a"), "event": "delegate:agent_completed"}
    assert heard(began("a"), spent("a", 1), {**told, "status": status}, ended()) == []
    assert heard(began("a"), spent("a", 1), {**told, "status": "success"}, ended()) == [
        FinishedDelegation("senior", 1)
    ]


def test_only_so_many_delegations_are_followed_and_a_session_that_is_its_own_parent_is_no_trap():
    followed = Delegations()
    for number in range(MAX_COUNT + 10):
        followed.hear(began(f"s{number}", call=f"c{number}"), int)
    assert followed.hear(ended(call="c9"), lambda _tool: 0) is None
    assert followed.hear(ended(call="c10"), lambda _tool: 0) == FinishedDelegation("senior", 0)
    assert len(followed._sessions) == len(followed._calls) == MAX_COUNT - 1
    assert heard(began("a", "a"), spent("a", 1), ended("a")) == [FinishedDelegation("senior", 64 + 64 * 5)]


@given(st.dictionaries(st.sampled_from([*began("a"), *ended(), "cost", "cost_usd"]), st.from_type(object)))
def test_whatever_a_fact_holds_it_is_followed_or_passed_over(fact):
    for event in ("delegate:agent_spawned", "tool:post", "usage"):
        heard(began("a"), {**ended(), **fact, "event": event}, ended())
