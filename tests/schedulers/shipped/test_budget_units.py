"""Budgets of calls, seconds, tokens, requests, and of what an argument says; ask and pause at the limit."""

import time

import pytest
from cost_aware_calls import config
from questions import question_about
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol import codec
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.protocol.money import format_amount, read_amount
from toolgate_bus.protocol.packing import NUMBERS, Item
from toolgate_bus.state.shared import make_shared_state
from toolgate_schedulers.author.scheduler import SchedulerContext, asking
from toolgate_schedulers.shipped.cost_aware.measures import costs_of
from toolgate_schedulers.shipped.cost_aware.paused_calls import DEAD_S, PausedCalls
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware
from toolgate_schedulers.worker.holds import ReplyTo, StoredHolds

pytestmark = pytest.mark.pure
REFUNDS = {
    "name": "refunds",
    "unit": "EUR",
    "amount": "$.amount",
    "tools": ["refund"],
    "level": "argument:customer",
    "limit": 1000,
    "window": "day",
}
HIDDEN = "⟦toolgate:redacted:4aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa⟧"


class World:
    """A scheduler with a ledger of its own; each question is another decision."""

    def __init__(self, *budgets, **fields):
        self.shared = make_shared_state()
        self.scheduler = CostAware(config(budgets=list(budgets), **fields))
        self.scheduler.use(self.shared)
        self.asked = 0

    def question(self, tool="search", **fields):
        self.asked += 1
        return ToolSelecting(id=f"{self.asked:032x}", tool_name=tool, **fields)

    async def ask(self, tool="search", **fields):
        return await self.scheduler.decide(self.question(tool, **fields))

    async def actions(self, many, tool="search", **fields):
        return [(await self.ask(tool, **fields)).action for _ in range(many)]

    async def settle(self, number, event="tool:post", **fact):
        told = {"event": event, **fact}
        costs = self.scheduler.costs_of(told)
        await self.shared.ledger.settle(f"{number:032x}", self.scheduler.cost_of(told), costs)

    async def spent(self):
        return {one.key: one.spent for one in await self.shared.ledger.balances() if one.spent}


async def test_a_budget_of_calls_counts_calls_of_tools_that_cost_nothing():
    world = World({"name": "often", "unit": "calls", "limit": 2}, llm={})
    assert await world.actions(3) == ["continue", "continue", "deny"]
    assert (await world.ask()).reason.startswith(
        "Over budget: search would take up to 1 call, and the budget often has 0 calls left."
    )
    assert await world.actions(1, "llm:request", tool_input={"provider": "a"}) == ["continue"]


async def test_a_budget_counts_the_calls_of_its_tools_alone():
    world = World({"name": "mails", "unit": "calls", "tools": ["mail_*"], "limit": 1})
    assert await world.actions(3) == ["continue"] * 3
    assert await world.actions(2, "mail_send") == ["continue", "deny"]
    assert await world.actions(1, "ｍａｉｌ_send") == ["deny"]


async def test_money_of_some_tools_is_a_budget_of_its_own():
    world = World(
        {"name": "all", "limit": 10},
        {"name": "web", "tools": ["search"], "limit": 1},
        tools={"search": {"cost": 0.6}, "crawl": {"cost": 0.6}},
    )
    assert await world.actions(2) == ["continue", "deny"]
    assert await world.actions(1, "crawl") == ["continue"]
    await world.settle(1, tool="search", cost=None)
    assert await world.spent() == {"all/fleet": 600_000, "web/fleet": 600_000}


async def test_an_equivalent_runs_where_the_calls_of_the_first_are_used_up():
    world = World(
        {"name": "often", "unit": "calls", "tools": ["search"], "limit": 1},
        alternatives=[{"tools": ["search", "cheap"]}],
    )
    tools = ("search", "cheap")
    assert [(await world.ask(available_tools=tools)).action for _ in range(2)] == ["continue", "modify"]


