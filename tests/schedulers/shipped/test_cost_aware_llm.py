"""`cost-aware` on requests to an LLM: what is reserved, what is settled, what is learned, what is said."""

from types import SimpleNamespace

import pytest
from toolgate_bus.ledger.money.settlement import step_of
from toolgate_bus.protocol.events import Continue, Deny, Modify, ToolSelecting
from toolgate_bus.state.shared import make_shared_state
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.estimates import CostHistory, estimate_of_request
from toolgate_schedulers.shipped.cost_aware.llm_prices import (
    LlmConfig,
    ModelPrice,
    cost_of_tokens,
    cost_of_usage,
    price_of,
)
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware, candidates_of

pytestmark = pytest.mark.pure

PRICES = {
    "a/large": {"input": 3, "output": 15},
    "a/*": {"input": 1, "output": 5},
    "b/small": {"input": 0, "output": 1},
}
LLM = LlmConfig.model_validate({"prices": PRICES})


def request(provider="a", model="large", sent=1000, most=100, phase="select", number=1):
    asked = {
        "provider": provider,
        "model": model,
        "input_tokens": sent,
        "max_output_tokens": most,
        "purpose": "answer",
    }
    return ToolSelecting(
        id=f"{number:032x}",
        phase=phase,
        session="s-1",
        tool_name="llm:request",
        tool_input=asked,
        available_tools=("llm:request", "a/large", "b/small"),
    )


def usage(number=1, **fields):
    told = {"event": "usage", "decision_id": f"{number:032x}", "provider": "a", "model": "large"}
    return {**told, "orchestrator": "o-1", "session": "s-1", **fields}


def scheduler(limit="1.00", **config):
    budgets = [{"name": "each", "level": "session", "limit": limit}]
    made = CostAware(
        CostAwareConfig.model_validate({"llm": {"prices": PRICES}, "budgets": budgets, **config})
    )
    made.use(make_shared_state())
    return made


def test_only_who_has_prices_asks_for_requests():
    assert scheduler().tools == ("*", "llm:*")
    assert CostAware(CostAwareConfig.model_validate({"budgets": []})).tools == ("*",)


@pytest.mark.parametrize(
    ("model", "input_price"), [("a/large", 3_000_000), ("a/other", 1_000_000), ("c/x", None)]
)
def test_a_name_as_it_is_written_counts_before_a_glob(model, input_price):
    found = price_of(LLM, model)
    assert (found.input if found else None) == input_price


def test_the_estimate_is_the_request_and_the_longest_answer_rounded_up():
    found = estimate_of_request(LLM, CostHistory(), request().tool_input)
    assert found.reserve == 3_000 + 1_500
    assert estimate_of_request(LLM, CostHistory(), request(sent=1, most=1).tool_input).reserve == 18
    assert estimate_of_request(LLM, CostHistory(), request(most=None).tool_input).reserve == 3_000 + 4096 * 15


def test_a_model_without_a_price_is_estimated_by_what_it_told():
    learned = CostHistory()
    for _ in range(5):
        assert learned.hear(usage(provider="c", model="x", cost_usd=0.25))
    asked = request("c", "x").tool_input
    assert estimate_of_request(LLM, CostHistory(), asked).reserve == 0
    assert estimate_of_request(LLM, learned, asked).reserve == 250_000
    assert estimate_of_request(LLM, learned, asked, learn=False).reserve == 0


def test_answers_and_lengths_are_learned_by_model():
    learned = CostHistory()
    for _ in range(5):
        learned.hear(usage(input_tokens=1500, estimated_tokens=1000, output_tokens=10))
    for kept in (learned, CostHistory.from_bytes(learned.to_bytes())):
        assert estimate_of_request(LLM, kept, request().tool_input).reserve == 1500 * 3 + 10 * 15
        assert estimate_of_request(LLM, kept, request(model="other").tool_input).reserve == 1000 + 500


def test_a_broken_answer_teaches_nothing():
    learned = CostHistory()
    assert not learned.hear(usage(partial=True, output_tokens=1, input_tokens=1, estimated_tokens=1))
    assert learned == CostHistory()


@pytest.mark.parametrize(
    ("fact", "cost"),
    [
        ({"cost_usd": 0.2, "input_tokens": 5}, 200_000),
        ({"input_tokens": 1000, "output_tokens": 10}, 3_150),
        ({"input_tokens": 1000, "cache_read_tokens": 500}, 4_500),
        ({"input_tokens": -1, "output_tokens": "many"}, None),
        ({"input_tokens": True}, None),
        ({"model": "x", "provider": "c", "input_tokens": 5}, None),
        ({"cost_usd": float("nan")}, None),
        ({"model": ["large"], "input_tokens": 5}, 5),
    ],
)
def test_what_a_request_has_cost(fact, cost):
    assert cost_of_usage(LLM, usage(**fact)) == cost


