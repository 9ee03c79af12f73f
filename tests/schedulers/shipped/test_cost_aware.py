"""cost-aware on a ledger in memory: what passes, what is replaced, what is refused, what is paid."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.config.check import check
from toolgate_bus.errors import BusDown
from toolgate_bus.ledger.money.ledger import Account
from toolgate_bus.ledger.money.limits import Limits, read_budgets
from toolgate_bus.ledger.money.settlement import step_of
from toolgate_bus.state.shared import make_shared_state
from toolgate_schedulers import Continue, Deny, Modify, ToolSelecting
from toolgate_schedulers.author.forms import as_scheduler
from toolgate_schedulers.author.scheduler import asking
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.estimates import CostHistory
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware

pytestmark = pytest.mark.pure

FORTY = {"tools": {"dear": {"cost": 40}, "cheap": {"cost": 5}}}
FIFTY = {"budgets": [{"name": "b", "limit": 50}]}
EQUIVALENT = {"alternatives": [{"tools": {"dear": {}, "cheap": {"arguments": {"q": "$.query"}}}}]}
UNIT = 1_000_000


def call(number=0, tool="dear", available=("dear", "cheap"), **fields):
    return ToolSelecting(
        id=f"{number:032x}", tool_name=tool, tool_input={"query": "x"}, available_tools=available, **fields
    )


class World:
    """Replicas on one ledger; their own tasks are not run, so that a test does each step."""

    def __init__(self, **fields):
        self.shared = make_shared_state()
        self.config = check(CostAwareConfig, fields, "cost.yaml")
        self.one, self.other = self.replica(), self.replica()

    def replica(self):
        made = CostAware(self.config)
        made.use(self.shared)
        return made

    @property
    def money(self):
        return {
            one.key: (one.spent / UNIT, one.reserved / UNIT) for one in self.shared.ledger.book.balances()
        }


async def test_of_three_calls_of_40_a_budget_of_50_lets_one_pass():
    """The published scheduler lets all three pass."""
    world = World(**FORTY, **FIFTY)
    verdicts = await asyncio.gather(*(world.one.decide(call(number)) for number in range(3)))
    assert [verdict.action for verdict in verdicts] == ["continue", "deny", "deny"]
    assert world.money == {"b/fleet": (0, 40)}


async def test_the_published_cost_of_every_call_is_not_ours():
    """The published scheduler reads a key that is not there, so that every call costs 1.0."""
    world = World(tools={"a": {"cost": 0.25}, "b": {"cost": 3}}, budgets=[{"name": "b", "limit": 10}])
    for number, tool in enumerate("ab"):
        await world.one.decide(call(number, tool, ("a", "b")))
    assert world.money == {"b/fleet": (0, 3.25)}


async def test_a_budget_is_not_renewed_at_the_end_of_a_turn():
    """The published scheduler begins anew with every turn."""
    world = World(**FORTY, budgets=[{"name": "each", "level": "session", "limit": 50}])
    for number in range(3):
        await world.one.decide(call(number, session="s-1", iteration=number))
        await world.shared.ledger.settle(f"{number:032x}", None)
    assert world.money == {"each/session/s-1": (40, 0)}
    assert await world.one.decide(call(9, session="s-2")) == Continue()


async def test_over_budget_the_cheaper_equivalent_runs_with_mapped_arguments():
    world = World(**FORTY, **FIFTY, **EQUIVALENT)
    assert await world.one.decide(call(0)) == Continue()
    verdict = await world.one.decide(call(1))
    assert isinstance(verdict, Modify)
    assert (verdict.tool, verdict.arguments) == ("cheap", {"q": "x"})
    assert "Over budget: dear would cost up to 40.00 USD" in verdict.reason
    assert world.money == {"b/fleet": (0, 45)}


async def test_over_budget_with_no_affordable_equivalent_the_llm_is_told_why():
    world = World(**FORTY, budgets=[{"name": "b", "limit": 3}], **EQUIVALENT)
    verdict = await world.one.decide(call(0, available=("dear", "cheap", "calc")))
    assert isinstance(verdict, Deny)
    for words in ("dear would cost up to 40.00 USD", "3.00 USD is left", "cheap (5.00 USD)", "No equivalent"):
        assert words in verdict.reason
    assert "calc" not in verdict.reason


async def test_the_tightest_of_several_budgets_decides():
    world = World(
        **FORTY,
        budgets=[{"name": "all", "limit": 100}, {"name": "each", "level": "session", "limit": 50}],
    )
    for number, session in enumerate(("s-1", "s-1", "s-2", "s-3")):
        await world.one.decide(call(number, session=session))
    assert world.money == {
        "all/fleet": (0, 80),
        "each/session/s-1": (0, 40),
        "each/session/s-2": (0, 40),
        "each/session/s-3": (0, 0),
    }


async def test_a_budget_without_a_limit_only_counts():
    world = World(**FORTY, budgets=[{"name": "b", "limit": None}])
    verdicts = [await world.one.decide(call(number)) for number in range(9)]
    assert {verdict.action for verdict in verdicts} == {"continue"}
    assert world.money == {"b/fleet": (0, 360)}


async def test_a_call_whose_reservation_was_lost_is_paid_by_the_budgets_of_the_fleet():
    budgets = [{"name": "b", "limit": 100}, {"name": "each", "level": "session", "limit": 100}]
    world = World(**FORTY, budgets=budgets)
    fact = {"event": "tool:post", "decision_id": "d", "tool": "dear"}
    step = step_of(fact, world.one.otherwise)
    assert [one.outcome for one in await world.shared.ledger.take([step])] == ["charged"]
    assert world.money == {"b/fleet": (40, 0)}
    assert World(**FORTY, **EQUIVALENT, cost_weight=1).one.otherwise(fact) is None


async def test_with_weights_alone_nothing_is_denied_and_nothing_counted():
    world = World(**FORTY, **EQUIVALENT, cost_weight=0.6, latency_weight=0.4)
    verdicts = [await world.one.decide(call(number)) for number in range(20)]
    assert {(verdict.action, verdict.tool) for verdict in verdicts} == {("modify", "cheap")}
    assert await world.one.decide(call(99, "other", ("other",))) == Continue()
    assert world.money == {}


async def test_what_costs_nothing_does_not_touch_the_ledger():
    world = World(**FORTY, **FIFTY)
    assert await world.one.decide(call(0, "calc", ("calc",))) == Continue()
    assert world.money == {}
    assert world.shared.ledger.book.records == {}


async def test_a_question_that_two_replicas_are_asked_is_reserved_for_once_and_answered_alike():
    world = World(**FORTY, **FIFTY, **EQUIVALENT)
    first = [await world.one.decide(call(number)) for number in range(2)]
    again = [await world.other.decide(call(number)) for number in range(2)]
    assert first == again
    assert world.money == {"b/fleet": (0, 45)}


async def test_another_schedulers_replacement_is_reserved_for_instead():
    world = World(**FORTY, **FIFTY)
    await world.one.decide(call(0))
    assert await world.other.decide(call(0, "cheap", phase="verify")) == Continue()
    assert world.money == {"b/fleet": (0, 5)}


async def test_another_schedulers_replacement_that_is_too_dear_is_refused():
    world = World(**FORTY, **FIFTY, **EQUIVALENT)
    await world.one.decide(call(0, "cheap"))
    await world.one.decide(call(1))
    verdict = await world.one.decide(call(0, "dear", phase="verify"))
    assert isinstance(verdict, Deny)
    assert "10.00 USD is left" in verdict.reason


async def test_a_replacement_that_costs_nothing_gives_back_what_was_held():
    world = World(**FORTY, **FIFTY)
    await world.one.decide(call(0))
    await world.one.decide(call(0, "calc", phase="verify"))
    assert world.money == {"b/fleet": (0, 0)}


async def test_a_decision_that_is_over_is_not_let_through():
    world = World(**FORTY, **FIFTY)
    await world.shared.ledger.release(call(0).id)
    assert isinstance(await world.one.decide(call(0)), Deny)
    assert world.money == {}


async def test_a_ledger_that_does_not_answer_is_a_failure_of_the_scheduler():
    class Away:
        async def reserve(self, *_):
            raise BusDown("away")

    world = World(**FORTY, **FIFTY)
    world.one.use(SimpleNamespace(ledger=Away(), store=world.shared.store, book="budget"))
    with pytest.raises(BusDown):
        await world.one.decide(call(0))


async def test_the_orchestrator_that_asks_owns_the_reservation():
    world = World(**FORTY, **FIFTY)
    asking.set("orch-7")
    await world.one.decide(call(0))
    assert [one.owner for one in await world.shared.ledger.open()] == ["orch-7"]


# ---------------------------------------------------------------------- agents

TEAM = {
    "tools": {"delegate": {"cost": 1}, "dear": {"cost": 40}},
    "agents": {"senior": {"cost": 30}, "junior": {"cost": 10}},
    "alternatives": [{"agents": ["senior", "junior"]}],
}


def delegation(number=0, agent="senior", **fields):
    given = {"agent_target": agent, "available_agents": ("senior", "junior"), **fields}
    return call(number, "delegate", ("delegate",), **given)


async def test_for_an_agents_work_enough_must_be_left_and_only_the_tools_own_price_is_held():
    world = World(**TEAM, budgets=[{"name": "b", "limit": 35}])
    assert await world.one.decide(delegation(0)) == Continue()
    assert world.money == {"b/fleet": (0, 1)}
    # Side by side too, on whichever replica: what one looks for is not gone for the other.
    reserve = world.shared.ledger.reserve

    async def slowly(*words):
        await asyncio.sleep(0)  # as on a server
        return await reserve(*words)

    world.shared.ledger.reserve = slowly
    replicas = [(1, world.one), (2, world.other), (3, world.one)]
    verdicts = await asyncio.gather(*(replica.decide(delegation(number)) for number, replica in replicas))
    assert verdicts == [Continue()] * 3
    assert world.money == {"b/fleet": (0, 4)}
    await world.shared.ledger.charge("usage-1", 15 * UNIT, [Account("b/fleet", 35 * UNIT)])
    verdict = await world.one.decide(delegation(4))
    assert (verdict.tool, verdict.agent_target, verdict.arguments) == ("delegate", "junior", None)
    assert "delegate to senior would cost up to 31.00 USD; delegate to junior runs instead" in verdict.reason
    await world.shared.ledger.charge("usage-2", 10 * UNIT, [Account("b/fleet", 35 * UNIT)])
    refused = await world.one.decide(delegation(5))
    assert isinstance(refused, Deny)
    assert "delegate to senior would cost up to 31.00 USD, and 5.00 USD is left" in refused.reason


async def test_a_delegation_asked_about_twice_is_answered_alike_and_held_for_once():
    world = World(**TEAM, budgets=[{"name": "b", "limit": 35}])
    await world.shared.ledger.charge("usage-1", 15 * UNIT, [Account("b/fleet", 35 * UNIT)])
    first = await world.one.decide(delegation())
    assert await world.other.decide(delegation()) == first
    assert world.money == {"b/fleet": (15, 1)}
    await world.shared.ledger.settle(delegation().id, None)
    assert world.money == {"b/fleet": (16, 0)}
    assert isinstance(await world.one.decide(delegation()), Deny)


async def test_another_schedulers_choice_of_an_agent_is_looked_at_anew():
    world = World(**TEAM, budgets=[{"name": "b", "limit": 12}])
    assert (await world.one.decide(delegation())).agent_target == "junior"
    assert await world.one.decide(delegation(agent="junior", phase="verify")) == Continue()
    assert world.money == {"b/fleet": (0, 1)}
    await world.one.decide(delegation(1, "junior"))
    assert (await world.one.decide(delegation(1, "senior", phase="verify"))).action == "deny"


async def test_what_delegations_cost_is_learned_from_the_facts():
    world = World(**TEAM | {"agents": {}}, cost_weight=1, budgets=[{"name": "b", "limit": 100}])
    for agent, cost in (("senior", 30), ("junior", 10)) * 5:
        told = {"session": "r", "tool_call_id": "c", "sub_session_id": "s", "agent_target": agent}
        await world.one.hear({"event": "delegate:agent_spawned", **told})
        await world.one.hear({"event": "tool:post", "session": "s", "tool": "dear", "cost": cost * UNIT})
        done = {"tool": "delegate", "seconds": 0.5, "success": True}
        await world.one.hear({"event": "tool:post", "session": "r", "tool_call_id": "c", **done})
    await world.one.look()
    await world.other.look()
    assert world.other.learned.agent_costs["senior"] == (30 * UNIT,) * 5
    assert (await world.other.decide(delegation())).agent_target == "junior"
    # Of a tool that tells no cost the price counts.
    await world.one.hear({"event": "delegate:agent_spawned", **told})
    await world.one.hear({"event": "tool:post", "session": "s", "tool": "dear"})
    await world.one.hear({"event": "tool:post", "session": "r", "tool_call_id": "c", **done})
    assert world.one.learned.agent_costs["junior"][-1] == 40 * UNIT


# ---------------------------------------------------------------------- slices


async def test_of_a_slice_an_agent_and_all_below_it_live_and_the_budgets_hold_as_well():
    world = World(**FORTY, budgets=[{"name": "b", "limit": 60}])
    of = {"slice:ab": str(45 * UNIT)}
    assert await world.one.decide(call(0, labels=of)) == Continue()
    refused = await world.one.decide(call(1, labels=of | {"slice:cd": str(90 * UNIT)}))
    assert "5.00 USD is left of what this work may cost" in refused.reason
    assert await world.one.decide(call(2, "cheap", labels=of)) == Continue()
    assert world.money["slice/ab"] == (0, 45)
    await world.shared.ledger.settle(call(0).id, 0)
    assert world.money["slice/ab"] == (0, 5)
    assert await world.one.decide(call(3)) == Continue()
    refused = await world.one.decide(call(4, labels=of))
    assert "15.00 USD is left of the budget b" in refused.reason


async def test_a_slice_holds_without_any_budget_and_llms_are_charged_to_it():
    world = World(**FORTY, charge_llm=True)
    of = {"slice:ab": str(41 * UNIT)}
    await world.one.hear(USAGE | {"labels": of, "cost_usd": 1.5})
    assert world.money == {"slice/ab": (1.5, 0)}
    assert (await world.one.decide(call(0, labels=of))).action == "deny"
    assert await world.one.decide(call(1)) == Continue()


# ---------------------------------------------------------------------- limits set by hand


async def test_a_limit_that_was_set_holds_from_the_next_look_on():
    world = World(**FORTY, **FIFTY)
    limits = Limits(world.shared.store, "budget")
    await limits.put("b", 100 * UNIT)
    await world.one.look()
    assert [(await world.one.decide(call(number))).action for number in range(3)] == [
        "continue",
        "continue",
        "deny",
    ]
    await limits.put("b/fleet", 0)
    await world.one.look()
    assert (await world.one.decide(call(4))).action == "deny"


# ---------------------------------------------------------------------- facts


async def test_what_one_replica_learns_the_others_know_and_a_new_one_as_well():
    world = World(default={"cost": 40}, **FIFTY)
    for _ in range(9):
        await world.one.hear(
            {"event": "tool:post", "tool": "dear", "cost": 2 * UNIT, "seconds": 0.5, "success": True}
        )
    await world.one.look()
    await world.other.look()
    await world.other.decide(call(0))
    assert world.money == {"b/fleet": (0, 2)}
    newcomer = world.replica()
    await newcomer.look()
    assert newcomer.learned == world.one.learned


async def test_what_was_learned_since_the_last_look_is_written_down_at_the_end():
    world = World(**FORTY, **FIFTY)
    await world.one.hear({"event": "tool:post", "tool": "dear", "cost": 2})
    await world.one.stop()
    await world.other.look()
    assert world.other.learned.costs == {"dear": (2,)}


USAGE = {
    "event": "usage",
    "cost_usd": "0.30",
    "session": "s-1",
    "agent": "anna",
    "labels": {"team": "red"},
    "orchestrator": "o",
    "seq": 4,
}


async def test_what_an_llm_costs_is_charged_once_to_the_same_budgets():
    levels = {"s": "session", "t": "tree", "a": "agent", "l": "label:team", "f": "fleet"}
    world = World(
        budgets=[{"name": name, "level": level, "limit": 1} for name, level in levels.items()],
        charge_llm=True,
    )
    for replica in (world.one, world.other, world.one):
        await replica.hear(USAGE)
    spent = {key: money[0] for key, money in world.money.items()}
    assert spent == dict.fromkeys(
        ("s/session/s-1", "t/tree/s-1", "a/agent/anna", "l/label:team/red", "f/fleet"), 0.3
    )


@pytest.mark.parametrize(
    ("switch", "fact"),
    [
        (False, USAGE),
        (True, USAGE | {"cost_usd": None}),
        (True, USAGE | {"cost_usd": -1}),
        (True, USAGE | {"seq": "4"}),
    ],
)
async def test_otherwise_nothing_is_charged(switch, fact):
    world = World(**FIFTY, charge_llm=switch)
    await world.one.hear(fact)
    assert world.money == {}


@given(st.dictionaries(st.sampled_from(["event", *USAGE, "tool", "cost", "seconds"]), st.from_type(object)))
def test_whatever_a_fact_holds_it_is_read_or_passed_over(fact):
    world = World(**FIFTY, charge_llm=True)
    for event in ({}, {"event": "usage"}, {"event": "tool:post"}):
        asyncio.run(world.one.hear(USAGE | fact | event))


async def test_once_started_it_settles_from_the_facts_until_it_is_stopped(wait_until):
    world = World(**FORTY, **FIFTY)
    context = SimpleNamespace(shared=world.shared, replica="r1")
    await world.one.start(context)
    await world.one.decide(call(0))
    world.shared.facts.tell(
        "tool:post", decision_id=call(0).id, tool="dear", cost=25 * UNIT, seconds=0.1, success=True
    )
    await wait_until(lambda: world.money == {"b/fleet": (25, 0)})
    await world.one.stop()
    assert (await read_budgets(world.shared.store, "budget"))["b"].limit == 50 * UNIT
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_budgets_that_a_server_forgot_are_written_down_again():
    world = World(**FORTY, **FIFTY)
    for _ in range(2):
        await world.one.look()
        assert "b" in await read_budgets(world.shared.store, "budget")
        for key in await world.shared.store.keys("budget:described"):
            await world.shared.store.delete(key)


async def test_what_was_learned_and_a_server_forgot_is_written_down_again():
    world = World(**FORTY, **FIFTY)
    await world.one.hear({"event": "tool:post", "tool": "dear", "cost": 25 * UNIT, "seconds": 0.1})
    await world.one.look()
    await world.other.look()
    assert world.other.learned == world.one.learned != CostHistory()
    await world.shared.store.delete("budget:learned")
    for _ in range(2):
        await world.other.look()
    newcomer = world.replica()
    await newcomer.look()
    assert newcomer.learned == world.one.learned


async def test_a_fault_while_keeping_does_not_end_the_keeping(wait_until):
    world = World(**FORTY, **FIFTY)
    add, faults = world.shared.store.add, [ValueError("a fault")]

    async def faulty(*words):
        if faults:
            raise faults.pop()
        return await add(*words)

    world.shared.store.add = faulty
    await world.one.start(SimpleNamespace(shared=world.shared, replica="r1"))
    await world.one.decide(call(0))
    world.shared.facts.tell("tool:unused", decision_id=call(0).id)
    await wait_until(lambda: not faults and world.money == {"b/fleet": (0, 0)})
    await world.one.stop()


def test_it_is_a_scheduler_that_stands_above_the_router():
    made = as_scheduler(CostAware(check(CostAwareConfig, FIFTY, "f")))
    assert (made.name, made.priority, made.tools) == ("cost-aware", 20, ("*",))