async def test_seconds_are_settled_by_how_long_the_call_took():
    world = World({"name": "long", "unit": "seconds", "limit": 10}, tools={"search": {"latency_s": 4}})
    assert await world.actions(3) == ["continue", "continue", "deny"]
    await world.settle(1, tool="search", seconds=1.5)
    assert await world.spent() == {"long/fleet": 1_500_000}
    assert await world.actions(1) == ["continue"]
    assert await world.actions(2, "unknown") == ["deny", "deny"]  # a second is reserved, half a one is left


async def test_seconds_are_reserved_as_nine_in_ten_calls_took_them():
    world = World({"name": "long", "unit": "seconds", "limit": 10})
    for seconds in (1, 2, 3, 4, 5, 6, 7, 8, 9, 100):
        world.scheduler.learned.hear(
            {"event": "tool:post", "tool": "search", "seconds": seconds, "success": True}
        )
    assert await world.actions(2) == ["continue", "deny"]
    assert [one.reserved for one in await world.shared.ledger.balances()] == [9_000_000]


async def test_tokens_and_requests_are_reserved_by_the_estimate_and_settled_by_the_usage():
    world = World(
        {"name": "tokens", "unit": "tokens", "limit": 5000},
        {"name": "requests", "unit": "requests", "limit": 2},
        llm={},
    )
    asked = {"provider": "a", "model": "m", "input_tokens": 100, "max_output_tokens": 3000}
    assert await world.actions(2, "llm:request", tool_input=asked) == ["continue", "deny"]
    await world.settle(1, "usage", input_tokens=90, output_tokens=300, cache_read_tokens=10)
    assert await world.spent() == {"tokens/fleet": 400, "requests/fleet": 1}
    assert await world.actions(2, "llm:request", tool_input=asked) == ["continue", "deny"]


async def test_an_argument_says_how_much_for_each_of_those_that_another_names():
    world = World(REFUNDS)
    ann = {"tool_input": {"amount": 900.25, "customer": "ann"}}
    assert await world.actions(2, "refund", **ann) == ["continue", "deny"]
    assert (await world.ask("refund", **ann)).reason.startswith(
        "Over budget: refund would take up to 900.25 EUR, and the budget refunds has 99.75 EUR left."
    )
    assert await world.actions(1, "refund", tool_input={"amount": "99.75", "customer": "ann"}) == ["continue"]
    assert await world.actions(1, "refund", tool_input={"amount": 900, "customer": 7}) == ["continue"]
    await world.settle(1, tool="refund")
    assert await world.spent() == {"refunds/argument:customer/ann": 900_250_000}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "is missing"),
        ({"amount": None}, "is missing"),
        ({"amount": True}, "is not a number"),
        ({"amount": "1e3"}, "is not a number"),
        ({"amount": "1,000"}, "is not a number"),
        ({"amount": [1]}, "is not a number"),
        ({"amount": -1}, "is negative"),
        ({"amount": float("-inf")}, "is negative"),
        ({"amount": float("nan")}, "is not a number"),
        ({"amount": float("inf")}, "is too large"),
        ({"amount": 10**40}, "is too large"),
        ({"amount": HIDDEN}, "is hidden or cut off"),
        ({"⟦arguments⟧": HIDDEN}, "is hidden or cut off"),
    ],
)
async def test_what_cannot_be_read_denies_and_never_counts_as_nothing(given, why):
    world = World({**REFUNDS, "level": "fleet", "limit": None})
    verdict = await world.ask("refund", tool_input=given)
    assert (verdict.action, verdict.rule_name) == ("deny", "refunds")
    assert why in verdict.reason
    assert await world.shared.ledger.open() == []


@pytest.mark.parametrize("given", [{}, {"customer": ""}, {"customer": 1.5}, {"customer": HIDDEN}])
async def test_an_account_that_cannot_be_named_denies(given):
    assert await World(REFUNDS).actions(1, "refund", tool_input={"amount": 1, **given}) == ["deny"]


async def test_a_path_that_can_be_read_in_two_ways_denies():
    world = World({**REFUNDS, "level": "fleet", "amount": "$.order.amount"})
    two = {"order.amount": 5000, "order": {"amount": 1}}
    assert await world.actions(1, "refund", tool_input=two) == ["deny"]
    assert await world.actions(1, "refund", tool_input={"order": {"amount": 5}}) == ["continue"]