def test_cached_tokens_have_prices_of_their_own():
    price = ModelPrice(input=10, output=0, cache_read=1, cache_write=12)
    used = {"input_tokens": 1000, "cache_read_tokens": 600, "cache_write_tokens": 100}
    million = 1_000_000
    assert cost_of_tokens(price, used) == (1000 * 10 + 600 + 100 * 12) * million // million
    within = price.model_copy(update={"cache_in_input": True})
    assert cost_of_tokens(within, used) == 400 * 10 + 600 + 100 * 12


def test_the_ledger_knows_a_request_by_its_tool_first():
    (one,) = candidates_of(scheduler().config, CostHistory(), request())
    assert (one.name, one.offer) == ("a request to a/large", "llm:request to a/large")


async def test_requests_go_on_until_the_budget_cannot_hold_another():
    made = scheduler("0.0100")
    answers = [await made.decide(request(number=number)) for number in range(1, 4)]
    assert [type(answer) for answer in answers] == [Continue, Continue, Deny]
    assert "a request to a/large would cost up to 0.0045 USD" in answers[2].reason
    assert "0.001 USD is left of the budget each" in answers[2].reason
    assert "Do not repeat" not in answers[2].reason


async def test_what_was_used_is_settled_and_leaves_room_for_the_next():
    made = scheduler("0.0110")
    ledger = made._shared.ledger
    for number in range(1, 4):
        assert isinstance(await made.decide(request(number=number)), Continue)
        fact = usage(number, input_tokens=1000, output_tokens=0)
        (came,) = await ledger.take([step_of(fact, made.otherwise, made.cost_of)])
        assert came.outcome == "settled"
    (account,) = await ledger.balances()
    assert (account.spent, account.reserved) == (9_000, 0)


async def test_a_request_that_failed_gives_back_what_was_held():
    made = scheduler()
    await made.decide(request())
    failed = usage(input_tokens=None) | {"event": "provider:error"}
    await made._shared.ledger.take([step_of(failed, made.otherwise, made.cost_of)])
    (account,) = await made._shared.ledger.balances()
    assert (account.spent, account.reserved) == (0, 0)


async def test_what_was_not_reserved_is_charged_to_who_used_it():
    made = scheduler()
    fact = usage(7, cost_usd=0.3)
    await made._shared.ledger.take([step_of(fact, made.otherwise, made.cost_of)])
    (account,) = await made._shared.ledger.balances()
    assert (account.key, account.spent) == ("each/session/s-1", 300_000)


BY_A_POLICY, UNASKED = usage(7, cost_usd=0.3, seq=1), usage(cost_usd=0.3, seq=1, decision_id=None)


@pytest.mark.parametrize(
    ("config", "fact", "spent"),
    [
        ({}, BY_A_POLICY, 300_000),
        ({}, UNASKED, 300_000),
        ({"charge_llm": True}, BY_A_POLICY, 300_000),
        ({"charge_llm": True, "llm": None}, BY_A_POLICY, 300_000),
        ({"charge_llm": True, "llm": None}, UNASKED, 300_000),
        ({"llm": None}, BY_A_POLICY, 0),
        ({"llm": None}, UNASKED, 0),
    ],
)
async def test_a_request_that_it_did_not_reserve_for_is_charged_once_at_most(wait_until, config, fact, spent):
    made = scheduler(**config)
    shared = made._shared
    shared.facts.tell(**fact)
    read = f"{shared.book}:read"
    for replica in ("r1", "r2"):  # another takes over, and reads the same fact again
        await made.start(SimpleNamespace(shared=shared, replica=replica))
        assert await wait_until(lambda: shared.store.get(read))
        await made.stop()
        await shared.store.delete(read)
        await shared.store.delete(f"{shared.book}:keeper")
    told = {one.key: one.spent for one in await shared.ledger.balances()}
    assert told.get("each/session/s-1", 0) == spent


async def test_a_cheaper_model_answers_where_the_dear_one_is_not_affordable():
    prices = {"prices": PRICES, "equivalents": [["a/large", "b/small"]]}
    made = scheduler("0.001", llm=prices)
    answer = await made.decide(request())
    assert isinstance(answer, Modify)
    assert (answer.tool, answer.arguments) == ("llm:request", {"provider": "b", "model": "small"})
    assert "a request to b/small runs instead" in answer.reason
    replaced = request("b", "small", phase="verify")
    assert isinstance(await made.decide(replaced), Continue)
    (account,) = await made._shared.ledger.balances()
    assert account.reserved == 100


@pytest.mark.parametrize("models", [["a/large"], ["a/large", "a/large"], ["large", "a/small"]])
def test_groups_of_models_that_make_no_sense_are_refused(models):
    with pytest.raises(ValueError, match="equivalents"):
        CostAwareConfig.model_validate({"llm": {"equivalents": [models]}})