async def test_beyond_a_limit_a_person_is_asked_but_not_beyond_one_that_denies():
    world = World(
        {"name": "often", "unit": "calls", "limit": 1, "at_limit": "ask"},
        {"name": "hard", "unit": "calls", "limit": 2},
    )
    first, asked, denied = [await world.ask() for _ in range(3)]
    assert (first.action, asked.action, denied.action) == ("continue", "ask_user", "deny")
    assert asked.prompt.endswith("Run it anyway, and book it above the limit of often/fleet?")
    await world.settle(2, tool="search")
    assert await world.spent() == {"often/fleet": 1, "hard/fleet": 1}


async def test_a_person_is_asked_about_the_call_itself_whichever_of_its_equivalents_is_preferred():
    world = World(
        {"name": "often", "unit": "calls", "limit": 0, "at_limit": "ask"},
        {"name": "all", "limit": 5},
        tools={"dear": {"cost": 2}, "cheap": {"cost": 1}},
        alternatives=[{"tools": ["dear", "cheap"]}],
        cost_weight=1.0,
    )
    verdict = await world.ask("dear", available_tools=("dear", "cheap"))
    assert verdict.prompt.startswith("Over budget: dear would take up to 1 call")
    await world.settle(1, tool="dear")
    assert await world.spent() == {"often/fleet": 1, "all/fleet": 2_000_000}


class Paused(World):
    """A world whose calls wait; `answers` has what they were told at last."""

    def __init__(self, *budgets, **fields):
        super().__init__(*budgets, **fields)
        self.answers = []
        self.holds = StoredHolds(self.shared.store, "cost-aware", self._send)
        self.context = SchedulerContext(self.shared, self.holds, "n", "replica", "cost-aware")
        self.shared.facts.living.add("o")
        self.anew()

    def anew(self):
        """Another replica, which knows nothing."""
        self.paused = PausedCalls(self.context, self.scheduler._rule_again)
        self.scheduler._paused = self.paused

    async def _send(self, asked, verdict):
        self.answers.append((asked.item.id.hex(), verdict.action))

    async def hold(self, tool="search", **fields):
        asking.set("o")
        question = self.question(tool, **fields)
        verdict = await self.scheduler.decide(question)
        assert verdict.action == "hold", verdict
        about = question_about(tool, question.tool_input, id=question.id)
        body = codec.question_body(about, question.tool_input, truncated=False)
        item = Item(bytes.fromhex(question.id), NUMBERS["select", False], body, None)
        await self.holds.keep(ReplyTo("o", item), verdict)
        return question.id


PAUSE = {"name": "often", "unit": "calls", "limit": 1, "at_limit": "pause"}


async def test_a_paused_call_goes_on_when_the_limit_is_raised_whichever_replica_looks():
    world = Paused(PAUSE)
    assert await world.actions(1) == ["continue"]
    held = await world.hold()
    await world.paused.look()
    assert world.answers == []
    world.scheduler.overrides = {"often": 2}
    world.anew()
    await world.paused.look()
    await world.paused.look()
    assert world.answers == [(held, "continue")]
    assert [one.decision for one in await world.shared.ledger.open()] == [f"{1:032x}", held]


async def test_a_paused_call_goes_on_when_something_is_given_back_one_for_each():
    world = Paused(PAUSE)
    await world.ask()
    one, other = await world.hold(), await world.hold()
    await world.shared.ledger.release(f"{1:032x}")
    await world.paused.look()
    assert world.answers == [(one, "continue")]
    await world.shared.ledger.release(one)
    await world.paused.look()
    assert world.answers == [(one, "continue"), (other, "continue")]


async def test_a_paused_call_whose_agent_died_or_gave_up_takes_nothing():
    world = Paused(PAUSE)
    await world.ask()
    dead = await world.hold()
    world.paused._found_at = time.monotonic()  # no search comes before the look
    world.shared.facts.living.clear()
    world.scheduler.overrides = {"often": 5}
    await world.paused.look()
    assert (world.answers, dead in {one.decision for one in await world.shared.ledger.open()}) == ([], False)


async def test_a_paused_call_that_was_withdrawn_takes_nothing():
    world = Paused(PAUSE)
    await world.ask()
    gone = await world.hold()
    world.paused._found_at = time.monotonic()
    for key in await world.shared.store.keys("hold"):
        await world.shared.store.delete(key)
    world.scheduler.overrides = {"often": 5}
    await world.paused.look()
    assert (world.answers, gone in {one.decision for one in await world.shared.ledger.open()}) == ([], False)


async def test_the_hold_of_an_agent_that_is_long_gone_is_taken_away():
    world = Paused(PAUSE)
    await world.ask()
    held = await world.hold()
    world.shared.facts.living.clear()
    await world.paused.look()
    assert len(await world.holds.open()) == 1
    world.paused._missing["o"] -= DEAD_S
    world.paused._found_at = float("-inf")
    await world.paused.look()
    assert (world.answers, await world.holds.open()) == ([(held, "deny")], [])


async def test_a_paused_call_is_denied_by_a_limit_that_denies():
    world = Paused(PAUSE, {"name": "hard", "unit": "calls", "limit": 2})
    await world.ask()
    held = await world.hold()
    world.scheduler.overrides = {"hard": 1}
    await world.paused.look()
    assert world.answers == [(held, "deny")]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"unit": "calls", "limit": 1.5}, "limit: must be a whole number of calls"),
        ({"unit": "EUR", "limit": 1}, "unit EUR needs `amount`"),
        ({"unit": "tokens", "limit": 1}, "unit tokens needs the section `llm`"),
        ({"amount": "$.a", "tools": ["x"], "limit": 1}, "amount: goes with a unit of your own"),
        ({"unit": "EUR", "amount": "$.a", "limit": 1}, "tools: name the tools that have this argument"),
        ({"unit": "EUR", "amount": "a", "tools": ["x"], "limit": 1}, "must be the path of an argument"),
        ({"level": "argument:a", "limit": 1}, "tools: name the tools that have this argument"),
        ({"limit": 1, "at_limit": "wait"}, "at_limit"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_with_what_to_write(fields, complaint):
    with pytest.raises(ConfigError, match=complaint.replace("`", ".")):
        config(budgets=[{"name": "b", **fields}])


def test_nobody_can_be_asked_where_money_is_reserved_last():
    with pytest.raises(ConfigError, match="with `admission` nobody can be asked"):
        config(budgets=[{"name": "b", "limit": 1, "at_limit": "ask"}], admission=True)


def test_the_currency_may_be_named_and_is_money():
    assert config(budgets=[{"name": "b", "unit": "USD", "limit": 1}]).budgets[0].is_for_all


def test_a_fact_tells_what_its_call_took_and_nothing_of_what_it_cannot_know():
    of = config(
        budgets=[
            {"name": "c", "unit": "calls", "limit": 1},
            {"name": "s", "unit": "seconds", "limit": 1},
            {"name": "t", "unit": "tokens", "limit": 1},
            REFUNDS,
        ],
        llm={},
    )
    assert costs_of(of, {"event": "tool:post", "tool": "refund", "seconds": 0.5}) == {"c": 1, "s": 500_000}
    assert costs_of(of, {"event": "tool:error", "tool": "refund", "seconds": "x"}) == {"c": 1}
    assert costs_of(of, {"event": "usage", "input_tokens": 2, "output_tokens": 3}) == {"t": 5}
    assert costs_of(of, {"event": "usage", "input_tokens": -2}) == {}


@pytest.mark.parametrize(
    ("amount", "unit", "words"),
    [
        (1200, "tokens", "1,200 tokens"),
        (1, "calls", "1 call"),
        (2_500_000, "seconds", "2.5 seconds"),
        (90_000_000, "seconds", "90 seconds"),
        (12_500_000, "USD", "12.50 USD"),
        (1_000_000_000, "EUR", "1000.00 EUR"),
    ],
)
def test_an_amount_is_said_in_its_unit(amount, unit, words):
    assert format_amount(amount, unit) == words


def test_a_part_of_a_call_is_no_amount():
    assert [read_amount(told, "calls") for told in (2, "2", 1.5, -1)] == [2, 2, None, None]
    assert read_amount(1.5, "seconds") == 1_500_000
